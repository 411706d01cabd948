package ucttest

import (
	"fmt"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/uct"
)

var pendingChecks = []check{
	{
		name: "pending/busy",
		rule: "AddPending is ErrBusy while the EP has resources, and ErrInvalidParam for a request that is queued",
		need: uct.CapPending, run: checkPendingBusy,
	},
	{
		name: "pending/fifo",
		rule: "after ErrNoResource queued requests are dispatched from Progress, once each, in order; direct posts do not overtake them",
		need: uct.CapPending, run: checkPendingFIFO,
	},
	{
		name: "pending/refused-stays-first",
		rule: "a request whose post returns ErrNoResource remains first in the queue and is called again",
		need: uct.CapPending, run: checkPendingAgain,
	},
	{
		name: "pending/fair",
		rule: "EPs take turns in the dispatch of pending requests",
		// The receive queue is large, so that the receiver never delays a sender.
		need: uct.CapPending, opts: Options{RxDepth: 2048}, run: checkPendingFair,
	},
	{
		name: "pending/requeue",
		rule: "a request may queue itself again while it is dispatched",
		need: uct.CapPending, run: checkPendingRequeue,
	},
	{
		name: "pending/purge",
		rule: "PurgePending removes all queued requests and calls f with each, in order",
		need: uct.CapPending, run: checkPendingPurge,
	},
}

// exhaustLimit is the number of posts without ErrNoResource after which a check is skipped.
const exhaustLimit = 1 << 14

// post posts message i on l, of 64 bytes, or a put of up to 8 bytes if the transport has no messages.
func (p *pair) post(l *link, i int) error {
	a := l.From.Iface.Attr()
	if l.AM != nil {
		return anyAM(a).send(p, l, 3, pattern(i, 64))
	}
	v := claimedPut(a)[0]
	return v.put(p, l, l.Raddr, l.Key, pattern(i, v.clamp(8)))
}

// exhaust posts on l until ErrNoResource and returns the number of successful posts. It skips the check after
// exhaustLimit posts.
func (p *pair) exhaust(t checkT, l *link, from int) int {
	t.Helper()
	for i := range exhaustLimit {
		err := p.post(l, from+i)
		if err == uct.ErrNoResource {
			return i
		}
		require.NoError(t, err)
	}
	t.Skipf("no ErrNoResource in %d posts", exhaustLimit)
	return 0
}

// waiting is a pending request that posts message i.
type waiting struct {
	uct.PendingReq
	i     int
	calls int
	done  bool
}

// queue adds a pending request that posts message i on l. It calls log when the post succeeds.
func (p *pair) queue(t checkT, l *link, i int, log func(*waiting)) *waiting {
	t.Helper()
	w := &waiting{i: i}
	w.Func = func(*uct.PendingReq) error {
		w.calls++
		if w.done {
			p.complain("request %d was dispatched again", i)
			return nil
		}
		err := p.post(l, i)
		if err == nil {
			w.done = true
			log(w)
		} else if err != uct.ErrNoResource {
			p.complain("request %d: %v", i, err)
		}
		return err
	}
	require.NoError(t, l.EP.AddPending(&w.PendingReq), "add request %d", i)
	return w
}

func checkPendingBusy(t checkT, p *pair) {
	var r uct.PendingReq
	r.Func = func(*uct.PendingReq) error { t.Errorf("a refused request was dispatched"); return nil }
	assert.Equal(t, uct.ErrBusy, p.AB.EP.AddPending(&r))
	p.AB.EP.PurgePending(func(*uct.PendingReq) { t.Errorf("a refused request was queued") })
	if p.AB.AM != nil {
		newInbox(t, p.B, 3)
	}
	p.exhaust(t, p.AB, 0)
	w := p.queue(t, p.AB, 1, func(*waiting) {})
	assert.ErrorIs(t, p.AB.EP.AddPending(&w.PendingReq), uct.ErrInvalidParam, "queued twice")
	p.until(t, "the request was not dispatched", func() bool { return w.done })
}

// arrivals checks that exactly the messages 0..n-1 arrived in order.
func (p *pair) arrivals(t checkT, in *inbox, n int) {
	t.Helper()
	if in == nil {
		return
	}
	p.until(t, "not all messages arrived", func() bool { return len(in.msgs) >= n })
	p.settle()
	require.Len(t, in.msgs, n)
	for i, msg := range in.msgs {
		require.Equal(t, pattern(i, 64), msg, "message %d", i)
	}
}

func (p *pair) inbox(t checkT) *inbox {
	t.Helper()
	if p.AB.AM == nil {
		return nil
	}
	return newInbox(t, p.B, 3)
}

func checkPendingFIFO(t checkT, p *pair) {
	const count = 20
	in := p.inbox(t)
	sent := p.exhaust(t, p.AB, 0)
	var order []int
	var last *waiting
	for i := range count {
		last = p.queue(t, p.AB, sent+i, func(w *waiting) { order = append(order, w.i) })
	}
	assert.Empty(t, order, "a request ran inside AddPending")
	p.until(t, "requests were not dispatched", func() bool {
		if !last.done {
			if err := p.post(p.AB, -1); err != uct.ErrNoResource {
				t.Errorf("a direct post overtook pending requests: %v", err)
				return true
			}
		}
		return last.done
	})
	for i := range count {
		require.Less(t, i, len(order))
		assert.Equal(t, sent+i, order[i], "dispatched at place %d", i)
	}
	assert.NoError(t, p.push(t, func() error { return p.post(p.AB, sent+count) }))
	p.arrivals(t, in, sent+count+1)
}

