package base

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gucx/gucx/uct"
)

func TestOpenParams(t *testing.T) {
	type config struct{ n int }
	for _, tc := range []struct {
		name string
		p    uct.IfaceParams
		want int
		err  string
	}{
		{"default", uct.IfaceParams{Transport: "x"}, 1, ""},
		{"value", uct.IfaceParams{Transport: "x", Config: config{2}}, 2, ""},
		{"pointer", uct.IfaceParams{Transport: "x", Config: &config{3}}, 3, ""},
		{"nil pointer", uct.IfaceParams{Transport: "x", Config: (*config)(nil)}, 1, ""},
		{"other type", uct.IfaceParams{Transport: "x", Config: 4}, 1, "type int"},
		{"other transport", uct.IfaceParams{Transport: "y"}, 1, `transport "y"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := OpenParams(&tc.p, "x", config{1})
			assert.Equal(t, tc.want, got.n)
			if tc.err == "" {
				assert.NoError(t, err)
				assert.NotPanics(t, func() { tc.p.OnError(nil, nil) })
				return
			}
			assert.ErrorIs(t, err, uct.ErrInvalidParam)
			assert.ErrorContains(t, err, tc.err)
		})
	}
}

// TestSplitConfig: only a configuration of another type is returned as rest.
func TestSplitConfig(t *testing.T) {
	type config struct{ n int }
	for _, tc := range []struct {
		name  string
		given any
		want  int
		rest  any
	}{
		{"none", nil, 1, nil},
		{"value", config{2}, 2, nil},
		{"pointer", &config{3}, 3, nil},
		{"nil pointer", (*config)(nil), 1, nil},
		{"other type", 4, 1, 4},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, rest := SplitConfig(tc.given, config{1})
			assert.Equal(t, tc.want, got.n)
			assert.Equal(t, tc.rest, rest)
		})
	}
}
