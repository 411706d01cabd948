package xrccore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/guard"
	"github.com/gucx/gucx/internal/timelimit"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/internal/ibtest"
	"github.com/gucx/gucx/uct/ib/internal/rccore"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// shallow has a small completion queue, so that it overruns early. Each poll returns at most one completion: the poll
// that finds the queue empty also detects the error.
var shallow = Config{
	Config:       rccore.Config{TxDepth: 32, TxCQDepth: 64, RxDepth: 16, MaxPoll: 1, Timeout: time.Hour},
	QueueCQDepth: 2 * maxQueueConns,
}

// overrun makes the completion queue of the side overrun. It destroys the QPs that it creates for that, with their
// completions, so that the iface can be closed.
func (s *side) overrun(t *testing.T) {
	require.True(t, t.Run("overrun", func(t *testing.T) { ibtest.Overrun(t, s.it.MD(), s.it.VerbsCQ()) }))
}

// wantCQFailure checks that n EPs have failed, each once, because of the error of the completion queue.
func (s *side) wantCQFailure(t *testing.T, n int) {
	t.Helper()
	require.Len(t, s.errs, n)
	for _, err := range s.errs {
		assert.ErrorIs(t, err, uct.ErrEPFailed)
		assert.ErrorIs(t, err, ucs.ErrIO)
		assert.ErrorContains(t, err, "the completion queue has failed")
	}
}

// statusList contains the statuses of completed operations.
type statusList []ucs.Status

// completion returns a completion that appends its status to e, each time it is called.
func (e *statusList) completion() *uct.Completion {
	c := &uct.Completion{Count: 1}
	c.Func = func(*uct.Completion) { *e, c.Count = append(*e, c.Status), 1 }
	return c
}

// completionInReset is completion for an operation on a QP. The completion checks that the QP is in RESET: the device
// no longer uses the memory of the operation.
func (e *statusList) completionInReset(t *testing.T, qp *verbs.QP) *uct.Completion {
	c := &uct.Completion{Count: 1}
	c.Func = func(*uct.Completion) {
		*e, c.Count = append(*e, c.Status), 1
		assert.Equal(t, verbs.QPStateReset, qp.State())
	}
	return c
}

// wantIOErr checks that n operations have completed, all with StatusIOError.
func (e statusList) wantIOErr(t *testing.T, n int) {
	t.Helper()
	require.Len(t, e, n)
	for i, st := range e {
		assert.Equal(t, ucs.StatusIOError, st, "completion %d", i)
	}
}

// TestCQError_CompletesSends: after an error of the completion queue of the sender, its sends to queues complete with
// ErrIO, posted and unposted ones, and so does an outstanding Recall.
func TestCQError_CompletesSends(t *testing.T) {
	onFabrics(t, func(t *testing.T, fabric softhca.Fabric) {
		a, b := connected(t, fabric, shallow)
		up, recalled := b.newQueue(t, 1, 64), b.newQueue(t, 1, 64)
		c, r := a.attach(t, up.Number()), a.attach(t, recalled.Number())
		for _, q := range []*queue{up, recalled} {
			q.post(t, 0)
		}
		for _, sender := range []uct.QueueConn{c, r} {
			s := a.send(t, sender, 0, 8, 1)
			until(t, func() bool { return s.ended }, a, b)
		}
		until(t, func() bool { return len(up.got)+len(recalled.got) == 2 }, b)
		held := a.attach(t, up.Number()) // stays unconnected: the peer makes no progress until the end of the test
		a.overrun(t)

		var ended statusList
		for _, sender := range []uct.QueueConn{c, c, r, held} {
			pending, err := sender.SendZcopy(a.iov(0, 8), ended.completionInReset(t, sender.(*conn).qp))
			require.NoError(t, err)
			require.True(t, pending)
		}
		pending, err := r.Recall(ended.completion())
		require.NoError(t, err)
		require.True(t, pending)
		until(t, func() bool { return len(ended) == 5 }, a)
		ended.wantIOErr(t, 5)
		a.wantCQFailure(t, 1)
		_, err = c.SendZcopy(a.iov(0, 8), ended.completion())
		assert.ErrorIs(t, err, uct.ErrEPFailed)
		require.NoError(t, c.Detach())
		require.NoError(t, held.Detach())
		require.NoError(t, a.ep.Close())
		until(t, func() bool { return a.it.closing == 0 && !a.it.deferred() }, a)
		assert.Zero(t, a.it.conns.live)
		ended.wantIOErr(t, 5)
	})
}

// TestCQError_CompletesReceives: after an error of the completion queue, the receives of queues complete in order with
// ErrIO, and the device rejects messages to the queues.
func TestCQError_CompletesReceives(t *testing.T) {
	onFabrics(t, func(t *testing.T, fabric softhca.Fabric) {
		a, b := connected(t, fabric, shallow)
		q, stopping := b.newQueue(t, 8, 64), b.newQueue(t, 8, 64)
		c := a.attach(t, q.Number())
		q.post(t, 0)
		first := a.send(t, c, 0, 8, 1)
		until(t, func() bool { return first.ended && len(q.got) == 1 }, a, b)
		b.overrun(t)
		var order []int
		var statuses statusList
		var again []error
		for i := range 6 {
			to := []*queue{q, stopping}[i%2]
			r := &uct.QueueRecv{}
			r.Func = func(r *uct.QueueRecv) {
				order, statuses = append(order, i), append(statuses, r.Status)
				again = append(again, to.Post(r, b.iov(0, 64)))
			}
			require.NoError(t, to.Post(r, b.iov(0, 64)))
		}
		require.NoError(t, guard.AwaitUse(stopping.Stop))
		until(t, func() bool { return len(order) >= 6 }, b)
		statuses.wantIOErr(t, 6)
		assert.Equal(t, []int{0, 2, 4}, evens(order))
		for _, err := range again {
			assert.ErrorIs(t, err, ucs.ErrIO, "a receive that is posted again")
		}
		b.wantCQFailure(t, 1)
		assert.EqualValues(t, 1, q.Received())
		_, err := b.ep.NewQueue(1)
		assert.ErrorIs(t, err, ucs.ErrIO)
		_, err = b.it.NewEP(uct.EPParams{})
		assert.ErrorIs(t, err, ucs.ErrIO)
		require.NoError(t, q.Stop())
		until(t, func() bool { return !b.it.deferred() }, b)

		if a.ep.Ready() { // a has not detected the failure yet
			s := a.send(t, c, 0, 8, 2)
			until(t, func() bool { return s.ended }, a, b)
			assert.NotEqual(t, ucs.StatusOK, s.Status, "the receiver cannot complete the receive")
		}
		require.NoError(t, q.Close())
		require.NoError(t, stopping.Close())
		statuses.wantIOErr(t, 6)
		assert.Equal(t, b.it.cfg.QueueCQDepth, b.it.cqFree)
	})
}

