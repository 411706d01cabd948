package ucttest_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/memtp"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ucttest"
)

// lateRounds is so many calls of Progress that a check which takes idle rounds for the end
// looks before the target has done anything.
const lateRounds = 300

// late is a harness whose ifaces but the first make progress in one of lateRounds calls, as
// those whose device another thread drives that has no processor. Sends end in time.
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
	ifaces *int // of all domains
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

// TestResults_LateReceives: queues whose receives are told long after the sends have ended
// break no rule.
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
