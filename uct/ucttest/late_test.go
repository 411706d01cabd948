package ucttest_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/memtp"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ucttest"
)

// lateRounds exceeds idleRounds, so that a check that takes idle rounds as completion would look too early.
const lateRounds = 300

// late returns h with ifaces that, except for the first, make progress only in every lateRounds-th call, like an iface
// whose device is driven by a thread that gets no CPU time. Sends complete without delay.
func late(h ucttest.Harness) ucttest.Harness {
	open, ifaces := h.OpenMD, 0
	h.OpenMD = func() (uct.MD, error) {
		md, err := open()
		return &lateMD{md.(*memtp.MD), &ifaces}, err
	}
	return h
}

type lateMD struct {
	*memtp.MD
	ifaces *int // number of ifaces of all domains
}

func (m *lateMD) OpenIface(p uct.IfaceParams) (uct.Iface, error) {
	i, err := m.MD.OpenIface(p)
	if *m.ifaces++; err != nil || *m.ifaces == 1 {
		return i, err
	}
	return &lateIface{Iface: i.(*memtp.Iface)}, nil
}

type lateIface struct {
	*memtp.Iface
	calls int
}

func (i *lateIface) Progress() int {
	if i.calls++; i.calls%lateRounds != 0 {
		return 0
	}
	return i.Iface.Progress()
}

// TestResults_LateReceives checks that receives may complete long after their sends.
func TestResults_LateReceives(t *testing.T) {
	for _, check := range []string{
		"queue/sizes", "queue/limits", "queue/order", "queue/attach", "queue/recall", "queue/stop", "queue/number", "queue/senders",
	} {
		h := late(memHarness(nil))
		h.Budget = 1 << 14
		results := ucttest.Results(h, check)
		require.Len(t, results, 1)
		assert.False(t, results[0].Failed, "%v", results[0])
		assert.False(t, results[0].Skipped, check)
	}
}
