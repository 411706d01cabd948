package ucttest

import (
	"math/rand/v2"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/uct"
)

var orderChecks = []check{
	{
		name: "order/variants",
		rule: "messages of one EP arrive in order, once each, whatever their variants and lengths",
		any:  uct.CapAM, run: checkOrderVariants,
	},
	{
		name: "order/endpoints",
		rule: "the messages of each EP of an iface arrive in order",
		any:  uct.CapAM, run: checkOrderEndpoints,
	},
}

func checkOrderVariants(t checkT, p *pair) {
	const count = 400
	in := newInbox(t, p.B, 3)
	rng := rand.New(rand.NewPCG(7, 7))
	variants := claimedAM(p.A.Iface.Attr())
	var want [][]byte
	for i := range count {
		v := variants[rng.IntN(len(variants))]
		n := v.clamp(8 + rng.IntN(1<<rng.IntN(14)))
		msg := pattern(i, n)
		require.NoError(t, p.push(t, func() error { return v.send(p, p.AB, 3, msg) }), "am %s of %d bytes", v.name, n)
		want = append(want, msg)
	}
	p.until(t, "not all messages arrived", func() bool { return len(in.msgs) >= count })
	p.settle()
	p.expect(t, in, "mixed variants", want...)
}

func checkOrderEndpoints(t checkT, p *pair) {
	const links, each = 3, 100
	v := anyAM(p.A.Iface.Attr())
	var boxes [links]*inbox
	var eps [links]*link
	for k := range links {
		eps[k], _ = p.connect(t, p.A, p.B)
		boxes[k] = newInbox(t, p.B, uint8(k))
	}
	for i := range each {
		for k, l := range eps {
			require.NoError(t, p.push(t, func() error { return v.send(p, l, uint8(k), pattern(i, 64)) }))
		}
	}
	for k, in := range boxes {
		p.until(t, "not all messages arrived", func() bool { return len(in.msgs) >= each })
		for i, msg := range in.msgs {
			require.Equal(t, pattern(i, 64), msg, "ep %d message %d", k, i)
		}
	}
}

var descChecks = []check{
	{
		name: "desc/kept",
		rule: "the handler owns a retained descriptor until Release; messages that arrive before do not change its data",
		any:  uct.CapAM, run: checkKept,
	},
	{
		name: "desc/all-kept",
		rule: "retained descriptors reduce the receive queue: senders wait, and no message is lost",
		any:  uct.CapAM, run: checkAllKept,
	},
}

// keeper is a handler that retains descriptors and their messages.
type keeper struct {
	data  [][]byte
	descs []uct.Desc
	none  int // messages that arrived without a descriptor
	limit int // maximum number of retained messages; 0 means no limit
	seen  int
}

func (k *keeper) HandleAM(data []byte, desc uct.Desc) bool {
	k.seen++
	if desc == nil {
		k.none++
		return false
	}
	if k.limit > 0 && len(k.descs) >= k.limit {
		return false
	}
	k.data, k.descs = append(k.data, data), append(k.descs, desc)
	return true
}

// release releases all descriptors, the last first.
func (k *keeper) release() {
	for i := len(k.descs) - 1; i >= 0; i-- {
		scribble(k.data[i])
		k.descs[i].Release()
	}
	k.data, k.descs = nil, nil
}

func checkKept(t checkT, p *pair) {
	v := anyAM(p.A.Iface.Attr())
	k := &keeper{limit: 2}
	require.NoError(t, p.B.Iface.SetAMHandler(3, k))
	for round := range 30 {
		first := k.seen
		for i := range 2 * tinyRxDepth {
			require.NoError(t, p.push(t, func() error { return v.send(p, p.AB, 3, pattern(1000*round+i, 64)) }))
		}
		p.until(t, "messages stopped: buffers are not given back", func() bool { return k.seen == first+2*tinyRxDepth })
		for i, data := range k.data {
			assert.Equal(t, pattern(1000*round+i, 64), data, "round %d: kept message %d changed", round, i)
		}
		if k.none > 0 {
			t.Skipf("the transport does not lend buffers")
		}
		k.release()
	}
}

func checkAllKept(t checkT, p *pair) {
	const count = 12 * tinyRxDepth
	v := anyAM(p.A.Iface.Attr())
	k := &keeper{}
	require.NoError(t, p.B.Iface.SetAMHandler(3, k))
	next := 0
	for sent := 0; sent < count; {
		err := v.send(p, p.AB, 3, pattern(sent, 64))
		if err == nil {
			sent++
			continue
		}
		require.Equal(t, uct.ErrNoResource, err)
		next = k.check(t, next)
		held := len(k.descs)
		p.settle()
		if len(k.descs) == held {
			next = k.check(t, next)
			k.release()
			p.round()
		}
	}
	p.until(t, "messages were lost while all buffers were kept", func() bool {
		next = k.check(t, next)
		k.release()
		return k.seen == count || k.none > 0
	})
	if k.none > 0 {
		t.Skipf("the transport does not lend buffers")
	}
	assert.Equal(t, count, next)
}

// check compares the retained messages with those that were sent, from number first on.
func (k *keeper) check(t checkT, first int) int {
	t.Helper()
	base := k.seen - len(k.data)
	for i, data := range k.data {
		require.Equal(t, pattern(base+i, 64), data, "kept message %d", base+i)
	}
	return max(first, k.seen)
}
