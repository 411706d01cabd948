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
		rule: "when Flush is complete, what was put before is in the target's memory; its completion fires once",
		any:  uct.CapPut, run: checkFlushPut,
	},
	{
		name: "flush/am",
		rule: "a flush behind messages ends once, with backpressure too",
		any:  uct.CapAM, run: checkFlushAM,
	},
	{
		name: "flush/iface",
		rule: "Iface.Flush is EP.Flush over all EPs of the iface",
		any:  uct.CapPut, run: checkFlushIface,
	},
	{
		name: "fence/put-am",
		rule: "after a fence a message takes effect after the puts before it",
		any:  uct.CapPut, run: checkFencePutAM,
	},
	{
		name: "fence/put-put",
		rule: "after a fence a put takes effect after the puts before it, whatever their variants",
		any:  uct.CapPut, run: checkFencePutPut,
	},
	{
		name: "fence/put-atomic",
		rule: "after a fence an atomic takes effect after the puts before it, and a get after the atomic",
		any:  uct.CapPut, need: uct.CapAtomic64, run: checkFencePutAtomic,
	},
	{
		name: "fence/iface",
		rule: "Iface.Fence is EP.Fence over all EPs of the iface",
		any:  uct.CapPut, run: checkFenceIface,
	},
}

func checkFlushIdle(t T, p *Pair) {
	for _, l := range []*Link{p.AB, p.BA} {
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

// flushWith flushes by a completion and checks that it fires once.
func (p *Pair) flushWith(t T, flush func(*uct.Completion) (bool, error), atFire func()) {
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

func checkFlushPut(t T, p *Pair) {
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

func checkFlushAM(t T, p *Pair) {
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

func checkFlushIface(t T, p *Pair) {
	const links, slot = 4, 4096
	v := claimedPut(p.A.Iface.Attr())[0]
	n := min(v.clamp(64), slot)
	var eps []*Link
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

// fenced pushes a fence.
func (p *Pair) fenced(t T, fence func() error) {
	t.Helper()
	require.NoError(t, p.push(t, fence), "fence")
}

func checkFencePutAM(t T, p *Pair) {
	if p.AB.AM == nil {
		t.Skipf("no active messages")
	}
	target := p.B.Mem.Bytes()
	v := anyAM(p.A.Iface.Attr())
	var data []byte
	arrived := 0
	require.NoError(t, p.B.Iface.SetAMHandler(3, uct.AMHandlerFunc(func([]byte, uct.Desc) bool {
		arrived++
		assert.True(t, bytes.Equal(data, target[:len(data)]), "message %d was delivered before the put took effect", arrived)
		return false
	})))
	for i, put := range claimedPut(p.A.Iface.Attr()) {
		data = pattern(i, min(put.clamp(50000), regionLen))
		scribble(target)
		require.NoError(t, p.push(t, func() error { return put.put(p, p.AB, p.AB.Raddr, p.AB.Key, data) }))
		p.fenced(t, p.AB.EP.Fence)
		require.NoError(t, p.push(t, func() error { return v.send(p, p.AB, 3, pattern(i, 64)) }))
		p.until(t, "no message", func() bool { return arrived == i+1 })
	}
}

func checkFencePutPut(t T, p *Pair) {
	target := p.B.Mem.Bytes()
	variants := claimedPut(p.A.Iface.Attr())
	for i, first := range variants {
		for k, second := range variants {
			n := max(first.clamp(40), second.clamp(40))
			if n > min(first.max, second.max) {
				continue
			}
			a, b := pattern(2*i, n), pattern(2*k+1, n)
			require.NoError(t, p.push(t, func() error { return first.put(p, p.AB, p.AB.Raddr, p.AB.Key, a) }))
			p.fenced(t, p.AB.EP.Fence)
			require.NoError(t, p.push(t, func() error { return second.put(p, p.AB, p.AB.Raddr, p.AB.Key, b) }))
			p.flush(t, p.AB)
			assert.Equal(t, b, target[:n], "put %s, fence, put %s", first.name, second.name)
		}
	}
}

func checkFencePutAtomic(t T, p *Pair) {
	fetch := atomicVariant{uct.AtomicAdd, 8, true}
	if !fetch.in(&p.A.Iface.Attr().Atomic) || p.AB.Get == nil {
		t.Skipf("no fetching addition or no get")
	}
	put, get := claimedPut(p.A.Iface.Attr())[0], claimedGet(p.A.Iface.Attr())[0]
	if put.clamp(8) != 8 || get.clamp(8) != 8 {
		t.Skipf("no put and get of 8 bytes")
	}
	for i := range 50 {
		var start [8]byte
		setWord(start[:], 8, uint64(1000*i))
		require.NoError(t, p.push(t, func() error { return put.put(p, p.AB, p.AB.Raddr, p.AB.Key, start[:]) }))
		p.fenced(t, p.AB.EP.Fence)
		call, op := &atomicCall{}, &getOp{n: 8}
		require.NoError(t, p.push(t, func() error { return fetch.post(p, p.AB, p.AB.Raddr, p.AB.Key, 0, 7, call) }))
		p.fenced(t, p.AB.EP.Fence)
		require.NoError(t, p.push(t, func() error { return get.get(p, p.AB, p.AB.Raddr, p.AB.Key, op) }))
		p.until(t, "no completion", func() bool { return call.done && op.done })
		assert.EqualValues(t, 1000*i, call.result, "the atomic ran before the put")
		assert.EqualValues(t, 1000*i+7, word(op.data, 8), "the get ran before the atomic")
	}
}

func checkFenceIface(t T, p *Pair) {
	v := claimedPut(p.A.Iface.Attr())[0]
	n := v.clamp(8)
	for i := range 20 {
		require.NoError(t, p.push(t, func() error { return v.put(p, p.AB, p.AB.Raddr, p.AB.Key, pattern(i, n)) }))
		p.fenced(t, p.A.Iface.Fence)
		require.NoError(t, p.push(t, func() error { return v.put(p, p.AB, p.AB.Raddr, p.AB.Key, pattern(1000+i, n)) }))
		p.flush(t, p.AB)
		assert.Equal(t, pattern(1000+i, n), p.B.Mem.Bytes()[:n])
	}
}