func checkPendingAgain(t checkT, p *pair) {
	in := p.inbox(t)
	sent := p.exhaust(t, p.AB, 0)
	refuse, done := true, false
	r := &uct.PendingReq{}
	r.Func = func(*uct.PendingReq) error {
		if refuse {
			return uct.ErrNoResource
		}
		err := p.post(p.AB, sent)
		done = err == nil
		return err
	}
	require.NoError(t, p.AB.EP.AddPending(r))
	second := p.queue(t, p.AB, sent+1, func(*waiting) { assert.True(t, done, "overtook the first request") })
	p.settle() // the EP has resources again, and the requests are still pending
	assert.Equal(t, uct.ErrNoResource, p.post(p.AB, -1), "a direct post while requests wait")
	refuse = false
	// The iface dispatches requests only after a new event.
	other, _ := p.connect(t, p.A, p.B)
	p.until(t, "a refused request was not called again", func() bool {
		if !done {
			p.postUnseen(t, other)
		}
		return done && second.done
	})
	p.arrivals(t, in, sent+2)
}

// postUnseen posts a message on l that has no handler, or a put.
func (p *pair) postUnseen(t checkT, l *link) {
	t.Helper()
	var err error
	if l.AM != nil {
		err = anyAM(l.From.Iface.Attr()).send(p, l, 9, pattern(0, 64))
	} else {
		err = p.post(l, 0)
	}
	if err != uct.ErrNoResource {
		require.NoError(t, err)
	}
}

// fairTries is the number of attempts of the fairness check. One failure is allowed, because an EP may wait for an
// event of its own, such as the retransmission of a lost ACK.
const fairTries = 3

func checkPendingFair(t checkT, p *pair) {
	in := p.inbox(t)
	var eps [fairLinks]*link
	for k := range eps {
		eps[k], _ = p.connect(t, p.A, p.B)
	}
	var starved string
	for range fairTries {
		if starved = p.tryFair(t, &eps, in); starved == "" {
			return
		}
		t.Logf("%s", starved)
	}
	t.Errorf("%d times of %d: %s", fairTries, fairTries, starved)
}

const fairLinks = 4

// tryFair queues many requests on each EP. It returns a description of the EP that starved, or "".
func (p *pair) tryFair(t checkT, eps *[fairLinks]*link, in *inbox) string {
	t.Helper()
	const each = 128
	var done, atFirstEnd [fairLinks]int
	ended, total := false, 0
	if in != nil {
		in.msgs = nil
	}
	for k, l := range eps {
		total += p.exhaust(t, l, 0) + each
		for i := range each {
			p.queue(t, l, i, func(*waiting) {
				done[k]++
				if done[k] == each && !ended {
					ended, atFirstEnd = true, done
				}
			})
		}
	}
	p.until(t, "requests were not dispatched", func() bool { return done == [fairLinks]int{each, each, each, each} })
	if in != nil {
		p.until(t, "not all messages arrived", func() bool { return len(in.msgs) == total })
		sent := map[string]bool{}
		for i := range total {
			sent[string(pattern(i, 64))] = true
		}
		for _, msg := range in.msgs {
			require.True(t, sent[string(msg)], "a message that nobody sent: %x", msg)
		}
	}
	for k, n := range atFirstEnd {
		if n < each/4 {
			return fmt.Sprintf("ep %d starved: %v requests done when the first ep had none left", k, atFirstEnd)
		}
	}
	return ""
}

func checkPendingRequeue(t checkT, p *pair) {
	const count = 50
	in := p.inbox(t)
	sent := p.exhaust(t, p.AB, 0)
	next := sent
	r := &uct.PendingReq{}
	r.Func = func(*uct.PendingReq) error {
		for next < sent+count {
			if err := p.post(p.AB, next); err != nil {
				if err == uct.ErrNoResource && next%2 == 0 {
					return err // the request remains first
				}
				if err = p.AB.EP.AddPending(r); err == uct.ErrBusy {
					continue
				}
				return err // the request has queued itself
			}
			next++
		}
		return nil
	}
	require.NoError(t, p.AB.EP.AddPending(r))
	p.until(t, "the request was not dispatched again", func() bool { return next == sent+count })
	p.arrivals(t, in, sent+count)
}

func checkPendingPurge(t checkT, p *pair) {
	const count = 10
	in := p.inbox(t)
	sent := p.exhaust(t, p.AB, 0)
	var reqs [count]uct.PendingReq
	for i := range reqs {
		reqs[i].Func = func(*uct.PendingReq) error { t.Errorf("a purged request was dispatched"); return nil }
		require.NoError(t, p.AB.EP.AddPending(&reqs[i]))
	}
	n := 0
	p.AB.EP.PurgePending(func(r *uct.PendingReq) {
		if n >= count || r != &reqs[n] {
			t.Errorf("purged out of order at %d", n)
		}
		n++
	})
	assert.Equal(t, count, n)
	p.AB.EP.PurgePending(func(*uct.PendingReq) { t.Errorf("purged twice") })
	assert.NoError(t, p.push(t, func() error { return p.post(p.AB, sent) }))
	p.arrivals(t, in, sent+1)
}
