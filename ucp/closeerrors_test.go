package ucp_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
)

// TestWorkerClose_LimitsErrors: the error of Close has the errors of the first transport endpoints that did
// not close gracefully, and the number of further errors.
func TestWorkerClose_LimitsErrors(t *testing.T) {
	p, f := ucppair.Fake(t, ucp.Config{}, faketp.LikeSM())
	for i := range 100 {
		f.FailNext("close fsm", fmt.Errorf("%w: close %d", ucs.ErrIO, i))
		x := ucppair.End{W: p.A.W}
		x.Dial(t, &p.B)
		require.NoError(t, p.Finish(x.EP.Put([]byte{1}, x.Key.Addr(), x.Key, nil)))
		require.NoError(t, p.Finish(x.EP.Close(ucp.CloseForce)))
		assert.Empty(t, f.Failures)
	}
	err := p.A.W.Close()
	require.ErrorIs(t, err, ucs.ErrIO)
	assert.ErrorContains(t, err, "close 0; ")
	assert.ErrorContains(t, err, "close 15; and 84 errors more")
	assert.NotContains(t, err.Error(), "close 16")
}
