package ucttest

import (
	"runtime"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

var aliveChecks = []check{
	{
		name: "check/alive",
		rule: "Check of a live peer completes at once, or fires once with StatusOK: on a new EP, on an idle EP, and after other operations",
		run:  checkAlive,
	},
	{
		name: "check/device",
		rule: "with CapCheckDevice Check of a peer that makes no progress fires with StatusOK",
		need: uct.CapCheckDevice, run: checkDevice,
	},
	{
		name: "peer/check",
		rule: "Check of a dead peer returns an error or completes with one, and the EP fails",
		need: uct.CapErrPeer, opts: Options{PeerDies: true}, run: checkPeerChecked,
	},
	{
		name: "peer/idle",
		rule: "with CapErrPeerIdle OnError reports the death of a peer on an idle EP",
		need: uct.CapErrPeer | uct.CapErrPeerIdle, opts: Options{PeerDies: true}, run: checkPeerIdle,
	},
}

// alive posts one Check and returns its completion, which expects no call if Check completed at once.
func (p *pair) alive(t checkT, l *link) *comp {
	t.Helper()
	c := p.comp(1)
	require.NoError(t, p.push(t, func() error {
		pending, err := l.EP.Ops().Check.Check(&c.Completion)
		if !pending {
			c.expect = 0
		} else {
			c.expect = 1
		}
		return err
	}), "check")
	return c
}

func checkAlive(t checkT, p *pair) {
	if p.AB.EP.Ops().Check == nil {
		t.Skipf("the ep has no Check")
	}
	if p.AB.AM != nil {
		newInbox(t, p.B, 3)
	}
	fresh, _ := p.connect(t, p.A, p.B)
	for _, l := range []*link{fresh, p.AB} {
		for posts := range 3 {
			for i := range posts {
				require.NoError(t, p.push(t, func() error { return p.post(l, i) }))
			}
			for range 3 {
				c := p.alive(t, l)
				p.until(t, "check did not end", func() bool { return c.fired == c.expect })
				assert.Equal(t, ucs.StatusOK, c.Status)
			}
		}
	}
}

func checkDevice(t checkT, p *pair) {
	l, _ := p.connect(t, p.A, p.B)
	c := p.alive(t, l)
	for w := p.h.patience(1); c.fired < c.expect; {
		if n := p.A.Iface.Progress(); w.spent(n) {
			require.Fail(t, "the device of the peer does not reply", "no event in %d rounds", w.idle)
		} else if n == 0 {
			runtime.Gosched()
		}
	}
	assert.Equal(t, ucs.StatusOK, c.Status)
}

func checkPeerChecked(t checkT, p *pair) {
	f := p.startPeer(t)
	if f.l.EP.Ops().Check == nil {
		t.Skipf("the ep has no Check")
	}
	c := p.alive(t, f.l)
	p.eventually(t, "check did not end", func() bool { return c.fired == c.expect })
	assert.Equal(t, ucs.StatusOK, c.Status, "while it lives")
	f.l.failed = true
	require.NoError(t, f.Kill())
	var err error
	p.eventually(t, "the transport does not detect the death of the peer", func() bool {
		if c.fired < c.expect {
			return false // a Check is outstanding; its completion has the result
		}
		c = p.comp(1)
		var pending bool
		pending, err = f.l.EP.Ops().Check.Check(&c.Completion)
		if !pending {
			c.expect = 0
		}
		return err != nil && err != uct.ErrNoResource
	})
	assert.ErrorIs(t, err, uct.ErrEPFailed)
	p.oneFailure(t, f.l, died...)
	p.closeLink(t, f.l)
	assert.NoError(t, f.Close())
	p.works(t, p.AB, "another ep")
}

func checkPeerIdle(t checkT, p *pair) {
	p.dieIdle(t, func(f *far, t checkT) {
		p.eventually(t, "OnError was not called for an idle ep", func() bool { return p.failures(f.l) > 0 })
		p.refuses(t, f.l, "to a dead peer")
	})
}
