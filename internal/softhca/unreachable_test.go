package softhca_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/softhca"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// departures are the ways in which a peer ends, each with the vendor error of the completion, or the event
// if no work request is posted.
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

// The vendor error or the event distinguishes a peer that has closed its device from one that died; the
// status is that of hardware, which cannot distinguish them.
func TestPeerGone_Device(t *testing.T) {
	for name, d := range departures {
		t.Run(name, func(t *testing.T) {
			a := openNode(t, softhca.Config{})
			c := startChild(t, a, d.role)
			a.write(c)
			a.succeed(1)                                                                           // the link is up
			a.send(verbs.SendWR{ID: 7, Opcode: verbs.OpSend, SGList: []verbs.SGE{a.mr.SGE(0, 8)}}) // there is no receive for it
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

// A work request to a QP that was destroyed fails at once, without the retries, which are unlimited
// here.
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

// A QP whose peer never existed fails as soon as the dial is rejected: a posted work request completes with
// an error; otherwise there is an event.
func TestPeerGone_BeforeConnection(t *testing.T) {
	unusedGID := verbs.GID{0: 0xfe, 1: 0x80, 15: 9}
	forever := defaultLink
	forever.timeout = 0
	t.Run("posted", func(t *testing.T) {
		a := openNode(t, softhca.Config{})
		a.join(unusedGID, 77, forever)
		a.send(verbs.SendWR{ID: 1, Opcode: verbs.OpRDMAWrite, SGList: []verbs.SGE{a.mr.SGE(0, 8)}})
		wc := a.completion()
		if wc.Status != verbs.WCWRFlushErr { // the rejection was faster than the post
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
		for _, qp := range []*verbs.QP{b.qp, a.qp} { // the rejection does not fail the one in RTR
			ev, err := a.ctx.NextAsyncEvent()
			require.NoError(t, err)
			assert.Equal(t, verbs.AsyncEvent{Type: verbs.EventQPFatal, QP: qp}, ev)
			if qp == b.qp {
				a.toRTS(forever)
			}
		}
	})
}

// A QP that exchanges datagrams with a port gets an event when the port is gone, after all its datagrams, also
// if only the port has dialed.
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