// evens returns the even numbers of a list.
func evens(all []int) (list []int) {
	for _, i := range all {
		if i%2 == 0 {
			list = append(list, i)
		}
	}
	return list
}

// TestCQError_CompletesReceivesWithoutEPs: receives complete also if the iface has no EP that fails, and if only an
// event reports the error.
func TestCQError_CompletesReceivesWithoutEPs(t *testing.T) {
	s := newSide(t, softhca.FabricLoop, shallow)
	q := s.newQueue(t, 2, 64)
	require.NoError(t, s.ep.Close())
	q.post(t, 0)
	q.post(t, 1)
	until(t, func() bool { return !s.it.deferred() }, s)
	for s.it.Arm(uct.EventRecv) == uct.ErrBusy {
		s.it.Progress()
	}
	s.it.AsyncEvent(verbs.AsyncEvent{Type: verbs.EventCQErr, CQ: s.it.VerbsCQ()})
	require.True(t, s.it.EventPending())
	until(t, func() bool { return len(q.status) == 2 }, s)
	statusList(q.status).wantIOErr(t, 2)
	require.NoError(t, q.Close())
	statusList(q.status).wantIOErr(t, 2)
}

// TestCQError_CloseDoesNotWait: after an error of the completion queue, Close of the iface completes the outstanding
// sends and receives and does not wait for a timeout.
func TestCQError_CloseDoesNotWait(t *testing.T) {
	for _, cfg := range []Config{shallow, inDomain(shallow)} {
		onFabrics(t, func(t *testing.T, fabric softhca.Fabric) {
			a, b := connected(t, fabric, cfg)
			theirs, own := b.newQueue(t, 1, 64), a.newQueue(t, 2, 64)
			theirs.post(t, 0)
			c := a.attach(t, theirs.Number())
			s := a.send(t, c, 0, 8, 1)
			until(t, func() bool { return s.ended }, a, b)
			own.post(t, 0)
			own.post(t, 1)
			a.overrun(t)
			var ended statusList
			for range 2 {
				_, err := c.SendZcopy(a.iov(0, 8), ended.completion())
				require.NoError(t, err)
			}
			var message statusList
			_, err := a.ep.AMZcopy(testAM, nil, a.iov(0, 8), message.completion())
			require.NoError(t, err)
			limit := timelimit.New(closeTimeout)
			require.NoError(t, a.it.Close())
			assert.False(t, limit.Over(), "Close must not wait for completions that cannot arrive")
			ended.wantIOErr(t, 2)
			statusList(own.status).wantIOErr(t, 2)
			assert.Equal(t, statusList{ucs.StatusCanceled}, message, "the EP is closed before the error is detected")
		})
	}
}

// TestCQError_DropsLateCompletion: a completion that arrives after the last poll and before the error belongs to a
// receive that the error completes; it is dropped.
func TestCQError_DropsLateCompletion(t *testing.T) {
	a, b := connected(t, softhca.FabricShm, shallow)
	q := b.newQueue(t, 2, 64)
	q.post(t, 0)
	q.post(t, 1)
	c := a.attach(t, q.Number())
	first := a.send(t, c, 0, 8, 1)
	until(t, func() bool { return first.ended && len(q.got) == 1 }, a, b)
	second := a.send(t, c, 0, 8, 2)
	until(t, func() bool { return second.ended }, a)
	b.it.HandleCQError()
	require.Equal(t, 1, b.it.completeDrained(false))
	until(t, func() bool { return b.it.Progress() == 0 && !b.it.deferred() }, b)
	assert.Equal(t, []ucs.Status{ucs.StatusOK, ucs.StatusIOError}, q.status)
	require.NoError(t, c.Detach())
	require.NoError(t, q.Close())
}

// TestCQError_CallbackClosesQueue: the callback of a receive closes the other queue, which completes the receive of
// that queue.
func TestCQError_CallbackClosesQueue(t *testing.T) {
	s := newSide(t, softhca.FabricLoop, shallow)
	queues := []*queue{s.newQueue(t, 1, 64), s.newQueue(t, 1, 64)}
	var ended statusList
	for i, q := range queues {
		require.NoError(t, q.Post(&uct.QueueRecv{Func: func(r *uct.QueueRecv) {
			ended = append(ended, r.Status)
			require.NoError(t, queues[1-i].Close())
		}}, s.iov(0, 64)))
	}
	s.overrun(t)
	until(t, func() bool { return len(ended) == 2 && !s.it.deferred() }, s)
	require.NoError(t, queues[0].Close())
	ended.wantIOErr(t, 2)
	assert.Zero(t, s.it.queues.live)
}
