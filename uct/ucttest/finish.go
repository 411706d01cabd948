package ucttest

import (
	"github.com/stretchr/testify/assert"

	"github.com/gucx/gucx/uct"
)

// comp is a completion that counts its firings.
type comp struct {
	uct.Completion
	fired  int
	expect int    // how often it must have fired at the end of the check
	onFire func() // may be nil
}

// comp makes a completion of n operations. At the end of the check it must have
// fired exactly once; a check whose operations were not pending sets expect to 0.
func (p *pair) comp(n int) *comp {
	c := &comp{expect: 1}
	c.Count = n
	c.Func = func(*uct.Completion) {
		c.fired++
		if p.posting {
			p.complain("a completion fired before the posting call had returned")
		}
		if c.onFire != nil {
			c.onFire()
		}
	}
	p.comps = append(p.comps, c)
	return c
}

// complain reports a fault that was found where no checkT is at hand.
func (p *pair) complain(format string, args ...any) { p.t.Errorf(format, args...) }

// finish ends a check that got through: all EPs that work flush, nothing is left
// waiting, no completion fires or is completed twice, and everything closes without complaint.
func (p *pair) finish(t checkT) {
	t.Helper()
	for _, l := range p.links {
		p.drainLink(t, l)
	}
	p.settle()
	p.close(t)
	for _, c := range p.comps {
		if c.fired != c.expect {
			t.Errorf("a completion fired %d times, want %d", c.fired, c.expect)
		}
		if c.Count < 0 {
			t.Errorf("Complete was called %d times more than a completion has operations", -c.Count)
		}
	}
	for _, buf := range p.gone {
		if !untouched(buf) {
			t.Errorf("the buffer of a bcopy get was written after its completion")
			break
		}
	}
}

func (p *pair) drainLink(t checkT, l *link) {
	t.Helper()
	if l.EP == nil {
		return
	}
	l.EP.PurgePending(func(*uct.PendingReq) { t.Errorf("%s: a pending request was left", l.From.Name) })
	if l.failed || l.mayFail {
		return
	}
	p.flush(t, l)
	for _, e := range l.From.Errors {
		if e.EP == l.EP {
			t.Errorf("%s: OnError: %v", l.From.Name, e.Err)
		}
	}
}

// flush waits for the remote completion of everything on l.
func (p *pair) flush(t checkT, l *link) {
	t.Helper()
	p.until(t, l.From.Name+": flush", func() bool {
		pending, err := l.EP.Flush(nil)
		if err != nil && err != uct.ErrNoResource {
			t.Errorf("%s: flush: %v", l.From.Name, err)
			return true
		}
		return err == nil && !pending
	})
}

// close closes whatever is open: EPs, ifaces, keys, memory, domains.
func (p *pair) close(t checkT) {
	t.Helper()
	if p.shut {
		return
	}
	p.shut = true
	for _, l := range p.links {
		p.closeLink(t, l)
	}
	for _, s := range p.sides {
		if s.Iface != nil {
			assert.NoError(t, s.Iface.Close(), "%s: close iface", s.Name)
		}
	}
	for _, k := range p.keys {
		k.md.Ext().Keys.ReleaseRKey(k.key)
	}
	for _, m := range p.mems {
		assert.NoError(t, m.Close(), "close memory")
	}
	for i := len(p.sides) - 1; i >= 0; i-- {
		if s := p.sides[i]; s.ownsMD {
			assert.NoError(t, s.MD.Close(), "%s: close md", s.Name)
		}
	}
}

func (p *pair) closeLink(t checkT, l *link) {
	t.Helper()
	if l.EP == nil {
		return
	}
	l.EP.PurgePending(func(*uct.PendingReq) {})
	assert.NoError(t, l.EP.Close(), "%s: close ep", l.From.Name)
	assert.NoError(t, l.EP.Close(), "%s: close ep again", l.From.Name)
	l.EP = nil
}
