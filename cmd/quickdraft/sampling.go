package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"quickdraft/engine"
	"quickdraft/sample"
	"quickdraft/text/tokenizer"
)

// samplingAliases are the names that other engines give to the same options.
var samplingAliases = map[string]string{
	"typical": "typical-p", "top-nsigma": "top-n-sigma", "dry-penalty-last-n": "dry-last-n", "dry-sequence-breaker": "dry-breaker",
	"mirostat-lr": "mirostat-eta", "mirostat-ent": "mirostat-tau", "repetition-penalty": "repeat-penalty",
}

// addRareSampling registers the options that few answers need.
func (f *samplingFlags) addRareSampling(fl *pflag.FlagSet) {
	p := &f.Params
	intVar(fl, &p.RepeatLastN, "repeat-last-n", "", p.RepeatLastN, -1, noLimit, "tokens that the three penalties look back (-1: all, 0: off)")
	fl.Var(&real{&p.TypicalP, 0, 1, true}, "typical-p", "keep the tokens of usual surprise whose probability reaches p (1: all)")
	realVar(fl, &p.TopNSigma, "top-n-sigma", 0, 0, 1e9, "drop tokens this many standard deviations below the best (0: none)")
	realVar(fl, &p.XTCProbability, "xtc-probability", 0, 0, 1, "chance of dropping all tokens above the threshold but the least probable")
	realVar(fl, &p.XTCThreshold, "xtc-threshold", p.XTCThreshold, 0, 1, "probability from which on XTC drops")
	realVar(fl, &p.DRYMultiplier, "dry-multiplier", 0, 0, 1000, "penalty for continuing a repetition (0: off)")
	realVar(fl, &p.DRYBase, "dry-base", p.DRYBase, 1, 100, "by what the penalty grows with each token of the repetition")
	intVar(fl, &p.DRYAllowedLength, "dry-allowed-length", "", p.DRYAllowedLength, 1, noLimit, "tokens that may be repeated freely")
	intVar(fl, &p.DRYLastN, "dry-last-n", "", p.DRYLastN, -1, noLimit, "tokens that DRY looks back (-1: all, 0: off)")
	f.breakers = []string{"\n", ":", "\"", "*"}
	fl.Var(&pieces{p: &f.breakers}, "dry-breaker", "text that no repetition crosses; may be given several times")
	intVar(fl, &p.Mirostat, "mirostat", "", 0, 0, 2, "2: steer the surprise of the answer instead of truncating")
	fl.Var(&real{&p.MirostatTau, 0, 1e3, true}, "mirostat-tau", "surprise to aim at, in bits")
	fl.Var(&real{&p.MirostatEta, 0, 1, true}, "mirostat-eta", "how fast to correct")
	fl.Var(&biases{&p.LogitBias}, "logit-bias", "ID=BIAS, added to the token's logit; -100 forbids it; several with commas or by giving the option again")
	normal := fl.GetNormalizeFunc()
	fl.SetNormalizeFunc(func(f *pflag.FlagSet, name string) pflag.NormalizedName {
		if to, ok := samplingAliases[name]; ok {
			name = to
		}
		return normal(f, name)
	})
}

// biases is the value of --logit-bias.
type biases struct{ p *map[int32]float64 }

// String is the list, as pflag wants it.
func (b *biases) String() string { return "" }

// Type is the kind of value that the help shows.
func (b *biases) Type() string { return "list" }

// Set adds entries. A sign may stand for the equals sign.
func (b *biases) Set(s string) error {
	for entry := range strings.SplitSeq(s, ",") {
		at := strings.IndexAny(entry, "=+-")
		if at <= 0 {
			return fmt.Errorf("%q: want ID=BIAS", entry)
		}
		id, err := strconv.ParseInt(entry[:at], 10, 32)
		bias, err2 := strconv.ParseFloat(strings.TrimPrefix(entry[at:], "="), 64)
		if err = errors.Join(err, err2); err != nil || id < 0 || !(math.Abs(bias) <= 100) {
			return fmt.Errorf("%q: want a token's id and a bias of -100 to 100", entry)
		}
		if *b.p == nil {
			*b.p = map[int32]float64{}
		}
		(*b.p)[int32(id)] = bias
	}
	return nil
}

// checkBiases judges the ids of --logit-bias by the model's vocabulary.
func checkBiases(all map[int32]float64, vocab int) error {
	for _, id := range slices.Sorted(maps.Keys(all)) {
		if int(id) >= vocab {
			return &usageError{fmt.Errorf("--logit-bias: token %d is not in the vocabulary, ids go from 0 to %d", id, vocab-1)}
		}
	}
	return nil
}

// pieces is an option that is given once for each of several texts. The first one replaces those that hold without it.
type pieces struct {
	p     *[]string
	given bool
}

// String is the list, as pflag wants it.
func (v *pieces) String() string {
	if v.p == nil {
		return ""
	}
	return fmt.Sprintf("%q", *v.p)
}

// Type is the kind of value that the help shows.
func (v *pieces) Type() string { return "text" }

// Set adds a text.
func (v *pieces) Set(s string) error {
	if s == "" {
		return errors.New("want a text")
	}
	if !v.given {
		*v.p, v.given = nil, true
	}
	*v.p = append(*v.p, s)
	return nil
}

// paramsFor is params with the tokens that stand for DRY's texts.
func (f *samplingFlags) paramsFor(t *tokenizer.Tokenizer) sample.Params {
	p := f.params()
	if p.DRYMultiplier > 0 {
		p.DRYBreakers = breakerIDs(t, f.breakers)
	}
	return p
}

// breakerIDs are the tokens whose text contains one of the texts.
func breakerIDs(t *tokenizer.Tokenizer, texts []string) (ids []int32) {
	for id := range int32(t.VocabSize()) {
		for _, text := range texts {
			if text != "" && strings.Contains(string(t.Bytes(id)), text) {
				ids = append(ids, id)
				break
			}
		}
	}
	return ids
}

// beamFlags are the options of a search for the most probable answers.
type beamFlags struct {
	engine.BeamOptions
}

func (f *beamFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	intVar(fl, &f.Beams, "num-beams", "", 1, 1, engine.MaxBeams, "search for the most probable answer with this many hypotheses; sampling options but penalties and biases play no part")
	realVar(fl, &f.LengthPenalty, "length-penalty", 1, -8, 8, "of a search: the score is the sum of log probabilities by the length to this power")
}

// beam is one answer of a search.
type beam struct {
	Text   string  `json:"text"`
	Score  float64 `json:"score"`
	Finish string  `json:"finish_reason"`
}

// search answers with the best of a beam search and shows it at the end.
func (f *runFlags) search(ctx context.Context, m *loaded, req engine.Request, show func(string)) (result, error) {
	var s engine.Stats
	o := f.beams.BeamOptions
	o.Stats = &s
	found, err := m.Beams(ctx, req, o)
	if err != nil {
		return result{}, err
	}
	if len(found) == 0 {
		return result{}, errors.New("the search found no answer: every continuation is forbidden")
	}
	s.DecodedTokens = len(found[0].IDs) // the answer is the best one
	res := result{ids: found[0].IDs, finish: found[0].Finish, figures: newFigures(m, s)}
	for _, b := range found {
		res.beams = append(res.beams, beam{m.text.Tokenizer.Decode(b.IDs, true), b.Score, string(b.Finish)})
	}
	show(res.beams[0].Text)
	return res, nil
}
