package ucttest

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

var closeChecks = []check{
	{
		name: "close/in-flight",
		rule: "operations in flight at Close of the EP complete with StatusCanceled, each once; those that were done keep their status",
		any:  uct.CapAMZcopy | uct.CapPutZcopy | uct.CapGetBcopy | uct.CapGetZcopy, run: checkCloseInFlight,
	},
	{
		name: "close/pending",
		rule: "an EP whose requests were purged closes with its queues full, and other EPs go on",
		need: uct.CapPending, run: checkCloseFull,
	},
	{
		name: "close/in-handler",
		rule: "handlers run inside Progress; one of them may close another EP",
		any:  uct.CapAM, run: checkCloseInHandler,
	},
	{
		name: "close/peer",
		rule: "when the peer closes, operations end, once each: done or with an error",
		need: uct.CapErrPeer, any: uct.CapAM, run: checkPeerCloses,
	},
}

// zcopies posts operations with completions on l until resources are short, and
// returns their completions.
func (p *Pair) zcopies(t T, l *Link) []*comp {
	t.Helper()
	var posts []func() error
	a := l.From.Iface.Attr()
	for _, v := range claimedAM(a) {
		if v.cap == uct.CapAMZcopy {
			posts = append(posts, func() error { return v.send(p, l, 3, pattern(1, v.clamp(64))) })
		}
	}
	for _, x := range accesses(a) {
		posts = append(posts, func() error { _, err := x.post(p, l, l.Raddr, l.Key); return err })
	}
	before := len(p.comps)
	for i := range exhaustLimit {
		err := posts[i%len(posts)]()
		if err == uct.ErrNoResource {
			break
		}
		require.NoError(t, err)
		if i == 64 { // more than queues hold; or operations that complete at once
			break
		}
	}
	return p.comps[before:]
}

func checkCloseInFlight(t T, p *Pair) {
	if p.AB.AM != nil {
		newInbox(t, p.B, 3)
	}
	for round := range 5 {
		l, back := p.connect(t, p.A, p.B)
		back.mayFail = true // its peer vanishes
		all := p.zcopies(t, l)
		for range round { // close at different points of their life
			p.round()
		}
		fl := p.comp(1)
		if pending, err := l.EP.Flush(&fl.Completion); err != nil || !pending {
			fl.expect = 0
		}
		require.NoError(t, l.EP.Close())
		all = append(all[:len(all):len(all)], fl)
		p.until(t, "operations did not end after Close", func() bool {
			for _, c := range all {
				if c.fired < c.expect {
					return false
				}
			}
			return true
		})
		p.closeLink(t, l)
		p.closeLink(t, back)
		p.settle()
		for i, c := range all {
			assert.Equal(t, c.expect, c.fired, "round %d: completion %d", round, i)
			if c.fired > 0 {
				assert.Contains(t, []uct.Status{ucs.StatusOK, ucs.StatusCanceled}, c.Status, "round %d: completion %d", round, i)
			}
		}
	}
	p.works(t, p.AB, "another ep")
}

func checkCloseFull(t T, p *Pair) {
	if p.AB.AM != nil {
		newInbox(t, p.B, 3)
	}
	l, back := p.connect(t, p.A, p.B)
	back.mayFail = true
	p.exhaust(t, l, 0)
	var r uct.PendingReq
	r.Func = func(*uct.PendingReq) error { return uct.ErrNoResource }
	require.NoError(t, l.EP.AddPending(&r))
	p.closeLink(t, l) // purges
	p.settle()
	p.closeLink(t, back)
	p.works(t, p.AB, "another ep")
}

func checkCloseInHandler(t T, p *Pair) {
	victim, back := p.connect(t, p.B, p.A)
	back.mayFail = true
	closed := 0
	require.NoError(t, p.B.Iface.SetAMHandler(3, uct.AMHandlerFunc(func([]byte, uct.Desc) bool {
		p.closeLink(t, victim)
		closed++
		return false
	})))
	require.NoError(t, p.push(t, func() error { return p.post(p.AB, 1) }))
	p.until(t, "no message", func() bool { return closed == 1 })
	p.settle()
	p.works(t, p.BA, "another ep")
}

// checkPeerCloses closes the iface C, to which A is connected.
func checkPeerCloses(t T, p *Pair) {
	c := p.open(t, "C", p.B)
	l, back := p.connect(t, p.A, c)
	l.mayFail = true
	in := newInbox(t, c, 3)
	require.NoError(t, p.push(t, func() error { return p.post(l, 0) }))
	p.until(t, "no message", func() bool { return len(in.msgs) == 1 })
	p.flush(t, l)
	p.flush(t, back)
	p.closeLink(t, back)
	require.NoError(t, c.Iface.Close())
	c.Iface = nil
	fl := p.comp(1)
	posted := p.post(l, 1)
	if pending, err := l.EP.Flush(&fl.Completion); posted != nil || err != nil || !pending {
		fl.expect = 0
	}
	p.eventually(t, "an operation to a peer that has closed did not end", func() bool { return fl.fired == fl.expect })
	p.closeLink(t, l)
	p.works(t, p.AB, "another ep")
}
