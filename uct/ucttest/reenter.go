package ucttest

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/uct"
)

var reenterChecks = []check{
	{
		name: "reenter/completion",
		rule: "a completion may close its EP or another one while several completions are ready: each completion fires exactly once, and other EPs continue to work",
		any:  uct.CapAMZcopy | uct.CapPutZcopy | uct.CapGetBcopy | uct.CapGetZcopy | uct.CapAtomic, run: checkCloseInCompletion,
	},
	{
		name: "reenter/handler",
		rule: "a handler of active messages may close EPs that have messages and completions ready",
		any:  uct.CapAM, run: checkCloseInHandler,
	},
	{
		name: "reenter/pending",
		rule: "a pending request may close its EP or another one that has pending requests",
		need: uct.CapPending, run: checkCloseInPending,
	},
	{
		name: "reenter/error",
		rule: "OnError may close the EP that failed, post on others and open EPs",
		need: uct.CapErrRemoteMem, any: uct.CapPut, run: checkCloseInError,
	},
	{
		name: "reenter/progress",
		rule: "Progress of a guarded iface panics if a handler calls it; the iface continues to work",
		any:  uct.CapAM, run: checkProgressInside,
	},
	{
		name: "reenter/open",
		rule: "handlers and completions may open EPs and post on them",
		any:  uct.CapAM, run: checkOpenInHandler,
	},
}

// ready is the maximum number of operations of an EP that complete in one Progress. The queues may accept fewer.
const ready = 4

// answered is an operation with a completion.
type answered struct {
	name string
	post func(p *pair, l *link) error
}

// answeredOps returns all claimed operations with a completion, and flushes.
func answeredOps(a *uct.IfaceAttr) (all []answered) {
	for _, v := range claimedAM(a) {
		if v.cap == uct.CapAMZcopy {
			all = append(all, answered{"am " + v.name, func(p *pair, l *link) error { return v.send(p, l, 3, pattern(1, v.clamp(64))) }})
		}
	}
	for _, x := range accesses(a) {
		all = append(all, answered{x.name, func(p *pair, l *link) error { _, err := x.post(p, l, l.Raddr, l.Key); return err }})
	}
	return append(all,
		answered{"flush", func(p *pair, l *link) error { return p.flushBehind(l, l.EP.Flush) }},
		answered{"iface flush", func(p *pair, l *link) error { return p.flushBehind(l, l.From.Iface.Flush) }},
	)
}

// flushBehind posts an operation and flushes.
func (p *pair) flushBehind(l *link, flush func(*uct.Completion) (bool, error)) error {
	if err := p.post(l, 0); err != nil {
		return err
	}
	c := p.comp(1)
	pending, err := flush(&c.Completion)
	if err != nil || !pending {
		c.expect = 0
	}
	return err
}

// postReady posts op on l up to ready times, until ErrNoResource, and returns the completions.
func (p *pair) postReady(t checkT, l *link, op answered) []*comp {
	t.Helper()
	before := len(p.comps)
	for range ready {
		err := op.post(p, l)
		if err == uct.ErrNoResource {
			break
		}
		require.NoError(t, err, op.name)
	}
	return p.comps[before:len(p.comps):len(p.comps)]
}

// onFirst calls do when the first of the completions fires.
func onFirst(comps []*comp, do func()) {
	done := false
	for _, c := range comps {
		then := c.onFire
		c.onFire = func() {
			if then != nil {
				then()
			}
			if !done {
				done = true
				do()
			}
		}
	}
}

// fired reports whether each completion has fired as often as expected.
func fired(comps []*comp) bool {
	for _, c := range comps {
		if c.fired < c.expect {
			return false
		}
	}
	return true
}

// answer progresses only side s, so that operations complete while the other side does not see it yet.
func (p *pair) answer(s *side) {
	for range idleRounds {
		s.progress()
	}
}

