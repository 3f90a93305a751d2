package tokenizer

import (
	"fmt"

	"golang.org/x/text/unicode/norm"
)

// component is a normalizer, pre-tokenizer, post-processor or decoder of a tokenizer.json: its type, and the fields of
// all types that are supported.
type component struct {
	Type string `json:"type"`

	Normalizers   []component `json:"normalizers"`
	Pretokenizers []component `json:"pretokenizers"`
	Processors    []component `json:"processors"`
	Decoders      []component `json:"decoders"`

	Pattern struct {
		String *string
		Regex  *string
	} `json:"pattern"`
	Content     string `json:"content"`
	Prepend     string `json:"prepend"`
	Behavior    string `json:"behavior"`
	Invert      bool   `json:"invert"`
	StripLeft   bool   `json:"strip_left"`
	StripRight  bool   `json:"strip_right"`
	Start       int    `json:"start"`
	Stop        int    `json:"stop"`
	Charsmap    []byte `json:"precompiled_charsmap"`
	Individual  bool   `json:"individual_digits"`
	PrefixSpace *bool  `json:"add_prefix_space"`
	UseRegex    *bool  `json:"use_regex"`
	Replacement string `json:"replacement"`
	Scheme      string `json:"prepend_scheme"`
	Split       *bool  `json:"split"`

	Single        []templateItem `json:"single"`
	SpecialTokens map[string]struct {
		IDs []int64 `json:"ids"`
	} `json:"special_tokens"`
}

// templateItem is a special token or the place of the text in what AddSpecial makes.
type templateItem struct {
	SpecialToken *struct {
		ID string `json:"id"`
	}
	Sequence *struct {
		ID string `json:"id"`
	}
}

// maxContent bounds the texts that components put in, and with them how much longer a text can become.
const maxContent = 256

func (c *component) check() error {
	for _, s := range []string{c.Content, c.Prepend, c.Replacement} {
		if len(s) > maxContent {
			return fmt.Errorf("%s puts in a text of %d bytes; at most %d are allowed", c.Type, len(s), maxContent)
		}
	}
	return nil
}

// pipeline puts the components of a tokenizer.json into t.
type pipeline struct {
	t         *Tokenizer
	byteLevel bool
	fused     bool // decoder: pieces were joined into one
}

var normForms = map[string]norm.Form{"NFC": norm.NFC, "NFD": norm.NFD, "NFKC": norm.NFKC, "NFKD": norm.NFKD}

func (p *pipeline) normalizer(c *component) error {
	if c == nil {
		return nil
	}
	if err := c.check(); err != nil {
		return fmt.Errorf("normalizer %w", err)
	}
	add := func(n normalizer) { p.t.norm = append(p.t.norm, n) }
	if form, ok := normForms[c.Type]; ok {
		add(normForm(form))
		return nil
	}
	switch c.Type {
	case "Sequence":
		for i := range c.Normalizers {
			if err := p.normalizer(&c.Normalizers[i]); err != nil {
				return err
			}
		}
	case "Prepend":
		add(prepend(c.Prepend))
	case "Strip":
		add(strip(c.StripLeft, c.StripRight))
	case "Replace":
		switch {
		case c.Pattern.String != nil && *c.Pattern.String != "":
			add(replace(*c.Pattern.String, c.Content))
		case c.Pattern.Regex != nil && *c.Pattern.Regex == " {2,}":
			add(replaceRuns(c.Content))
		default:
			return fmt.Errorf("normalizer Replace: pattern %s is not supported; a string and the regex \" {2,}\" are", c.pattern())
		}
	case "Precompiled":
		m, err := newCharsmap(c.Charsmap)
		if err != nil {
			return fmt.Errorf("normalizer Precompiled: %w", err)
		}
		add(m.normalize)
	default:
		return fmt.Errorf("normalizer %q is not supported", c.Type)
	}
	return nil
}

func (c *component) pattern() string {
	switch {
	case c.Pattern.String != nil:
		return fmt.Sprintf("string %q", *c.Pattern.String)
	case c.Pattern.Regex != nil:
		return fmt.Sprintf("regex %q", *c.Pattern.Regex)
	}
	return "(none)"
}

func flag(b *bool, absent bool) bool {
	if b == nil {
		return absent
	}
	return *b
}

// regexScanners are the scanners by the expressions that they follow.
var regexScanners = map[string]scanner{
	llamaRegex: scanLlama, qwenRegex: scanQwen, tekkenRegex: scanTekken, gpt2Regex: scanGPT2,
}

func (p *pipeline) preTokenizer(c *component) error {
	if c == nil {
		return nil
	}
	if p.byteLevel {
		return fmt.Errorf("pre_tokenizer %q after ByteLevel is not supported", c.Type)
	}
	add := func(s splitter) { p.t.pre = append(p.t.pre, s) }
	switch c.Type {
	case "Sequence":
		for i := range c.Pretokenizers {
			if err := p.preTokenizer(&c.Pretokenizers[i]); err != nil {
				return err
			}
		}
	case "ByteLevel":
		if flag(c.PrefixSpace, true) {
			add(prefixSpace)
		}
		if flag(c.UseRegex, true) {
			add(byScanner(scanGPT2))
		}
		p.byteLevel = true
	case "Split":
		return p.split(c)
	case "Digits":
		add(digits(c.Individual))
	case "WhitespaceSplit":
		add(spaces)
	case "Metaspace":
		mark, scheme, err := c.metaspace()
		if err != nil {
			return fmt.Errorf("pre_tokenizer Metaspace: %w", err)
		}
		add(metaspace(mark, scheme, flag(c.Split, true)))
	default:
		return fmt.Errorf("pre_tokenizer %q is not supported", c.Type)
	}
	return nil
}

func (p *pipeline) split(c *component) error {
	if c.Pattern.Regex != nil {
		scan, ok := regexScanners[*c.Pattern.Regex]
		if !ok || c.Behavior != "Isolated" || c.Invert {
			return fmt.Errorf("pre_tokenizer Split: regex %q with behavior %q, invert %v is not supported", *c.Pattern.Regex, c.Behavior, c.Invert)
		}
		p.t.pre = append(p.t.pre, byScanner(scan))
		return nil
	}
	if c.Pattern.String == nil || *c.Pattern.String == "" || c.Invert {
		return fmt.Errorf("pre_tokenizer Split: pattern %s, invert %v is not supported", c.pattern(), c.Invert)
	}
	switch c.Behavior {
	case "Removed", "Isolated", "MergedWithPrevious", "MergedWithNext":
		p.t.pre = append(p.t.pre, literal(*c.Pattern.String, c.Behavior))
		return nil
	}
	return fmt.Errorf("pre_tokenizer Split: behavior %q is not supported", c.Behavior)
}

// metaspace returns the mark and when it is put in front. Older files have add_prefix_space instead of a scheme.
func (c *component) metaspace() (mark, scheme string, err error) {
	mark, scheme = c.Replacement, c.Scheme
	if scheme == "" {
		scheme = "always"
		if !flag(c.PrefixSpace, true) {
			scheme = "never"
		}
	}
	if mark == "" {
		mark = spaceMark
	}
	if len([]rune(mark)) != 1 {
		return "", "", fmt.Errorf("replacement is %q; one character is right", mark)
	}
	if scheme != "always" && scheme != "first" && scheme != "never" {
		return "", "", fmt.Errorf("prepend_scheme is %q; always, first and never are right", scheme)
	}
	return mark, scheme, nil
}
