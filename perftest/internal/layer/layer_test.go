package layer

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSpec_Check(t *testing.T) {
	for _, c := range []struct {
		name string
		in   Spec
		want string
	}{
		{"smallest put", Spec{Put, 1, 1}, ""},
		{"largest get", Spec{Get, 64, 256}, ""},
		{"atomic", Spec{FAdd, WordLen, 1}, ""},
		{"flush ignores the size", Spec{Flush, 0, 1}, ""},
		{"empty put", Spec{Put, 0, 1}, "1..64"},
		{"put beyond the memory", Spec{Put, 65, 1}, "1..64"},
		{"atomic on 4 bytes", Spec{Add, 4, 1}, "atomics work on 8"},
		{"no window", Spec{Put, 1, 0}, "at least 1"},
		{"unknown kind", Spec{kindEnd, 1, 1}, "unknown operation"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.in.Check(64)
			if c.want == "" {
				assert.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, c.want)
		})
	}
}

func TestKind_String(t *testing.T) {
	assert.Equal(t, "cswap", CSwap.String())
	assert.Equal(t, "Kind(6)", kindEnd.String())
}

func TestIdle_SeesTheEndOfTheContext(t *testing.T) {
	why := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	idle := Idle{Context: ctx}
	for range 3 * lookInterval {
		assert.NoError(t, idle.Poll())
	}
	cancel(why)
	n := 0
	var err error
	for ; err == nil; n++ {
		err = idle.Poll()
	}
	assert.ErrorIs(t, err, why)
	assert.LessOrEqual(t, n, lookInterval)
}
