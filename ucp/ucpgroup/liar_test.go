package ucpgroup

import (
	"encoding/binary"
	"fmt"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
)

func badMessages(w *ucp.Worker) uint64 {
	return maps.Collect(w.Stats().Snapshot().All())["worker.bad_messages"]
}

// forgedNotice is what rank from would send if rank gone had failed.
func forgedNotice(from, gone int) []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(from))
	b = binary.LittleEndian.AppendUint32(b, uint32(gone))
	return append(b, byte(ucs.StatusConnReset))
}

// TestNotice_Forged: a notice counts only if it comes from the worker of the rank that it names as
// its sender. One from a worker outside the group, or from another rank, is rejected, and the group
// goes on.
func TestNotice_Forged(t *testing.T) {
	overAll(t, func(t *testing.T, tls string) {
		x := newStepped(t, tls, 3)
		require.NoError(t, x.connected())
		g := x.groups[0]
		outside := openWorkers(t, tls, 1)[0]
		ep, err := outside.NewEP(g.w.Address(), ucp.EPConfig{})
		require.NoError(t, err)
		liars := map[*ucp.Worker]*ucp.EP{outside: ep, x.groups[2].w: x.groups[2].World().EP(0)}
		for w, ep := range liars {
			for from := range 2 {
				for gone := range 3 {
					bad := badMessages(g.w)
					r, err := ep.SendActive(NoticeID, nil, forgedNotice(from, gone), nil)
					require.NoError(t, err)
					testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
						w.Progress()
						g.Progress()
						return (r == nil || r.Done()) && badMessages(g.w) == bad+1
					})
					if r != nil {
						r.Release()
					}
					require.NoError(t, g.Err(), fmt.Sprintf("rank %d says that rank %d is gone", from, gone))
				}
			}
		}
		require.NoError(t, x.connected(), "all ranks still reach each other")
		for _, g := range x.groups {
			require.NoError(t, g.Err())
		}
		x.groups[2].Abort(ucs.ErrCanceled) // what a rank says of itself counts
		x.until(func() bool { return g.Err() != nil })
	})
}
