package udcore

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/internal/dgram"
	"github.com/gucx/gucx/uct/ib/verbs"
)

func TestConnect_WithFirstMessage(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b := over.pair(t, Config{}, Config{})
		ab := a.epTo(b)
		progressUntilIdle(a, b)
		assert.Zero(t, a.it.core.pi, "an endpoint without messages sends nothing")
		assert.Zero(t, b.it.core.conns.Len())

		ab.send(t, 0)
		ab.send(t, 1)
		until(t, func() bool { return len(b.got) == 2 }, a, b)
		assert.Equal(t, upTo(2), b.got)
		assert.Equal(t, 1, b.it.core.conns.Len(), "the request makes the connection")

		ba := b.epTo(a)
		assert.Equal(t, 1, b.it.core.conns.Len(), "the endpoint uses it")
		assert.Equal(t, dgram.Connected, ba.c.proto.State())
		ba.send(t, 0)
		until(t, func() bool { return len(a.got) == 1 }, a, b)

		again := a.epTo(b)
		again.send(t, 2)
		until(t, func() bool { return len(b.got) == 3 }, a, b)
		assert.Equal(t, 2, b.it.core.conns.Len(), "a second endpoint has a second connection")
	})
}

func TestConnect_BothAtOnce(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b := over.pair(t, Config{}, Config{})
		ab, ba := a.epTo(b), b.epTo(a)
		for i := range uint64(5) {
			ab.send(t, i)
			ba.send(t, i)
		}
		until(t, func() bool { return len(a.got) == 5 && len(b.got) == 5 }, a, b)
		assert.Equal(t, 1, a.it.core.conns.Len())
		assert.Equal(t, 1, b.it.core.conns.Len())
		assert.Equal(t, ab.c.id, ba.c.proto.Remote())
		assert.Equal(t, ba.c.id, ab.c.proto.Remote())
	})
}

func TestConnect_ToItself(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a := newSide(t, over.newMD(t), Config{})
		ep, second := a.epTo(a), a.epTo(a)
		for i := range uint64(40) {
			ep.send(t, i)
		}
		until(t, func() bool { return len(a.got) == 40 }, a)
		assert.Equal(t, upTo(40), a.got)
		second.send(t, 40)
		until(t, func() bool { return len(a.got) == 41 }, a)
		assert.Equal(t, 2, a.it.core.conns.Len())
	})
}

func TestConnect_AgainAfterClose(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b := over.pair(t, Config{}, Config{})
		for i := range uint64(5) {
			ep := a.epTo(b)
			ep.send(t, i)
			require.NoError(t, ep.Close(), "what was posted is still delivered")
			require.NoError(t, ep.Close())
			assert.ErrorIs(t, ep.AMShort(0, 0, nil), uct.ErrClosed)
			until(t, func() bool { return len(b.got) == int(i)+1 }, a, b)
		}
		assert.Equal(t, upTo(5), b.got)
		assert.Equal(t, 1, a.it.core.conns.Len())
		unused := a.epTo(newSide(t, a.md, Config{}))
		require.NoError(t, unused.Close())
		assert.Equal(t, 1, a.it.core.conns.Len(), "a connection that was never open is removed")
		assert.Len(t, a.it.core.peers, 1)
	})
}

func TestConnect_PeerHasLostConnection(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b := over.pair(t, Config{}, Config{})
		ab, ba := a.epTo(b), b.epTo(a)
		ab.send(t, 0)
		until(t, func() bool { return len(b.got) == 1 }, a, b)
		progressUntilIdle(a, b)
		b.it.core.drop(ba.c, ucs.StatusCanceled) // as if b were a new process with the old address
		require.NoError(t, func() error { ba.c.detachEP(); return nil }())
		b.epTo(a).send(t, 9)
		until(t, func() bool { return len(a.got) == 1 && len(a.errs) == 1 }, a, b)
		assert.ErrorIs(t, a.errs[0], ucs.ErrConnReset)
		assert.ErrorIs(t, ab.AMShort(0, 0, nil), uct.ErrEPFailed)
		a.epTo(b).send(t, 7)
		until(t, func() bool { return len(b.got) == 2 }, a, b)
	})
}

