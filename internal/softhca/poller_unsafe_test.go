package softhca

import (
	"unsafe"

	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/attach"
	"github.com/gucx/gucx/internal/softhca/internal/ring"
	"github.com/gucx/gucx/internal/softhca/internal/table"
	"github.com/gucx/gucx/internal/sparse"
	"github.com/gucx/gucx/internal/testenv"
)

// TestEngine_PollsForSleepingCaller: after a caller has armed a CQ, the engine does not wait for a tick,
// although it finds that a caller has polled.
func TestEngine_PollsForSleepingCaller(t *testing.T) {
	h := openTest(t)
	qp := newTestQP(t, h)
	testenv.ProgressWithin(t, testPatience, func() bool { return isAsleep(h.ctl.sleeping.Load()) })
	h.armCQ(uint64(qp.sendCQ.cqn))
	assert.True(t, h.pollerLeft.Load(), "the engine reads it when it is woken")

	idle := &hca{ctl: new(control)} // the test is its engine
	idle.pollerLeft.Store(true)
	idle.watch()
	assert.Zero(t, idle.ctl.attention.Load()&attnProbe, "the engine has waited for a poller")
	assert.False(t, idle.pollerLeft.Load())
	idle.watch()
	assert.NotZero(t, idle.ctl.attention.Load()&attnProbe, "the engine has not waited for a poller")
}

// TestEngine_DoesNotRunTimersWhileDriven: a timer that has expired since the last Drive shortens the sleep
// of the engine. If park removed it from the list, the engine would have no reason to wake up, and the
// QP would not run.
func TestEngine_DoesNotRunTimersWhileDriven(t *testing.T) {
	waiting := func(until int64) *queuePair {
		qp := new(queuePair)
		qp.wakeAt.Store(until)
		return qp
	}
	qp := waiting(nanotime())
	idle := &hca{ctl: new(control), timed: []*queuePair{waiting(nanotime() + time.Hour.Nanoseconds()), qp}}
	assert.Equal(t, time.Microsecond, idle.untilTimer())
	assert.Empty(t, idle.runList)
	assert.Len(t, idle.timed, 2)
	assert.NotZero(t, idle.fireTimers(), "the other timer remains")
	assert.Equal(t, []*queuePair{qp}, idle.runList)
	assert.Greater(t, idle.untilTimer(), time.Minute)
}

// TestDrive_WakesEngineForRemainingWork: one call of Drive does a bounded amount of
// work. If the engine has gone to sleep meanwhile, Drive wakes it for the rest.
func TestDrive_WakesEngineForRemainingWork(t *testing.T) {
	fd, written := newWake(t)
	woken := func() bool { return written() > 0 }
	h := &hca{ctl: new(control), wakeFD: fd, qps: qpTable{sparse.New[queuePair](table.MaxQP)}}
	send, requests := newRing()
	answers, _ := newRing()
	h.setOutbound(nil)
	h.setInbound([]*inLink{{hca: h, ctl: new(control), req: *requests, resp: *answers}})
	for range drainBatch + 1 {
		pkt := send.Reserve(0)
		pkt.Op = ring.OpDatagram // to no QP: dropped
		send.Publish(pkt)
	}
	h.ctl.attention.Store(attnRequest)
	h.ctl.sleeping.Store(1)
	h.Drive()
	assert.EqualValues(t, attnRequest, h.ctl.attention.Load())
	assert.True(t, woken())
	h.Drive()
	assert.Zero(t, h.ctl.attention.Load())
	assert.False(t, woken(), "no work remains")
}

// newWake returns the write end of a pipe, and a function that returns the number of wake-ups since its last call.
func newWake(t *testing.T) (fd int, written func() int) {
	w, err := attach.NewWaker()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	return w.WakeFD(), func() int {
		var b [64]byte
		n, _ := unix.Read(w.FD(), b[:]) // EAGAIN: nothing was written
		return max(n, 0)
	}
}

// TestCall_WakesOncePerSleep: the pipe is written once for each sleep of the engine, whatever the number of
// calls before the engine runs. A late write for the previous sleep does not count for the next.
func TestCall_WakesOncePerSleep(t *testing.T) {
	fd, written := newWake(t)
	ctl := new(control)
	call(ctl, fd, attnRequest)
	assert.Zero(t, written(), "the engine is awake")
	ctl.sleeping.Store(1)
	for range 3 {
		call(ctl, fd, attnRequest)
	}
	assert.EqualValues(t, 1, written())
	ctl.sleeping.Store(3)
	wakeOnce(ctl, fd, 1)
	assert.EqualValues(t, 1, written(), "late, for the previous sleep")
	call(ctl, fd, attnRequest)
	assert.EqualValues(t, 1, written())
	assert.False(t, isAsleep(ctl.sleeping.Load()))
}

// TestAwaitRoom_DoesNotWaitOnDownLink: a QP that finds a full ring after the waiting QPs were released, as
// the link is down, does not begin to wait.
func TestAwaitRoom_DoesNotWaitOnDownLink(t *testing.T) {
	send, _ := newRing()
	for send.Reserve(ring.MaxPayload) != nil {
		send.Publish(send.Reserve(ring.MaxPayload))
	}
	l := &outLink{req: *send}
	l.state.Store(linkUp)
	qp := new(queuePair)
	assert.Equal(t, stepWait, qp.awaitRoom(l))
	assert.Equal(t, []*queuePair{qp}, l.blocked)
	l.state.Store(linkDown)
	late := new(queuePair)
	assert.Equal(t, stepAgain, late.awaitRoom(l))
	assert.NotContains(t, l.blocked, late)
}

// newRing creates both sides of a ring in new memory.
func newRing() (*ring.Producer, *ring.Consumer) {
	base := unsafe.Pointer(&make([]uint64, ring.Span/8)[0])
	p, c := ring.NewProducer(base), ring.NewConsumer(base)
	return &p, &c
}
