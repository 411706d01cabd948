package ucttest

import (
	"errors"
	"slices"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

var closeChecks = []check{
	{
		name: "close/in-flight",
		rule: "operations in flight at Close of the EP complete with StatusCanceled, each once; the status of complete operations does not change",
		any:  uct.CapAMZcopy | uct.CapPutZcopy | uct.CapGetBcopy | uct.CapGetZcopy, run: checkCloseInFlight,
	},
	{
		name: "close/pending",
		rule: "an EP whose pending requests were purged can be closed while its queues are full, and other EPs continue to work",
		need: uct.CapPending, run: checkCloseFull,
	},
	{
		name: "close/peer",
		rule: "when the peer's iface is closed, operations to it complete once each, with StatusOK or StatusPeerClosed; the EP fails with ErrPeerClosed, at the next post at the latest",
		need: uct.CapErrPeer, any: uct.CapAM, run: checkPeerCloses,
	},
}

// zcopies posts zero-copy operations on l until ErrNoResource, and returns their completions.
func (p *pair) zcopies(t checkT, l *link) []*comp {
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
		if i == 64 { // the operations complete at once and never fill the queues
			break
		}
	}
	return p.comps[before:]
}

func checkCloseInFlight(t checkT, p *pair) {
	if p.AB.AM != nil {
		newInbox(t, p.B, 3)
	}
	for round := range 5 {
		l, back := p.connect(t, p.A, p.B)
		back.mayFail = true // its peer closes
		all := p.zcopies(t, l)
		for range round { // close after a different number of rounds
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

func checkCloseFull(t checkT, p *pair) {
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

// checkPeerCloses closes iface C while A has operations to it in flight.
func checkPeerCloses(t checkT, p *pair) {
	c := p.open(t, "C", p.B)
	l, back := p.connect(t, p.A, c)
	l.mayFail = true
	in := newInbox(t, c, 3)
	require.NoError(t, p.push(t, func() error { return p.post(l, 0) }))
	p.expect(t, in, "before the close", pattern(0, 64))
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
	assert.Contains(t, []uct.Status{ucs.StatusOK, ucs.StatusPeerClosed}, fl.Status, "flush to a peer that has closed: %v", fl.Status.Err())
	var err error
	p.eventually(t, "an ep to a peer that has closed takes work", func() bool {
		err = p.post(l, 1)
		return err != nil && err != uct.ErrNoResource
	})
	assert.ErrorIs(t, err, uct.ErrEPFailed, "a post to a peer that has closed")
	assert.ErrorIs(t, err, uct.ErrPeerClosed, "a post to a peer that has closed")
	p.eventually(t, "OnError was not called", func() bool { return p.failures(l) > 0 })
	p.oneFailure(t, l, uct.ErrPeerClosed)
	p.closeLink(t, l)
	p.works(t, p.AB, "another ep")
}

// oneFailure checks that OnError was called once for l, with one of the reasons and a text of one line.
func (p *pair) oneFailure(t checkT, l *link, reasons ...error) {
	t.Helper()
	p.settle()
	require.Equal(t, 1, p.failures(l), "calls of OnError")
	for _, e := range l.From.Errors {
		if e.EP != l.EP {
			continue
		}
		is := func(reason error) bool { return errors.Is(e.Err, reason) }
		assert.True(t, slices.ContainsFunc(reasons, is), "OnError: %v; want one of %v", e.Err, reasons)
		assert.NotContains(t, e.Err.Error(), "\n", "an error is one line")
	}
}
