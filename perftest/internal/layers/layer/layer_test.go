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
		{"smallest put", Spec{Kind: Put, Size: 1, Window: 1}, ""},
		{"largest get", Spec{Kind: Get, Size: 64, Window: 256}, ""},
		{"atomic", Spec{Kind: FAdd, Size: WordLen, Window: 1}, ""},
		{"flush ignores the size", Spec{Kind: Flush, Size: 0, Window: 1}, ""},
		{"empty put", Spec{Kind: Put, Size: 0, Window: 1}, "1..64"},
		{"put beyond the memory", Spec{Kind: Put, Size: 65, Window: 1}, "1..64"},
		{"atomic on 4 bytes", Spec{Kind: Add, Size: 4, Window: 1}, "atomics work on 8"},
		{"no window", Spec{Kind: Put, Size: 1, Window: 0}, "at least 1"},
		{"unknown variant", Spec{Kind: Put, Size: 1, Window: 1, Variant: numVariants}, "unknown variant"},
		{"unknown layout", Spec{Kind: Tag, Size: 1, Window: 1, Layouts: Layouts{Recv: numLayouts}}, "unknown layout"},
		{"unknown kind", Spec{Kind: numKinds, Size: 1, Window: 1}, "unknown operation"},
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
	assert.Equal(t, "Kind(200)", Kind(200).String())
}

func TestIdle_DetectsEndOfContext(t *testing.T) {
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

// sleeper is a Sleeper that counts its calls.
type sleeper struct {
	naps   int
	failed error
}

func (s *sleeper) Sleep(int) (bool, error) {
	s.naps++
	return false, s.failed
}

// TestIdle_Sleeps: with a Sleeper, each Poll sleeps, until the context ends or sleeping fails.
func TestIdle_Sleeps(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	s := &sleeper{}
	idle := NewIdle(Config{Context: ctx})
	idle.Sleeper = s
	for n := range 3 {
		assert.Equal(t, n, s.naps)
		assert.NoError(t, idle.Poll())
	}
	s.failed = errors.New("no descriptor")
	assert.Equal(t, s.failed, idle.Poll())
	s.failed = nil
	why := errors.New("interrupted")
	cancel(why)
	assert.Equal(t, why, idle.Poll())
}
