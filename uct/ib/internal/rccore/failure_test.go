package rccore

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/internal/ibtest"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// comps creates completions that record their status.
type comps struct{ ended []uct.Status }

func (c *comps) get() *uct.Completion {
	return &uct.Completion{Count: 1, Func: func(d *uct.Completion) { c.ended = append(c.ended, d.Status) }}
}

func TestFailure_BadKey(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b, ab, _ := over.pair(t, Config{})
		other, _ := join(t, a, b)
		bad := b.key ^ 0xff00
		iov := []uct.IOV{{Buf: a.mem.Bytes()[:64], Mem: a.mem}}
		var c comps
		for _, key := range []uct.RKey{b.key, bad, b.key} {
			pending, err := ab.PutZcopy(iov, b.mem.Addr(), key, c.get())
			require.NoError(t, err)
			require.True(t, pending)
		}
		pending, err := ab.Flush(c.get())
		require.NoError(t, err)
		require.True(t, pending)
		until(t, func() bool { return len(c.ended) == 4 }, a, b)
		assert.Equal(t, []uct.Status{
			ucs.StatusOK,           // before the failed operation
			ucs.StatusRemoteAccess, // the failed operation
			ucs.StatusCanceled,     // after it
			ucs.StatusRemoteAccess, // a flush covers all operations before it
		}, c.ended)

		require.Len(t, a.errs, 1)
		assert.Equal(t, []uct.EP{ab.EP}, a.failed)
		assert.ErrorIs(t, a.errs[0], uct.ErrEPFailed)
		assert.ErrorIs(t, a.errs[0], ucs.ErrRemoteAccess)
		assert.ErrorIs(t, ab.PutShort([]byte{1}, b.mem.Addr(), b.key), uct.ErrEPFailed)
		_, err = ab.Flush(nil)
		assert.ErrorIs(t, err, uct.ErrEPFailed)
		assert.ErrorIs(t, ab.AddPending(&uct.PendingReq{Func: func(*uct.PendingReq) error { return nil }}), uct.ErrEPFailed)
		assert.ErrorIs(t, ab.Fence(), uct.ErrEPFailed)

		require.NoError(t, other.PutShort([]byte{7}, b.mem.Addr(), b.key))
		flush(t, other, a)
		assert.Equal(t, byte(7), b.mem.Bytes()[0], "other endpoints go on")

		until(t, func() bool { return len(b.errs) == 1 }, b) // by an asynchronous event
		assert.ErrorIs(t, b.errs[0], ucs.ErrIO)
	})
}

// Operations on a QP that the device has moved to ERR complete with the cause of the event, also if
// they are flushed before it arrives.
func TestFailure_FlushedBeforeTheEvent(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b, ab, ba := over.pair(t, Config{})
		var c comps
		require.NoError(t, ab.PutShort([]byte{1}, b.mem.Addr(), uct.RKey(1)))
		_, err := ab.Flush(c.get())
		require.NoError(t, err)
		until(t, func() bool { return len(c.ended) == 1 }, a) // the QP of b is then in ERR
		iov := []uct.IOV{{Buf: b.mem.Bytes()[:64], Mem: b.mem}}
		for range 2 {
			_, err := ba.PutZcopy(iov, a.mem.Addr(), a.key, c.get())
			require.NoError(t, err)
		}
		until(t, func() bool { return len(c.ended) == 3 }, b)
		assert.Equal(t, []uct.Status{ucs.StatusIOError, ucs.StatusIOError}, c.ended[1:])
		require.Len(t, b.errs, 1)
		assert.ErrorIs(t, b.errs[0], ucs.ErrIO)
	})
}

func TestFailure_ShortPut(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b, ab, _ := over.pair(t, Config{})
		var c comps
		require.NoError(t, ab.PutShort([]byte{1}, b.mem.Addr(), uct.RKey(1)))
		pending, err := ab.Flush(c.get())
		require.NoError(t, err)
		require.True(t, pending)
		until(t, func() bool { return len(c.ended) == 1 }, a)
		assert.Equal(t, ucs.StatusRemoteAccess, c.ended[0], "the put has no completion to tell it by")
	})
}

func TestFailure_FailsPendingRequests(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b, ab, _ := over.pair(t, Config{FCWindow: 2, RxDepth: 64})
		for ab.AMShort(0, 0, nil) == nil {
		}
		var got []error
		for range 3 {
			require.NoError(t, ab.AddPending(&uct.PendingReq{Func: func(*uct.PendingReq) error {
				err := ab.AMShort(0, 0, nil)
				got = append(got, err)
				return err
			}}))
		}
		a.it.core.fail(ab.core, ucs.StatusConnReset, errors.New("test"))
		until(t, func() bool { return len(got) == 3 }, a, b)
		for _, err := range got {
			assert.ErrorIs(t, err, uct.ErrEPFailed)
		}
	})
}

