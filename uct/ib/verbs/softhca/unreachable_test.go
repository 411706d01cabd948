package softhca_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// departures are the ways in which a peer goes, and how they look: by the vendor error of
// the completion that tells, or by the event if there is none.
var departures = map[string]struct {
	role   string
	end    func(c *child) error
	vendor uint8
	event  verbs.EventType
}{
	"closes its device":       {"closer", func(c *child) error { return c.In.Close() }, verbs.VendorPeerClosed, verbs.EventPeerClosed},
	"exits without closing":   {"idle", func(c *child) error { return c.In.Close() }, verbs.VendorPeerGone, verbs.EventQPFatal},
	"is killed while it runs": {"idle", func(c *child) error { return c.Process.Kill() }, verbs.VendorPeerGone, verbs.EventQPFatal},
}

// A peer that has closed its device can be told from one that died; the status is that
// of hardware, to which both are silent.
func TestPeerGone_Device(t *testing.T) {
	for name, d := range departures {
		t.Run(name, func(t *testing.T) {
			a := openNode(t, softhca.Config{})
			c := startChild(t, a, d.role)
			a.write(c)
			a.succeed(1)                                                                           // the link is up
			a.send(verbs.SendWR{ID: 7, Opcode: verbs.OpSend, SGList: []verbs.SGE{a.mr.SGE(0, 8)}}) // no receive waits for it
			require.NoError(t, d.end(c))
			a.fail(7, verbs.WCRetryExcErr)
			assert.Equal(t, d.vendor, a.wcs[0].VendorErr)
		})
		t.Run(name+", nothing is posted", func(t *testing.T) {
			a := openNode(t, softhca.Config{})
			c := startChild(t, a, d.role)
			a.write(c)
			a.succeed(1)
			require.NoError(t, d.end(c))
			ev, err := a.ctx.NextAsyncEvent()
			require.NoError(t, err)
			assert.Equal(t, verbs.AsyncEvent{Type: d.event, QP: a.qp}, ev)
		})
	}
}

// A QP that was destroyed does not come back: nobody waits for the retries, which here
// have no end.
func TestPeerGone_QP(t *testing.T) {
	forever := defaultLink
	forever.timeout = 0
	fabrics(t, forever, func(t *testing.T, a, b *node) {
		require.NoError(t, b.qp.Close())
		a.send(verbs.SendWR{ID: 1, Opcode: verbs.OpRDMAWrite, SGList: []verbs.SGE{a.mr.SGE(0, 64)},
			RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()})
		a.fail(1, verbs.WCRetryExcErr)
		assert.Equal(t, verbs.VendorPeerClosed, a.wcs[0].VendorErr)
	})
}

// A QP whose peer was never there fails as soon as the dial is refused: its work requests
// if there are some, and by an event otherwise.
func TestPeerGone_BeforeConnection(t *testing.T) {
	unusedGID := verbs.GID{0: 0xfe, 1: 0x80, 15: 9}
	forever := defaultLink
	forever.timeout = 0
	t.Run("posted", func(t *testing.T) {
		a := openNode(t, softhca.Config{})
		a.join(unusedGID, 77, forever)
		a.send(verbs.SendWR{ID: 1, Opcode: verbs.OpRDMAWrite, SGList: []verbs.SGE{a.mr.SGE(0, 8)}})
		wc := a.completion()
		if wc.Status != verbs.WCWRFlushErr { // the refusal was faster than the post
			assert.Equal(t, verbs.WCRetryExcErr, wc.Status)
			assert.Equal(t, verbs.VendorPeerGone, wc.VendorErr)
		}
	})
	t.Run("nothing is posted", func(t *testing.T) {
		a := openNode(t, softhca.Config{})
		a.join(unusedGID, 77, forever)
		ev, err := a.ctx.NextAsyncEvent()
		require.NoError(t, err)
		assert.Equal(t, verbs.AsyncEvent{Type: verbs.EventQPFatal, QP: a.qp}, ev)
	})
	t.Run("before it can send", func(t *testing.T) {
		a := openNode(t, softhca.Config{})
		b := a.sibling()
		a.toRTR(unusedGID, 77, forever)
		b.join(unusedGID, 78, forever)
		for _, qp := range []*verbs.QP{b.qp, a.qp} { // that in RTR hears nothing of the refusal
			ev, err := a.ctx.NextAsyncEvent()
			require.NoError(t, err)
			assert.Equal(t, verbs.AsyncEvent{Type: verbs.EventQPFatal, QP: qp}, ev)
			if qp == b.qp {
				a.toRTS(forever)
			}
		}
	})
}

// A QP that exchanges datagrams with a port learns when it has gone, after all that it had
// sent, and also where the port alone had dialed.
func TestPeerGone_DatagramSender(t *testing.T) {
	for name, d := range departures {
		t.Run(name, func(t *testing.T) {
			n := openNode(t, softhca.Config{})
			u := n.datagrams()
			u.recv(1, 0, 200)
			c := startSender(t, n, u, d.role)
			require.NoError(t, d.end(c))
			ev, err := u.ctx.NextAsyncEvent()
			require.NoError(t, err)
			assert.Equal(t, verbs.AsyncEvent{Type: verbs.EventUnreachable, QP: u.qp, GID: c.GID}, ev)
			u.succeed(1)
		})
	}
}