// TestConnect_AfterFin: a request after a FIN is of another iface with the same QPN, even if the
// connection id is the same.
func TestConnect_AfterFin(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b := over.pair(t, Config{}, Config{})
		ab, ba := a.epTo(b), b.epTo(a)
		ab.send(t, 0)
		until(t, func() bool { return len(b.got) == 1 && ab.c.proto.Unacked() == 0 }, a, b)
		progressUntilIdle(a, b)
		a.it.core.peerClosed(ab.c)
		id, core := ba.c.id, b.it.core
		core.drop(ba.c, ucs.StatusCanceled)
		ba.c.detachEP()
		again := b.epTo(a)
		for ; again.c.id != id; again = b.epTo(a) { // ids of an index are reused
			require.NoError(t, again.Close())
		}
		again.send(t, 9)
		until(t, func() bool { return len(a.got) == 1 }, a, b)
		require.Len(t, a.errs, 1)
		assert.ErrorIs(t, a.errs[0], ucs.ErrPeerClosed)
		a.epTo(b).send(t, 1)
		until(t, func() bool { return len(b.got) == 2 }, a, b)
		assert.Empty(t, b.errs)
	})
}

// TestConnect_AfterUndetectedDeath: an iface that has the QPN of one that died without a FIN makes
// new connections. Its peer has not detected the death, because no packet was in flight.
func TestConnect_AfterUndetectedDeath(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		md := over.newMD(t)
		a, b := newSide(t, md, Config{}), newSide(t, md, Config{})
		ab, ba := a.epTo(b), b.epTo(a)
		ab.send(t, 0)
		ba.send(t, 1)
		until(t, func() bool { return len(b.got) == 1 && ab.c.proto.Unacked() == 0 && ba.c.proto.Unacked() == 0 }, a, b)
		progressUntilIdle(a, b)
		id, core := ba.c.id, b.it.core
		core.drop(ba.c, ucs.StatusCanceled)
		ba.c.detachEP()
		core.prepare() // as in a new iface

		again := b.epTo(a)
		require.NotEqual(t, id, again.c.id)
		again.send(t, 2)
		until(t, func() bool { return len(a.got) == 2 }, a, b)
		assert.Equal(t, []uint64{1, 2}, a.got)
		require.Len(t, a.errs, 1)
		assert.ErrorIs(t, a.errs[0], ucs.ErrConnReset)
		a.epTo(b).send(t, 3)
		until(t, func() bool { return len(b.got) == 2 }, a, b)
	})
}

// TestConnect_NoIDIsZero: no connection has id 0, for any random bits.
func TestConnect_NoIDIsZero(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		md := over.newMD(t)
		a, b := newSide(t, md, Config{}), newSide(t, md, Config{})
		first := a.epTo(b)
		first.send(t, 0)
		handle := first.c.id ^ a.it.core.salt
		until(t, func() bool { return len(b.got) == 1 && first.c.proto.Unacked() == 0 }, a, b)
		core := a.it.core
		core.drop(first.c, ucs.StatusCanceled)
		first.c.detachEP()
		core.salt = handle + 1<<placeBits // the handle of the next use of the index
		second := a.epTo(b)
		assert.NotZero(t, second.c.id)
		second.send(t, 1)
		until(t, func() bool { return len(b.got) == 2 && second.c.proto.Unacked() == 0 }, a, b)
	})
}

// TestConnect_EPOfOnErrorUsesNewConnection: if the peer has lost a connection, an EP that OnError
// makes uses the new connection of the peer.
func TestConnect_EPOfOnErrorUsesNewConnection(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b := over.pair(t, Config{}, Config{})
		ab, ba := a.epTo(b), b.epTo(a)
		ab.send(t, 0)
		until(t, func() bool { return len(b.got) == 1 }, a, b)
		progressUntilIdle(a, b)
		var again *EP
		a.it.core.onError = func(_ uct.EP, err error) {
			a.errs = append(a.errs, err)
			again = a.epTo(b)
		}
		b.it.core.drop(ba.c, ucs.StatusCanceled) // as if b were a new process with the old address
		ba.c.detachEP()
		b.epTo(a).send(t, 9)
		until(t, func() bool { return len(a.got) == 1 && again != nil }, a, b)
		again.send(t, 7)
		until(t, func() bool { return len(b.got) == 2 || len(b.errs) > 0 }, a, b)
		assert.Empty(t, b.errs)
		assert.Len(t, a.errs, 1)
		assert.Equal(t, 1, a.it.core.conns.Len())
	})
}

