package chat

import (
	"testing"

	"github.com/ardanlabs/jinja"
	"github.com/stretchr/testify/require"
)

// TestInputsThatNestDeeply are refused before a template walks through them, lists and dicts alike.
func TestInputsThatNestDeeply(t *testing.T) {
	tpl, err := Compile("{{ messages | length }}")
	require.NoError(t, err)
	inList := func(v jinja.Value) jinja.Value { return jinja.NewList([]jinja.Value{v}) }
	inDict := func(v jinja.Value) jinja.Value {
		d := jinja.NewDict()
		d.AsDict().Set("a", v)
		return d
	}
	for _, wrap := range []func(jinja.Value) jinja.Value{inList, inDict} {
		render := func(depth int) error {
			v := jinja.NewString("x")
			for range depth {
				v = wrap(v)
			}
			_, err := tpl.Render(Input{Messages: v})
			return err
		}
		require.NoError(t, render(maxValueDepth))
		require.ErrorContains(t, render(maxValueDepth+1), "input nests lists and objects deeper than 200")
	}
}
