package softhca

import (
	"errors"
	"os"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/guard"
	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/softhca/internal/ring"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// visitor is a QP of a peer that uses only its guard.
type visitor struct {
	*hca
	t    *testing.T
	link *outLink
	slot uint32
	idle uint64
}

func newVisitor(t *testing.T, target *hca) *visitor {
	t.Helper()
	h, err := open(Config{ArenaLen: 1 << 20}, &uarPool{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close()) })
	v := &visitor{hca: h, t: t, link: linked(t, h, target)}
	v.addGuard()
	return v
}

func (v *visitor) addGuard() {
	var ok bool
	v.slot, ok = v.link.reserveGuard()
	require.True(v.t, ok)
}

func (v *visitor) enter(key uint32) { v.idle = v.link.mem.guard(v.slot).enter(key) }
func (v *visitor) leave()           { v.link.mem.guard(v.slot).Leave(v.idle) }

// allocated returns a region in a buffer of h.
func allocated(t *testing.T, h *hca) (buf verbs.Buffer, key uint32) {
	t.Helper()
	buf, err := h.AllocBuffer(3 * pageLen)
	require.NoError(t, err)
	key, _, err = h.RegMR(1, buf.Bytes(), verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	require.NoError(t, err)
	return buf, key
}

// registered returns the key of memory of the caller.
func registered(t *testing.T, h *hca) uint32 {
	t.Helper()
	key, _, err := h.RegMR(1, make([]byte, pageLen), verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	require.NoError(t, err)
	return key
}

// first returns the address of the next buffer.
func first(t *testing.T, h *hca) *byte {
	t.Helper()
	b, err := h.AllocBuffer(3 * pageLen)
	require.NoError(t, err)
	p := &b.Bytes()[0]
	require.NoError(t, b.Close())
	return p
}

// Memory of the device that a stopped peer accesses is in quarantine, and counted, until the visit is
// over or the peer is dead. Deregistration does not wait.
func TestDereg_QuarantinesMemoryInUse(t *testing.T) {
	for name, end := range map[string]func(v *visitor){
		"continues":  (*visitor).leave,
		"next visit": func(v *visitor) { v.leave(); v.enter(5) },
		"dies":       func(v *visitor) { require.NoError(v.t, v.Close()) },
	} {
		t.Run(name, func(t *testing.T) {
			target := openTest(t)
			v := newVisitor(t, target)
			buf, key := allocated(t, target)
			where := &buf.Bytes()[0]
			v.enter(key)
			require.NoError(t, target.DeregMR(key, buf))
			assert.NotSame(t, where, first(t, target))
			assert.EqualValues(t, 3*pageLen, target.Footprint().Kept)
			end(v)
			testenv.ProgressWithin(t, testPatience, func() bool { return first(t, target) == where })
			assert.Zero(t, target.Footprint().Kept)
		})
	}
}

// An access of a peer to one region delays neither the deregistration of other regions nor the
// destruction of QPs that the peer is not connected to.
func TestDereg_DoesNotBlockOtherMemory(t *testing.T) {
	target := openTest(t)
	v := newVisitor(t, target)
	visited := registered(t, target)
	qp := newTestQP(t, target)
	linked(t, target, target)
	v.enter(visited)
	synctest.Test(t, func(t *testing.T) { // time advances only while all goroutines sleep
		start := nanotime()
		for range 100 {
			require.NoError(t, target.DeregMR(registered(t, target), nil))
			buf, key := allocated(t, target)
			require.NoError(t, target.DeregMR(key, buf))
		}
		require.NoError(t, target.DestroyQP(qp.qpn))
		assert.Zero(t, target.Footprint().Kept)
		assert.Equal(t, start, nanotime())
	})
	v.leave()
	v.enter(visited + 1<<8)
	require.NoError(t, target.DeregMR(visited, nil))
	v.leave()
}

// A peer that is stopped in the middle of an access delays the destruction of its QPs only once, for
// visitTimeout; a later access in which it is stopped does so again.
func TestDestroyQP_AwaitsStoppedPeerOnce(t *testing.T) {
	h := openTest(t)
	v := newVisitor(t, h)
	var qps []*queuePair
	for range 20 {
		qp := newTestQP(t, h)
		qp.entry.SetDestGID(v.gid)
		qps = append(qps, qp)
	}
	v.enter(1)
	synctest.Test(t, func(t *testing.T) {
		start := nanotime()
		end := func(qps []*queuePair) {
			for _, qp := range qps {
				require.NoError(t, h.ModifyQP(qp.qpn, &verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPMaskState))
				qp.entry.SetDestGID(v.gid)
				require.NoError(t, h.DestroyQP(qp.qpn))
			}
		}
		end(qps[:10])
		once := nanotime() - start
		assert.GreaterOrEqual(t, once, visitTimeout.Nanoseconds())
		assert.Less(t, once, 2*visitTimeout.Nanoseconds())
		v.leave()
		v.enter(1)
		start = nanotime()
		end(qps[10:])
		assert.Equal(t, once, nanotime()-start)
	})
	v.leave()
	h.owner.Reclaim()
	assert.Empty(t, h.owner.Inside(), "QP numbers in quarantine")
}

// The time during which the process itself is stopped does not count as wait for its peers.
func TestAwait_ProcessStopped(t *testing.T) {
	h := openTest(t)
	v := newVisitor(t, h)
	key := registered(t, h)
	v.enter(key)
	seen := h.visits(key)
	require.Len(t, seen, 1)
	left := make(chan []guard.Visit, 1)
	go func() { left <- h.owner.Await(seen, ucs.RevokeLimit) }()
	checks := func() { // time for some
		for range 500 {
			h.linkMu.Lock()
			runtime.Gosched()
			h.linkMu.Unlock()
			runtime.Gosched()
		}
	}
	checks()
	h.linkMu.Lock() // as if stopped in the middle of a check
	for from := time.Now(); time.Since(from) <= ucs.RevokeLimit; {
		runtime.Gosched()
	}
	h.linkMu.Unlock()
	checks()
	select {
	case <-left:
		require.Fail(t, "Await has not waited")
	default:
	}
	v.leave()
	assert.Empty(t, <-left)
	require.NoError(t, h.DeregMR(key, nil))
}

// The destruction of an XRC SRQ does not wait for a peer in the middle of a message: the SRQ accepts no more
// messages, and can be destroyed when the peer has finished.
func TestDestroyXRCSRQ_DoesNotWait(t *testing.T) {
	h, mem := openTest(t), newXRCRings(t)
	p := &xrcPair{t: t, h: h, mem: mem}
	var err error
	p.xrcdn, err = h.OpenXRCD(verbs.XRCDInitAttr{FD: verbs.PrivateXRCD})
	require.NoError(t, err)
	p.cqn, err = h.CreateCQ(prm.CQParams{Buf: mem.at(pairCQ), Count: 16, DBRec: prm.NewDBRec(mem.at(pairCQRec))})
	require.NoError(t, err)
	p.handle, p.srqn, err = h.CreateXRCSRQ(p.srqParams())
	require.NoError(t, err)
	v := newVisitor(t, h)
	v.idle = v.link.mem.guard(v.slot).enterQueue(p.srqn, 0)
	synctest.Test(t, func(t *testing.T) {
		start := nanotime()
		for range 3 {
			var inUse *ucs.InUseError
			require.ErrorAs(t, p.h.DestroySRQ(p.handle), &inUse)
			assert.Equal(t, []int{os.Getpid()}, inUse.PIDs)
		}
		assert.Equal(t, start, nanotime())
	})
	assert.Zero(t, p.h.table.SRQ(p.srqn).SRQN.Load(), "the SRQ accepts messages")
	v.leave()
	require.NoError(t, h.DestroySRQ(p.handle))
	require.NoError(t, h.DestroyCQ(p.cqn))
	require.NoError(t, h.CloseXRCD(p.xrcdn))
}

// Deregistration of the caller's memory waits for accesses, up to a limit; the error names the peers. The
// key is invalid, the memory is still pinned and can be deregistered again.
func TestDereg_AwaitsAccessToCallersMemory(t *testing.T) {
	target := openTest(t)
	a, b := newVisitor(t, target), newVisitor(t, target)
	key := registered(t, target)
	a.enter(key)
	b.enter(key)
	synctest.Test(t, func(t *testing.T) {
		for range 2 {
			start := nanotime()
			var inUse *ucs.InUseError
			require.ErrorAs(t, target.DeregMR(key, nil), &inUse)
			assert.Equal(t, []int{os.Getpid()}, inUse.PIDs, "both are in this process")
			assert.GreaterOrEqual(t, nanotime()-start, ucs.RevokeLimit.Nanoseconds())
		}
	})
	_, ok := a.link.memory(key, 0, 0, 1, 0)
	assert.False(t, ok, "an access has begun")
	a.leave()
	require.NoError(t, b.Close())
	testenv.ProgressWithin(t, testPatience, func() bool {
		err := target.DeregMR(key, nil)
		return err == nil || !errors.Is(err, ucs.ErrTimedOut)
	})
	assert.ErrorIs(t, target.DeregMR(key, nil), ucs.ErrInvalidParam, "deregistered")
}

// The index of a key is not reused during an access of a peer, which may still read the table entry.
func TestDereg_QuarantinesIndex(t *testing.T) {
	target := openTest(t)
	target.mrIDs.limit = 3 // two indexes
	v := newVisitor(t, target)
	buf, key := allocated(t, target)
	other := registered(t, target)
	v.enter(key)
	require.NoError(t, target.DeregMR(key, buf))
	_, _, err := target.RegMR(1, make([]byte, 8), 0)
	assert.ErrorIs(t, err, ucs.ErrNoMemory)
	v.leave()
	again := registered(t, target)
	assert.Equal(t, key>>8, again>>8)
	require.NoError(t, target.DeregMR(again, nil))
	require.NoError(t, target.DeregMR(other, nil))
}

// After a malformed record the device hangs up the link, but respects the guards of the peer until the
// peer has hung up too. The device can be closed before that.
func TestReject_CountsGuardsUntilPeerIsGone(t *testing.T) {
	target := openTest(t)
	v := newVisitor(t, target)
	key := registered(t, target)
	v.enter(key)
	v.driving.Lock() // so that it does not hang up
	v.link.req.Ctl.Tail.Store(ring.RecordAlign - 1)
	target.call(attnRequest)
	testenv.ProgressWithin(t, testPatience, func() bool { return v.link.state.Load() == linkDown })
	assert.Len(t, target.visits(key), 1)
	v.driving.Unlock()
	testenv.ProgressWithin(t, testPatience, func() bool { return len(*target.inbound.Load()) == 0 })
	require.NoError(t, target.DeregMR(key, nil))
}

func TestReject_DeviceClosesFirst(t *testing.T) {
	target, err := open(Config{ArenaLen: 1 << 20}, &uarPool{})
	require.NoError(t, err)
	v := newVisitor(t, target)
	v.driving.Lock()
	defer v.driving.Unlock()
	v.link.req.Ctl.Tail.Store(ring.RecordAlign - 1)
	target.call(attnRequest)
	testenv.ProgressWithin(t, testPatience, func() bool { return v.link.state.Load() == linkDown })
	require.NoError(t, target.Close())
}
