package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"quickdraft/drafter"
	"quickdraft/model"
)

// TestWhereAPromptIsCutDecidesNoDraw has prompts come beside a running answer in pieces of minChunk tokens, after which the last
// token of some is alone: guesses are drawn, and the answers and what became of the guesses are those of each request alone.
func TestWhereAPromptIsCutDecidesNoDraw(t *testing.T) {
	const n = 12
	o := Options{Context: 256, KVTokens: 2048, MaxRunning: 1 + n, NoPrefix: true, Spec: SpecOptions{Fixed: 3, Open: withDrafter(t, "draft", func(c *drafter.Config) {
		c.Draft = load(t, c.Target, "llama-untied") // a copy of the target would have no guess rejected
	})}}
	prompts := func(i int) Request { return request(i, 5+i, 30) }
	alone := openTiny(t, o)
	var want [n][]Token
	var specs [n]SpecStats
	for i := range want {
		ticket := submit(t, alone, prompts(i))
		want[i], specs[i] = whole(t, ticket), ticket.Stats().Spec
		require.Positive(t, specs[i].Drafted)
	}
	o.StallTarget = time.Nanosecond
	e := openTiny(t, o)
	passes, lonely, all := 0, 0, make(chan struct{})
	paced(e, func(*model.Batch) time.Duration {
		if passes++; passes == 2 {
			<-all
		}
		for _, it := range e.plan.items {
			if it.r.emitted() == 0 && it.r.seq.Len() > 0 && it.r.seq.Len() == len(it.r.Prompt)-1 {
				lonely++
			}
		}
		return time.Millisecond
	})
	r := request(100, 20, 200)
	r.NoSpec = true
	beside := submit(t, e, r)
	receive(t, beside.Tokens())
	var tickets [n]*Ticket
	for i := range tickets {
		tickets[i] = submit(t, e, prompts(i))
	}
	close(all)
	for i, ticket := range tickets {
		require.Equal(t, want[i], whole(t, ticket), "a prompt of %d tokens", 5+i)
		require.Equal(t, specs[i], ticket.Stats().Spec, "a prompt of %d tokens", 5+i)
	}
	whole(t, beside)
	require.NoError(t, e.Close())
	require.Positive(t, lonely, "no piece was one token")
}