// A peer that has not connected acknowledges nothing.
func TestClose_CancelsInFlight(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		md := over.newMD(t)
		a, b := over.newSide(t, md, Config{}), over.newSide(t, md, Config{})
		ab, ba := a.newEP(t), b.newEP(t)
		require.NoError(t, ab.Connect(b.it.DeviceAddr(nil), ba.EPAddr(nil)))
		iov := []uct.IOV{{Buf: a.mem.Bytes()[:64], Mem: a.mem}}
		var c comps
		var result uint64
		got := make([]byte, 8)
		post := func(f func() (bool, error)) {
			pending, err := f()
			require.NoError(t, err)
			require.True(t, pending)
		}
		post(func() (bool, error) { return ab.PutZcopy(iov, b.mem.Addr(), b.key, c.get()) })
		post(func() (bool, error) { return ab.GetBcopy(got, b.mem.Addr(), b.key, c.get()) })
		post(func() (bool, error) {
			return ab.AtomicFetch(uct.AtomicAdd, 8, 1, &result, b.mem.Addr(), b.key, c.get())
		})
		for range 100 { // more work requests after it, mostly unsignaled
			require.NoError(t, ab.PutShort([]byte{1}, b.mem.Addr(), b.key))
		}
		post(func() (bool, error) { return ab.Flush(c.get()) })
		require.NoError(t, ab.Close())
		require.NoError(t, ab.Close(), "idempotent")
		assert.ErrorIs(t, ab.PutShort(nil, 0, b.key), uct.ErrClosed)
		until(t, func() bool { return len(c.ended) == 4 }, a)
		for i, st := range c.ended {
			assert.Equal(t, ucs.StatusCanceled, st, "%d", i)
		}
		assert.Equal(t, make([]byte, 8), got)
		until(t, func() bool { return a.it.core.closing.Len() == 0 }, a)
		assert.Empty(t, a.errs, "a closed endpoint does not fail")
		assert.Equal(t, defaultTxCQDepth, a.it.core.cqFree)
		assert.Equal(t, a.it.core.ops.total, a.it.core.ops.freeCount)
		assert.Equal(t, defaultTxBuffers, a.it.core.tx.Free())
		assert.Zero(t, a.it.core.eps.n)
	})
}

func TestClose_InCompletion(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b, ab, _ := over.pair(t, Config{})
		iov := []uct.IOV{{Buf: a.mem.Bytes()[:8], Mem: a.mem}}
		fired := 0
		for range 4 {
			c := &uct.Completion{Count: 1, Func: func(*uct.Completion) { fired++; require.NoError(t, ab.Close()) }}
			_, err := ab.PutZcopy(iov, b.mem.Addr(), b.key, c)
			require.NoError(t, err)
		}
		until(t, func() bool { return fired == 4 && a.it.core.closing.Len() == 0 }, a)
	})
}

func TestClose_IfaceCompletesOperations(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		md := over.newMD(t)
		a, b := over.newSide(t, md, Config{}), over.newSide(t, md, Config{})
		ab, ba := a.newEP(t), b.newEP(t)
		require.NoError(t, ab.Connect(b.it.DeviceAddr(nil), ba.EPAddr(nil)))
		var c comps
		iov := []uct.IOV{{Buf: a.mem.Bytes()[:64], Mem: a.mem}}
		_, err := ab.PutZcopy(iov, b.mem.Addr(), b.key, c.get())
		require.NoError(t, err)
		require.NoError(t, a.it.Close())
		assert.Equal(t, []uct.Status{ucs.StatusCanceled}, c.ended)
		_, err = a.it.NewEP(uct.EPParams{})
		assert.ErrorIs(t, err, uct.ErrClosed)
	})
}

