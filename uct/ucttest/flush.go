package ucttest

import (
	"bytes"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

var flushChecks = []check{
	{
		name: "flush/idle",
		rule: "Flush returns (false, nil) when everything posted is complete at the target",
		run:  checkFlushIdle,
	},
	{
		name: "flush/put",
		rule: "when Flush completes, the data of earlier puts is in the target's memory; its completion fires once",
		any:  uct.CapPut, run: checkFlushPut,
	},
	{
		name: "flush/am",
		rule: "a flush after messages completes once, also under backpressure",
		any:  uct.CapAM, run: checkFlushAM,
	},
	{
		name: "flush/iface",
		rule: "Iface.Flush is EP.Flush over all EPs of the iface",
		any:  uct.CapPut, run: checkFlushIface,
	},
}

func checkFlushIdle(t checkT, p *pair) {
	for _, l := range []*link{p.AB, p.BA} {
		c := &comp{}
		c.Count = 1
		c.Func = func(*uct.Completion) { t.Errorf("a flush that was not pending fired its completion") }
		p.settle()
		pending, err := l.EP.Flush(&c.Completion)
		assert.NoError(t, err)
		assert.False(t, pending)
		pending, err = l.From.Iface.Flush(&c.Completion)
		assert.NoError(t, err)
		assert.False(t, pending)
		p.settle()
		assert.Equal(t, 1, c.Count)
	}
}

// flushWith flushes with a completion and checks that it fires once. It calls atFire when the completion fires.
func (p *pair) flushWith(t checkT, flush func(*uct.Completion) (bool, error), atFire func()) {
	t.Helper()
	c := p.comp(1)
	c.onFire = atFire
	require.NoError(t, p.push(t, func() error {
		pending, err := flush(&c.Completion)
		if err == nil && !pending {
			c.expect = 0
			atFire()
		} else if c.fired > 0 {
			t.Errorf("the completion fired before the call had returned")
		}
		return err
	}))
	p.until(t, "the flush did not end", func() bool { return c.fired == c.expect })
	assert.Equal(t, ucs.StatusOK, c.Status)
}

func checkFlushPut(t checkT, p *pair) {
	target := p.B.Mem.Bytes()
	for i, v := range claimedPut(p.A.Iface.Attr()) {
		n := min(v.clamp(30000), regionLen)
		data := pattern(i, n)
		for _, mode := range []string{"poll", "completion"} {
			scribble(target[:n])
			require.NoError(t, p.push(t, func() error { return v.put(p, p.AB, p.AB.Raddr, p.AB.Key, data) }))
			there := func() {
				assert.True(t, bytes.Equal(data, target[:n]), "put %s: flush by %s was complete before the bytes were there", v.name, mode)
			}
			if mode == "completion" {
				p.flushWith(t, p.AB.EP.Flush, there)
				continue
			}
			p.flush(t, p.AB)
			there()
		}
	}
}

func checkFlushAM(t checkT, p *pair) {
	in := newInbox(t, p.B, 3)
	v := anyAM(p.A.Iface.Attr())
	const rounds, each = 20, 10
	for round := range rounds {
		for i := range each {
			require.NoError(t, p.push(t, func() error { return v.send(p, p.AB, 3, pattern(round*each+i, 64)) }))
		}
		p.flushWith(t, p.AB.EP.Flush, func() {})
	}
	p.arrivals(t, in, rounds*each)
}

func checkFlushIface(t checkT, p *pair) {
	const links, slot = 4, 4096
	v := claimedPut(p.A.Iface.Attr())[0]
	n := min(v.clamp(64), slot)
	var eps []*link
	for range links {
		l, _ := p.connect(t, p.A, p.B)
		eps = append(eps, l)
	}
	target := p.B.Mem.Bytes()
	for round := range 10 {
		scribble(target[:links*slot])
		for k, l := range eps {
			require.NoError(t, p.push(t, func() error {
				return v.put(p, l, l.Raddr+uint64(k*slot), l.Key, pattern(links*round+k, n))
			}))
		}
		there := func() {
			for k := range eps {
				assert.Equal(t, pattern(links*round+k, n), target[k*slot:k*slot+n], "iface flush ended before the put of ep %d", k)
			}
		}
		if round%2 == 0 {
			p.flushWith(t, p.A.Iface.Flush, there)
			continue
		}
		p.until(t, "the iface flush did not end", func() bool {
			pending, err := p.A.Iface.Flush(nil)
			return err == nil && !pending
		})
		there()
	}
}