// unusedAddr returns the address of an iface that does not exist.
func unusedAddr(s *side) uct.EPParams {
	addr := dgram.IfaceAddr{MTU: verbs.MTU4096, QPN: 0xfffff0}
	return uct.EPParams{DeviceAddr: s.it.DeviceAddr(nil), IfaceAddr: addr.Append(nil)}
}

func TestConnect_NoPeer(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a := newSide(t, over.newMD(t), Config{Timeout: 100 * time.Millisecond, Window: 4})
		uep, err := a.it.NewEP(unusedAddr(a))
		require.NoError(t, err)
		ep := uep.(*EP)
		for i := range uint64(4) {
			ep.send(t, i)
		}
		assert.Equal(t, uct.ErrNoResource, ep.AMShort(0, 4, nil))
		var pendingErr error
		require.NoError(t, ep.AddPending(&uct.PendingReq{Func: func(*uct.PendingReq) error {
			pendingErr = ep.AMShort(0, 4, nil)
			return pendingErr
		}}))
		var st []uct.Status
		pending, err := ep.Flush(&uct.Completion{Count: 1, Func: func(c *uct.Completion) { st = append(st, c.Status) }})
		require.NoError(t, err)
		require.True(t, pending)
		until(t, func() bool { return pendingErr != nil && pendingErr != uct.ErrNoResource }, a)
		assert.ErrorIs(t, pendingErr, uct.ErrEPFailed)
		assert.Equal(t, []uct.Status{ucs.StatusTimedOut}, st)
		require.Len(t, a.errs, 1)
		assert.ErrorIs(t, a.errs[0], ucs.ErrTimedOut)
		assert.GreaterOrEqual(t, a.clock, 100*time.Millisecond)
		assert.Zero(t, a.it.core.conns.Len())
		assert.Equal(t, a.it.core.cfg.TxBuffers, a.it.core.pool.Free())
		require.NoError(t, ep.Close())
	})
}

func TestNewEP_RejectsInvalid(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a := newSide(t, over.newMD(t), Config{})
		dev, addr := a.it.DeviceAddr(nil), a.it.IfaceAddr(nil)
		smaller := dgram.IfaceAddr{MTU: verbs.MTU256, QPN: 1}.Append(nil)
		for _, tc := range []struct {
			name       string
			dev, iface []byte
			want       error
		}{
			{"nothing", nil, nil, uct.ErrInvalidAddr},
			{"no iface", dev, nil, uct.ErrInvalidAddr},
			{"short device", dev[:4], addr, uct.ErrInvalidAddr},
			{"smaller MTU", dev, smaller, uct.ErrUnreachable},
		} {
			_, err := a.it.NewEP(uct.EPParams{DeviceAddr: tc.dev, IfaceAddr: tc.iface})
			assert.ErrorIs(t, err, tc.want, tc.name)
			ok, why := a.it.Reachable(tc.dev, tc.iface)
			assert.Equal(t, tc.name == "no iface", ok, "%s: the iface address may be absent", tc.name)
			assert.Equal(t, ok, why == "")
		}
		assert.Empty(t, a.it.core.peers)
	})
}

func TestPeerCloses_InFlight(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b := over.pair(t, Config{}, Config{})
		ab := a.epTo(b)
		ab.send(t, 0)
		until(t, func() bool { return len(b.got) == 1 && ab.c.proto.Unacked() == 0 }, a, b)
		ab.send(t, 1)
		require.NoError(t, b.it.Close())
		arrive(t, func() bool { return len(a.errs) == 1 }, a) // because of a FIN, not of a timeout
		assert.ErrorIs(t, a.errs[0], ucs.ErrPeerClosed)
	})
}

// TestPeerCloses_CompletionClosesTheEP: the failure of an EP that a completion has closed is not
// reported.
func TestPeerCloses_CompletionClosesTheEP(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b := over.pair(t, Config{}, Config{})
		mem := a.alloc()
		ab := a.epTo(b)
		ab.send(t, 0)
		until(t, func() bool { return len(b.got) == 1 && ab.c.proto.Unacked() == 0 }, a, b)
		var st []uct.Status
		_, err := ab.AMZcopy(0, nil, []uct.IOV{{Buf: mem.Bytes()[:64], Mem: mem}}, &uct.Completion{Count: 1, Func: func(c *uct.Completion) {
			st = append(st, c.Status)
			require.NoError(t, ab.Close())
		}})
		require.NoError(t, err)
		arrive(t, a.it.core.drained, a) // the failure of the connection completes the operation
		require.NoError(t, b.it.Close())
		arrive(t, func() bool { return len(st) == 1 }, a)
		progressUntilIdle(a)
		assert.Equal(t, []uct.Status{ucs.StatusPeerClosed}, st)
		assert.Empty(t, a.errs)
	})
}