func TestConnect_RejectsInvalid(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		md := over.newMD(t)
		a, b := over.newSide(t, md, Config{}), over.newSide(t, md, Config{})
		ep, peer := a.newEP(t), b.newEP(t)
		dev, addr := b.it.DeviceAddr(nil), peer.EPAddr(nil)
		assert.ErrorIs(t, ep.Connect(dev[:3], addr), uct.ErrInvalidAddr)
		assert.ErrorIs(t, ep.Connect(dev, addr[:3]), uct.ErrInvalidAddr)
		far := append([]byte(nil), dev...)
		far[1], far[3] = 1, 1 // InfiniBand, LID 1
		assert.ErrorIs(t, ep.Connect(far, addr), uct.ErrUnreachable)
		small := over.newSide(t, md, Config{SegSize: 1 << 10})
		assert.ErrorIs(t, ep.Connect(dev, small.newEP(t).EPAddr(nil)), uct.ErrInvalidParam)
		assert.ErrorIs(t, ep.PutShort(nil, 0, b.key), ucs.ErrInvalidState, "not connected")
		assert.ErrorIs(t, ep.AMShort(0, 0, nil), ucs.ErrInvalidState)
		require.NoError(t, ep.Connect(dev, addr))
		assert.ErrorIs(t, ep.Connect(dev, addr), ucs.ErrInvalidState)
		_, err := a.it.NewEP(uct.EPParams{DeviceAddr: dev})
		assert.ErrorIs(t, err, uct.ErrUnsupported)
	})
}

func TestReachable(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b, _, _ := over.pair(t, Config{})
		dev := b.it.DeviceAddr(nil)
		ok, why := a.it.Reachable(dev, nil)
		assert.True(t, ok, why)
		for _, tc := range []struct{ dev, iface []byte }{
			{nil, nil}, {dev[:5], nil}, {dev, []byte{1}}, {append(dev, 1), nil},
		} {
			ok, why := a.it.Reachable(tc.dev, tc.iface)
			assert.False(t, ok)
			assert.NotEmpty(t, why)
		}
	})
}

// A loop device reaches only itself, a shm device the whole host.
func TestReachable_OtherDevices(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		for _, tc := range []struct {
			fabric softhca.Fabric
			want   bool
		}{{softhca.FabricLoop, false}, {softhca.FabricShm, true}} {
			var ifaces []uct.IfaceAddresser
			for range 2 {
				md, err := ibtest.OpenMD(tc.fabric, over.Transport)
				require.NoError(t, err)
				it, err := md.OpenIface(uct.IfaceParams{Transport: over.Name(), Device: "dev:1"})
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, errors.Join(it.Close(), md.Close())) })
				ifaces = append(ifaces, it.Ext().Address)
			}
			ok, why := ifaces[0].Reachable(ifaces[1].DeviceAddr(nil), nil)
			assert.Equal(t, tc.want, ok, why)
		}
	})
}

// An event of a closed QP does not affect another QP that has got its number. Here both exist, on
// two devices.
func TestFailure_IgnoresEventOfClosedQP(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b, ab, _ := over.pair(t, Config{})
		_, _, other, _ := over.pair(t, Config{})
		require.Equal(t, ab.core.QPN, other.core.QPN)
		a.it.core.AsyncEvent(verbs.AsyncEvent{Type: verbs.EventQPFatal, QP: other.core.link.(*QPLink).QP})
		require.NoError(t, ab.PutShort([]byte{1}, b.mem.Addr(), b.key))
		flush(t, ab, a)
		progressUntilIdle(a)
		assert.Empty(t, a.errs)
		a.it.core.AsyncEvent(verbs.AsyncEvent{Type: verbs.EventQPFatal, QP: ab.core.link.(*QPLink).QP})
		until(t, func() bool { return len(a.errs) == 1 }, a)
	})
}

// Only the iface of a QP gets the events of the QP. Other ifaces of the domain get none, so they
// need not handle any.
func TestEvents_GoToTheIfaceOfTheQP(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b, ab, _ := over.pair(t, Config{})
		var others []*side
		for range 4 { // in a map: probably one of them is before b
			others = append(others, over.newSide(t, a.md, Config{}))
		}
		pending, err := ab.PutZcopy([]uct.IOV{{Buf: a.mem.Bytes()[:8], Mem: a.mem}}, b.mem.Addr(), b.key^0xff00, new(comps).get())
		require.NoError(t, err)
		require.True(t, pending)
		until(t, func() bool { return len(b.errs) == 1 }, a, b)
		a.md.Subscribe(b.it.core) // a second Subscribe waits until the event is delivered to all
		for _, o := range others {
			assert.False(t, o.it.EventPending())
			assert.False(t, testenv.Readable(t, o.it.EventFD(), 0))
			assert.Empty(t, o.it.core.async)
		}
	})
}

func TestErrors_SayWho(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b, ab, _ := over.pair(t, Config{})
		require.NoError(t, ab.PutShort([]byte{1}, b.mem.Addr(), 0))
		until(t, func() bool { return len(a.errs) == 1 }, a)
		assert.Contains(t, a.errs[0].Error(), fmt.Sprintf("%s dev:1: qp %#x: ", over.Name(), ab.core.QPN))
		assert.Contains(t, a.errs[0].Error(), "remote access error")
	})
}
