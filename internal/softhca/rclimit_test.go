package softhca

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// TestConnect_LimitedByGuards: an RC QP for which the link has no free guard fails to connect, with an error
// that names the limit. It connects after another QP has disconnected.
func TestConnect_LimitedByGuards(t *testing.T) {
	h := openTest(t)
	qp := newTestQP(t, h)
	l := qp.req.link
	require.Equal(t, 1, l.rcQPs)
	modify := func(state verbs.QPState) error {
		return h.ModifyQP(qp.qpn, &verbs.QPAttr{State: state, DestQPN: qp.qpn, AH: verbs.AHAttr{DGID: h.gid}},
			verbs.QPMaskState|verbs.QPMaskDestQPN|verbs.QPMaskAV)
	}
	require.NoError(t, modify(verbs.QPStateReset))
	require.Zero(t, l.rcQPs)
	l.rcQPs = maxGuards
	require.NoError(t, modify(verbs.QPStateInit))
	err := modify(verbs.QPStateRTR)
	assert.ErrorIs(t, err, ucs.ErrNoMemory)
	assert.ErrorContains(t, err, "16384")
	l.rcQPs--
	require.NoError(t, modify(verbs.QPStateRTR))
	assert.Equal(t, maxGuards, l.rcQPs)
	require.NoError(t, h.DestroyQP(qp.qpn))
	assert.Equal(t, maxGuards-1, l.rcQPs)
}
