package dv

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/internal/ibtest"
	"github.com/gucx/gucx/uct/ib/internal/xrccore"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
	"github.com/gucx/gucx/uct/ucttest"
)

// TestXRC_CQErrorFailsQueues: after an error of the completion queue, a send to a queue and a
// receive of a queue fail over mlx5 queues too, and the iface can be closed.
func TestXRC_CQErrorFailsQueues(t *testing.T) {
	md := ibtest.NewMD(t, softhca.FabricLoop, XRC(XRCConfig{}))
	mem, err := md.Alloc(1<<12, uct.AccessAll)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, mem.Close()) })
	iov := []uct.IOV{{Buf: mem.Bytes()[:64], Mem: mem}}
	var its [2]*xrccore.Iface
	var eps [2]uct.EP
	for i := range its {
		it, err := md.OpenIface(uct.IfaceParams{Transport: XRCName, Device: ibtest.Device, Config: tinyXRC(ucttest.Options{})})
		require.NoError(t, err)
		its[i] = it.(*xrccore.Iface)
		eps[i], err = it.NewEP(uct.EPParams{})
		require.NoError(t, err)
	}
	for i := range its {
		peer := eps[1-i].Ops().Connect
		require.NoError(t, eps[i].Ops().Connect.Connect(its[1-i].DeviceAddr(nil), peer.EPAddr(nil)))
	}
	var received, sent []ucs.Status
	q, err := eps[1].Ops().Queues.NewQueue(2)
	require.NoError(t, err)
	for range 2 {
		require.NoError(t, q.Post(&uct.QueueRecv{Func: func(r *uct.QueueRecv) { received = append(received, r.Status) }}, iov))
	}
	c, err := eps[0].Ops().Queues.Attach(q.Number())
	require.NoError(t, err)
	send := func() {
		_, err := c.SendZcopy(iov, &uct.Completion{Count: 1, Func: func(c *uct.Completion) { sent = append(sent, c.Status) }})
		require.NoError(t, err)
	}
	both := func(n int) {
		testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
			its[0].Progress()
			its[1].Progress()
			return len(sent) == n && len(received) == n
		})
	}
	send()
	both(1)
	for _, it := range its {
		t.Run("overrun", func(t *testing.T) { ibtest.Overrun(t, md, it.VerbsCQ()) })
	}
	send()
	both(2)
	for _, it := range its {
		require.NoError(t, it.Close())
	}
	want := []ucs.Status{ucs.StatusOK, ucs.StatusIOError}
	assert.Equal(t, want, sent)
	assert.Equal(t, want, received)
}