func TestPeerCloses_Idle(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b := over.pair(t, Config{}, Config{})
		ab := a.epTo(b)
		ab.send(t, 0)
		until(t, func() bool { return len(b.got) == 1 && ab.c.proto.Unacked() == 0 }, a, b)
		require.NoError(t, b.it.Close())
		arrive(t, func() bool { return ab.c.gone }, a)
		assert.Empty(t, a.errs, "no operation waits for the peer")
		assert.ErrorIs(t, ab.AMShort(0, 1, nil), uct.ErrEPFailed)
		assert.Len(t, a.errs, 1)
	})
}

// TestPeerCloses_AllPeersGetFin: an iface with more connections than slots in its send queue sends
// a FIN on each when it closes.
func TestPeerCloses_AllPeersGetFin(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		const depth, conns = 4, 10
		a, b := over.pair(t, Config{TxDepth: depth}, Config{})
		var eps []*EP
		for i := range uint64(conns) {
			e := b.epTo(a)
			e.send(t, i)
			eps = append(eps, e)
		}
		until(t, func() bool {
			return len(a.got) == conns && !slices.ContainsFunc(eps, func(e *EP) bool { return e.c.proto.Unacked() > 0 })
		}, a, b)
		require.NoError(t, a.it.Close())
		arrive(t, func() bool { return !slices.ContainsFunc(eps, func(e *EP) bool { return !e.c.gone }) }, b)
	})
}

func TestPeerCloses_PassiveConnection(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b := over.pair(t, Config{}, Config{})
		ab := a.epTo(b)
		ab.send(t, 0)
		until(t, func() bool { return len(b.got) == 1 }, a, b)
		require.NoError(t, a.it.Close())
		until(t, func() bool { return b.it.core.conns.Len() == 0 }, b)
		assert.Empty(t, b.it.core.peers)
		assert.Empty(t, b.errs)
	})
}

func TestMaxConns(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b := over.pair(t, Config{}, Config{MaxConns: 2})
		for range 3 {
			a.epTo(b).send(t, 0)
		}
		until(t, func() bool { return b.it.core.conns.Len() == 2 }, a, b)
		progressUntilIdle(a, b)
		assert.Equal(t, 2, b.it.core.conns.Len(), "untrusted peers cannot use more")
		_, err := b.it.NewEP(unusedAddr(b))
		assert.ErrorIs(t, err, uct.ErrNoMemory)
	})
}

func TestFault_ReportsFirstError(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b := over.pair(t, Config{}, Config{})
		ab := a.epTo(b)
		ab.send(t, 0)
		until(t, func() bool { return len(b.got) == 1 }, a, b)

		a.it.core.AsyncEvent(verbs.AsyncEvent{Type: verbs.EventSRQLimitReached})
		a.it.core.AsyncEvent(verbs.AsyncEvent{Type: verbs.EventQPFatal, QP: b.it.core.qp})
		progressUntilIdle(a, b)
		assert.Empty(t, a.errs, "no fault of this QP")

		told := make(chan bool)
		go func() { // like the goroutine of the MD
			defer close(told)
			a.it.core.AsyncEvent(verbs.AsyncEvent{Type: verbs.EventQPAccessErr, QP: a.it.core.qp})
			a.it.core.AsyncEvent(verbs.AsyncEvent{Type: verbs.EventDeviceFatal})
		}()
		<-told
		a.it.core.noteFault("completion", verbs.WCWRFlushErr.Err())
		until(t, func() bool { return len(a.errs) > 0 }, a)
		require.Len(t, a.errs, 1)
		assert.ErrorIs(t, a.errs[0], ucs.StatusIOError.Err())
		assert.ErrorContains(t, a.errs[0], "device: asynchronous event 3")
		assert.NotContains(t, a.errs[0].Error(), "completion")
	})
}
