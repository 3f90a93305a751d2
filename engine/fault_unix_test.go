//go:build unix

package engine

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/drafter"
	"quickdraft/machine"
	"quickdraft/model"
)

// tilesOf is the file of tiles in a folder that holds only one.
func tilesOf(t *testing.T, dir string) string {
	files, err := filepath.Glob(filepath.Join(dir, "*.tiles"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	return files[0]
}

// mapped writes a model and its tiles, so that the next load maps them.
func mapped(t *testing.T) (path, dir string) {
	dir = t.TempDir()
	path = filepath.Join(dir, "tiny.gguf")
	require.NoError(t, WriteTinyModel(path, nil))
	m, err := model.Load(path, model.Options{TilesDir: dir})
	require.NoError(t, err)
	require.NoError(t, m.Close())
	return path, dir
}

// last is how an answer ends.
func last(t *testing.T, ticket *Ticket) (end Token) {
	for tok, ok := receive(t, ticket.Tokens()); ok; tok, ok = receive(t, ticket.Tokens()) {
		end = tok
	}
	return end
}

// TestWeightsThatAreCutShort truncates the file that the weights are mapped from while requests run and wait: each ends with an
// error that names the file, later ones are refused with it, and the engine can be closed.
func TestWeightsThatAreCutShort(t *testing.T) {
	for _, threads := range []int{1, 2} {
		path, dir := mapped(t)
		e := open(t, path, Options{TilesDir: dir, Context: 512, KVTokens: 2048, MaxRunning: 2, Threads: threads})
		tiles := tilesOf(t, dir)
		var tickets []*Ticket
		for n := range 4 { // two of them wait
			tickets = append(tickets, submit(t, e, request(n, 20, 400)))
		}
		require.NoError(t, tok(receive(t, tickets[0].Tokens())).Err)
		require.NoError(t, os.Truncate(tiles, 0))
		var changed *machine.ChangedError
		for _, ticket := range tickets {
			end := last(t, ticket)
			require.Equal(t, FinishError, end.Finish)
			require.ErrorAs(t, end.Err, &changed)
			require.ErrorContains(t, end.Err, tiles+": the file was changed while in use")
		}
		_, err := e.Submit(context.Background(), request(9, 20, 4))
		require.ErrorIs(t, err, changed)
		_, err = e.Beams(context.Background(), request(9, 20, 4), BeamOptions{Beams: 2})
		require.ErrorIs(t, err, changed)
		require.NoError(t, e.Close())
		require.Equal(t, e.cache.Blocks(), e.cache.FreeBlocks())
	}
}

func tok(t Token, _ bool) Token { return t }

// TestBeamsOverWeightsThatAreCutShort is the same for a search that runs.
func TestBeamsOverWeightsThatAreCutShort(t *testing.T) {
	path, dir := mapped(t)
	e := open(t, path, Options{TilesDir: dir, Context: 512})
	require.NoError(t, os.Truncate(tilesOf(t, dir), 0))
	_, err := e.Beams(context.Background(), request(9, 20, 40), BeamOptions{Beams: 2})
	var changed *machine.ChangedError
	require.ErrorAs(t, err, &changed)
	_, err = e.Submit(context.Background(), request(9, 20, 4))
	require.ErrorIs(t, err, changed)
	require.NoError(t, e.Close())
}

// TestDraftWeightsThatAreCutShort truncates the file of the draft model: the target's answers stay, without guesses.
func TestDraftWeightsThatAreCutShort(t *testing.T) {
	path, dir := mapped(t)
	r := request(3, 20, 300)
	r.Reproducible = true
	want := whole(t, submit(t, open(t, path, Options{Context: 512}), r))
	var draft *model.Model
	e := open(t, path, Options{Context: 512, Note: func(string) {}, Spec: SpecOptions{Fixed: 3, Open: func(m *model.Model) (_ drafter.Drafter, err error) {
		if draft, err = model.Load(path, model.Options{Pool: m.Pool(), TilesDir: dir}); err != nil {
			return nil, err
		}
		return drafter.New("draft", drafter.Config{Target: m, Draft: draft})
	}}})
	ticket := submit(t, e, r)
	var got []Token
	for range 20 {
		got = append(got, tok(receive(t, ticket.Tokens())))
	}
	require.NoError(t, os.Truncate(tilesOf(t, dir), 0))
	require.Equal(t, want, append(got, whole(t, ticket)...))
	require.Positive(t, ticket.Stats().Spec.Accepted)
	require.Positive(t, ticket.Stats().Spec.Failed)
	require.Equal(t, want, whole(t, submit(t, e, r)))
	require.NoError(t, e.Close())
	require.NoError(t, draft.Close())
}