func checkCloseInCompletion(t checkT, p *pair) {
	if p.AB.AM != nil {
		newInbox(t, p.B, 3)
	}
	for _, op := range answeredOps(p.A.Iface.Attr()) {
		for _, victims := range [][]int{{0}, {1}, {0, 1}} {
			p.tryCloseInCompletion(t, op, victims)
		}
	}
	p.works(t, p.AB, "another ep")
}

// tryCloseInCompletion prepares completions of two EPs for one Progress. The first completion closes the EPs in victims.
func (p *pair) tryCloseInCompletion(t checkT, op answered, victims []int) {
	t.Helper()
	var links, backs [2]*link
	var comps []*comp
	for i := range links {
		links[i], backs[i] = p.connect(t, p.A, p.B)
		backs[i].mayFail = true
	}
	p.warm(t, links[:])
	for i := range links {
		comps = append(comps, p.postReady(t, links[i], op)...)
	}
	onFirst(comps, func() {
		for _, i := range victims {
			p.closeLink(t, links[i])
		}
	})
	p.A.Iface.Progress() // sends operations that the iface combined
	p.answer(p.B)
	p.until(t, op.name+": completions did not fire", func() bool { return fired(comps) })
	p.settle()
	for i, c := range comps {
		require.Equal(t, c.expect, c.fired, "%s: completion %d", op.name, i)
	}
	for i := range links {
		p.closeLink(t, links[i])
		p.closeLink(t, backs[i])
	}
}

// warm posts one operation on each EP and flushes, so that the EPs are connected.
func (p *pair) warm(t checkT, links []*link) {
	t.Helper()
	for _, l := range links {
		require.NoError(t, p.push(t, func() error { return p.post(l, 0) }))
		p.flush(t, l)
	}
}

// checkCloseInHandler prepares messages and completions for one Progress of A. The handler of the first message closes
// the EP of the completions.
func checkCloseInHandler(t checkT, p *pair) {
	newInbox(t, p.B, 3)
	v := anyAM(p.A.Iface.Attr())
	for _, op := range answeredOps(p.A.Iface.Attr()) {
		l, back := p.connect(t, p.A, p.B)
		back.mayFail = true
		p.warm(t, []*link{l})
		require.NoError(t, p.A.Iface.SetAMHandler(4, uct.AMHandlerFunc(func([]byte, uct.Desc) bool {
			p.closeLink(t, l)
			return false
		})))
		comps := p.postReady(t, l, op)
		p.pushFrom(t, p.B, func() error { return v.send(p, p.BA, 4, pattern(1, 64)) })
		for range ready {
			_ = v.send(p, back, 4, pattern(2, 64)) // an error if the queue is full
		}
		p.A.Iface.Progress()
		p.answer(p.B)
		p.until(t, op.name+": completions did not fire", func() bool { return fired(comps) && l.EP == nil })
		p.closeLink(t, back)
		p.settle()
	}
	p.works(t, p.AB, "another ep")
}

// checkProgressInside calls Progress of A in a handler of A.
func checkProgressInside(t checkT, p *pair) {
	if !p.A.Iface.Ext().Guarded {
		t.Skipf("the iface is not guarded")
	}
	newInbox(t, p.B, 3)
	inside := 0
	require.NoError(t, p.A.Iface.SetAMHandler(4, uct.AMHandlerFunc(func([]byte, uct.Desc) bool {
		inside++
		assert.PanicsWithValue(t, uct.TwoAtOnce, func() { p.A.Iface.Progress() })
		return false
	})))
	v := anyAM(p.B.Iface.Attr())
	for i := range ready {
		require.NoError(t, p.push(t, func() error { return v.send(p, p.BA, 4, pattern(i, 64)) }))
	}
	p.until(t, "messages did not arrive", func() bool { return inside == ready })
	p.works(t, p.AB, "the iface after that")
}

