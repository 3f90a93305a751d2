package engine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/drafter"
)

// TestNeighboursChangeNoDraw answers a request with a seed alone, with four neighbours of other texts and behind them, with
// guesses that are drawn: the random numbers are the seed's, and what a drafter knows of other texts may not change what it
// draws them from. A shortlist is full of the neighbours' tokens by then.
func TestNeighboursChangeNoDraw(t *testing.T) {
	for _, name := range append(drafter.Names(), "draft+suffix", shortlisted) {
		if name == "random" {
			continue // its guesses differ from run to run
		}
		t.Run(name, func(t *testing.T) {
			e := openTiny(t, Options{Context: 160, KVTokens: 2048, NoPrefix: true, Spec: SpecOptions{NMax: 6, Fixed: 6, Open: withDrafter(t, name, nil)}})
			drafted := 0
			for _, reproducible := range []bool{false, true} {
				for n := range 3 {
					r := request(n, 10+n, 60)
					r.Reproducible = reproducible
					alone, _ := answer(t, e, r)
					var tickets []*Ticket
					require.NoError(t, e.do(func() error { // in the same passes
						for k := range 4 {
							tickets = append(tickets, submit(t, e, request(50+10*n+k, 40+k, 50)))
						}
						tickets = append(tickets, submit(t, e, r))
						return nil
					}))
					for _, ticket := range tickets[:4] {
						drain(t, ticket)
					}
					ids, _ := drain(t, tickets[4])
					require.Equal(t, alone, ids, "request %d, reproducible %v", n, reproducible)
					drafted += tickets[4].Stats().Spec.Drafted
				}
			}
			require.Positive(t, drafted)
		})
	}
}
