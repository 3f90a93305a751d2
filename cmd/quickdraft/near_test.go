package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/drafter"
	"quickdraft/engine"
	"quickdraft/internal/golden"
	"quickdraft/machine"
	"quickdraft/model"
	"quickdraft/sample"
)

// pretend makes the machine one with two groups of cores, each with a cache of its own.
func pretend(t *testing.T, l3 int) {
	old := machine.Host
	t.Cleanup(func() { machine.Host = old })
	split := *old()
	split.Caches = []machine.Cache{{Level: 3, Bytes: l3, Shared: 1, Cores: split.Cores[:1], Groups: 2}}
	machine.Host = func() *machine.Info { return &split }
}

func TestADraftThatFitsItsCacheKeepsToOneGroupOfCores(t *testing.T) {
	draft := filepath.Join(t.TempDir(), "draft.gguf")
	require.NoError(t, os.WriteFile(draft, make([]byte, 4096), 0o600))
	require.Nil(t, draftCores(draft), "one cache for all")
	pretend(t, 4096)
	require.Equal(t, machine.Host().Cores[:1], draftCores(draft))
	require.Nil(t, draftCores(""), "no draft")
	pretend(t, 4095)
	require.Nil(t, draftCores(draft), "too big for the cache")
}

func TestADraftInOneGroupOfCoresGivesTheSameAnswer(t *testing.T) {
	path := filepath.Join(golden.Dir(t, "archs"), "llama3-rope")
	cores := machine.Host().Cores[:1]
	answer := func(cores []int) []int32 {
		var draft *model.Model
		e, err := engine.Open(path, engine.Options{Context: 96, Spec: engine.SpecOptions{
			Fixed: 4, Cores: cores, Open: func(m *model.Model) (drafter.Drafter, error) {
				o := model.Options{Pool: m.Pool()}
				if cores != nil {
					o = model.Options{Cores: cores}
				}
				var err error
				if draft, err = model.Load(path, o); err != nil {
					return nil, err
				}
				return drafter.New("draft", drafter.Config{Target: m, Draft: draft})
			},
		}})
		require.NoError(t, err)
		if cores != nil {
			require.Equal(t, 1, draft.Pool().N())
		}
		ticket, err := e.Submit(t.Context(), engine.Request{Prompt: []int32{1, 2, 3, 4, 5}, MaxTokens: 40, Sampling: sample.Greedy(), EOG: []int32{}})
		require.NoError(t, err)
		var ids []int32
		for tok := range ticket.Tokens() {
			ids = append(ids, tok.ID)
		}
		require.Positive(t, ticket.Stats().Spec.Accepted)
		require.NoError(t, e.Close())
		require.NoError(t, draft.Close())
		return ids
	}
	require.Equal(t, answer(nil), answer(cores))
}
