package ucp

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/ucs"
)

// TestWorkerClose_LimitsErrors: the error of Close has the errors of the first transport endpoints that did
// not close gracefully, and the number of further errors.
func TestWorkerClose_LimitsErrors(t *testing.T) {
	p, f := fakePair(t, Config{}, faketp.LikeSM())
	for i := range 100 {
		f.FailNext("close fsm", fmt.Errorf("%w: close %d", ucs.ErrIO, i))
		x := end{w: p.a.w}
		x.dial(t, &p.b)
		require.NoError(t, p.finish(x.ep.Put([]byte{1}, x.key.Addr(), x.key, nil)))
		require.NoError(t, p.finish(x.ep.Close(CloseForce)))
		assert.Empty(t, f.Failures)
	}
	err := p.a.w.Close()
	require.ErrorIs(t, err, ucs.ErrIO)
	assert.ErrorContains(t, err, "close 0; ")
	assert.ErrorContains(t, err, "close 15; and 84 errors more")
	assert.NotContains(t, err.Error(), "close 16")
}
