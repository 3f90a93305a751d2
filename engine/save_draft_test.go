package engine

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/drafter"
	"quickdraft/kvcache"
	"quickdraft/sample"
)

// fed is how many tokens an engine's draft models have computed.
func fed(e *Engine) int64 {
	if c, ok := e.opts.Spec.Drafter.(drafter.Counter); ok {
		return c.Counts().Fed
	}
	return 0
}

// TestASavedPrefixBringsTheDraftAlong restores a prompt in a new process, so to say: answers, guesses and their acceptance
// equal those of an unsaved run, and no draft model reads the prompt again.
func TestASavedPrefixBringsTheDraftAlong(t *testing.T) {
	// nModels draft models keep keys and values of their own.
	for name, nModels := range map[string]int64{
		"draft": 1, "crossvocab": 1, "hierarchical": 2, "draft+suffix": 1, "layerskip": 0, "ngram": 0, "suffix": 0, "lookahead": 0,
	} {
		for _, sampled := range []bool{false, true} {
			r := request(7, 61, 40)
			if r.Reproducible = sampled; !sampled {
				r.Sampling = sample.Greedy()
			}
			options := Options{Context: 256, Spec: SpecOptions{Fixed: 4, Open: withDrafter(t, name, func(c *drafter.Config) {
				// Not the target's copy, which would find the target's own part of any file.
				c.Draft, c.Bigger, c.Translation = load(t, c.Target, "llama-untied"), load(t, c.Target, "llama-untied"), letters(t, 512, 0, 513)
			})}}
			unsaved := whole(t, submit(t, openTiny(t, options), r))
			// afresh restores a file in a new engine and answers.
			afresh := func(file string) ([]Token, SpecStats, int64) {
				e := openTiny(t, options)
				ids, err := e.RestorePrefix(t.Context(), file)
				require.NoError(t, err)
				require.Equal(t, r.Prompt, ids)
				before := fed(e)
				ticket := submit(t, e, r)
				return whole(t, ticket), ticket.Stats().Spec, fed(e) - before
			}
			file, bare := filepath.Join(t.TempDir(), "prefix.kv"), filepath.Join(t.TempDir(), "bare.kv")
			require.NoError(t, openTiny(t, options).SavePrefix(t.Context(), file, r.Prompt))
			require.NoError(t, openTiny(t, Options{Context: 256}).SavePrefix(t.Context(), bare, r.Prompt))

			want, spec, read := afresh(bare)
			got, again, reread := afresh(file)
			require.Equal(t, want, got, "%s, sampled %v", name, sampled)
			require.Equal(t, unsaved, got, "%s, sampled %v", name, sampled)
			require.Positive(t, spec.Drafted, name)
			require.Equal(t, spec, again, "%s, sampled %v", name, sampled)
			require.Equal(t, read-nModels*int64(len(r.Prompt)-1), reread, "%s: the prompt was read again", name)
		}
	}
}

// TestAnotherDraftReadsTheRestoredPrefix has a file whose draft part is another model's, missing, or damaged.
func TestAnotherDraftReadsTheRestoredPrefix(t *testing.T) {
	r := request(7, 61, 40)
	r.Sampling = sample.Greedy()
	withDraft := func(arch string, context int) Options {
		return Options{Context: 256, Spec: SpecOptions{Fixed: 4, Open: withDrafter(t, "draft", func(c *drafter.Config) {
			c.Draft, c.Context = load(t, c.Target, arch), context
		})}}
	}
	want, _ := answer(t, openTiny(t, Options{Context: 256}), r)
	for name, c := range map[string]struct{ saved, restored Options }{
		"another draft":              {withDraft("llama3-rope", 0), withDraft("llama-untied", 0)},
		"no draft when saved":        {Options{Context: 256}, withDraft("llama-untied", 0)},
		"no draft when restored":     {withDraft("llama3-rope", 0), Options{Context: 256}},
		"a prompt beyond the draft":  {withDraft("llama-untied", 40), withDraft("llama-untied", 0)},
		"a draft of a short context": {withDraft("llama3-rope", 0), withDraft("llama3-rope", 40)},
	} {
		file := filepath.Join(t.TempDir(), "prefix.kv")
		require.NoError(t, openTiny(t, c.saved).SavePrefix(t.Context(), file, r.Prompt), name)
		e := openTiny(t, c.restored)
		ids, err := e.RestorePrefix(t.Context(), file)
		require.NoError(t, err, name)
		require.Equal(t, r.Prompt, ids)
		ticket := submit(t, e, r)
		got, _ := drain(t, ticket)
		require.Equal(t, want, got, name)
		require.Equal(t, len(r.Prompt)-1, ticket.Stats().CachedTokens, name)
		if c.restored.Spec.Open != nil && name != "a draft of a short context" {
			require.Positive(t, ticket.Stats().Spec.Drafted, name)
			require.GreaterOrEqual(t, fed(e), int64(len(r.Prompt)), name)
		}
	}
	file := filepath.Join(t.TempDir(), "prefix.kv")
	require.NoError(t, openTiny(t, withDraft("llama3-rope", 0)).SavePrefix(t.Context(), file, r.Prompt))
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	data[len(data)-100] ^= 1
	require.NoError(t, os.WriteFile(file, data, 0o600))
	_, err = openTiny(t, withDraft("llama-untied", 0)).RestorePrefix(t.Context(), file)
	require.ErrorIs(t, err, kvcache.ErrDamaged, "whoever the damaged part belongs to")
	for _, arch := range []string{"llama3-rope", "llama-untied"} {
		require.NoError(t, openTiny(t, withDraft(arch, 0)).SavePrefix(t.Context(), file, r.Prompt))
		_, err = openTiny(t, withDraft("llama3-rope", 0)).RestorePrefix(t.Context(), file)
		require.NoError(t, err, "a draft that is the target's copy finds the target's own part")
	}
	require.NoError(t, openTiny(t, withDraft("llama-untied", 0)).SavePrefix(t.Context(), file, r.Prompt))
	data, err = os.ReadFile(file)
	require.NoError(t, err)
	data[len(data)-100] ^= 1
	require.NoError(t, os.WriteFile(file, data, 0o600))
	_, err = openTiny(t, withDraft("llama-untied", 0)).RestorePrefix(t.Context(), file)
	require.ErrorIs(t, err, kvcache.ErrDamaged)
}

// TestPreemptedRequestsDraftOn has two answers that do not fit the cache together: one is interrupted, and its draft does
// not read the sequence again.
func TestPreemptedRequestsDraftOn(t *testing.T) {
	e := openTiny(t, Options{Context: 160, KVTokens: 176, Spec: SpecOptions{Fixed: 4, Open: withDrafter(t, "draft", nil)}})
	var tickets []*Ticket
	sessions, nTokens := 0, int64(0)
	for n := range 2 {
		r := request(n, 60, 60)
		r.Sampling = sample.Greedy()
		tickets = append(tickets, submit(t, e, r))
		nTokens += 120
	}
	for _, ticket := range tickets {
		ids, why := drain(t, ticket)
		require.Equal(t, FinishLength, why)
		require.Len(t, ids, 60)
		sessions += ticket.Stats().Spec.Rounds
	}
	require.Positive(t, sessions)
	require.Less(t, fed(e), nTokens+nTokens/4, "the draft read more than once what is there once")
}