func checkCloseInPending(t checkT, p *pair) {
	if p.AB.AM != nil {
		newInbox(t, p.B, 3)
	}
	for victim := range 2 {
		var links, backs [2]*link
		for i := range links {
			links[i], backs[i] = p.connect(t, p.A, p.B)
			backs[i].mayFail = true
			p.exhaust(t, links[i], 0)
		}
		closed, late := 0, 0
		for i, l := range links {
			for range ready {
				r := &uct.PendingReq{}
				r.Func = func(*uct.PendingReq) error {
					if i == 0 && closed == 0 {
						closed++
						p.closeLink(t, links[victim])
					} else if links[i].EP == nil {
						late++
					}
					return nil
				}
				if err := l.EP.AddPending(r); err != nil {
					require.Equal(t, uct.ErrBusy, err)
				}
			}
		}
		p.until(t, "a pending request was not dispatched", func() bool { return closed == 1 })
		p.settle()
		require.Zero(t, late, "requests of an ep that was closed were dispatched")
		for i := range links {
			p.closeLink(t, links[i])
			p.closeLink(t, backs[i])
		}
	}
	p.works(t, p.AB, "another ep")
}

func checkCloseInError(t checkT, p *pair) {
	if p.AB.AM != nil {
		newInbox(t, p.B, 3)
	}
	v := claimedPut(p.A.Iface.Attr())[0]
	var links [2]*link
	for i := range links {
		var back *link
		links[i], back = p.connect(t, p.A, p.B)
		links[i].mayFail, back.mayFail = true, true
	}
	failures, fresh := 0, []*link{}
	p.A.onError = func(ep uct.EP, _ error) {
		failures++
		l, _ := p.connect(t, p.A, p.B)
		fresh = append(fresh, l)
		for _, x := range []*link{p.AB, l} {
			if err := p.post(x, failures); err != uct.ErrNoResource {
				require.NoError(t, err, "a post in OnError")
			}
		}
		for _, l := range links {
			if l.EP == ep {
				p.closeLink(t, l)
			}
		}
	}
	for i, l := range links {
		bad := l.Raddr + 2*regionLen
		if p.push(t, func() error { return v.put(p, l, bad, l.Key, pattern(1, v.clamp(8))) }) != nil {
			t.Skipf("the post returns the error: the ep does not fail")
		}
		for range ready {
			_ = p.post(l, i)
		}
	}
	p.until(t, "OnError was not called", func() bool { return failures == len(links) })
	p.settle()
	assert.Equal(t, len(links), failures, "calls of OnError")
	for _, l := range fresh {
		p.works(t, l, "an ep that OnError has opened")
	}
	p.works(t, p.AB, "another ep")
}

// checkOpenInHandler opens EPs in a handler and in a completion, and posts on them.
func checkOpenInHandler(t checkT, p *pair) {
	in := newInbox(t, p.B, 3)
	open := func() {
		_, l := p.connect(t, p.B, p.A) // the last of p.links
		i := len(p.links)
		if err := p.post(l, i); err == uct.ErrNoResource {
			p.queue(t, l, i, func(*waiting) {})
		} else {
			require.NoError(t, err)
		}
	}
	require.NoError(t, p.A.Iface.SetAMHandler(4, uct.AMHandlerFunc(func([]byte, uct.Desc) bool {
		open()
		return false
	})))
	v := anyAM(p.B.Iface.Attr())
	require.NoError(t, p.push(t, func() error { return v.send(p, p.BA, 4, pattern(1, 64)) }))
	p.expect(t, in, "an ep that a handler has opened", pattern(len(p.links)+2, 64)) // both links of it are new
	for _, op := range answeredOps(p.A.Iface.Attr()) {
		comps := p.postReady(t, p.AB, op)
		opened := false
		onFirst(comps, func() {
			opened = true
			open()
		})
		p.until(t, op.name+": completions did not fire", func() bool { return fired(comps) })
		p.settle()
		if opened {
			p.works(t, p.links[len(p.links)-1], op.name+": an ep that a completion has opened")
		}
	}
}
