package ucttest

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/uct"
)

var addressChecks = []check{
	{
		name: "addr/reachable",
		rule: "Reachable reports whether an EP can be connected; addresses are appended and have the lengths of the attributes",
		run:  checkReachable,
	},
	{
		name: "addr/garbage",
		rule: "addresses may come from an untrusted peer: truncated, longer, random or modified ones return an error or at least do no harm",
		run:  checkGarbageAddress,
	},
	{
		name: "addr/connect-garbage",
		rule: "NewEP and Connect check the peer's addresses",
		run:  checkConnectGarbage,
	},
	{
		name: "addr/post-before-peer-connects",
		rule: "operations may be posted as soon as Connect has returned; the transport waits for the peer",
		need: uct.CapConnectEP, any: uct.CapAM, run: checkPostBeforeConnect,
	},
	{
		name: "addr/both-at-once",
		rule: "both sides may connect at the same time, and many times",
		any:  uct.CapAM, run: checkConnectMany,
	},
}

func checkReachable(t checkT, p *pair) {
	for _, way := range [][2]*side{{p.A, p.B}, {p.B, p.A}, {p.A, p.A}} {
		from, to := way[0], way[1]
		self := from == to
		device, iface := to.addresses(t)
		ok, why := from.Iface.Ext().Address.Reachable(device, iface)
		assert.True(t, ok || self, "%s to %s: %s", from.Name, to.Name, why)
		ok, why = from.Iface.Ext().Address.Reachable(device, nil)
		assert.True(t, ok || self, "%s to %s by device: %s", from.Name, to.Name, why)
	}
	a := p.A.Iface.Ext().Address
	prefix := []byte("prefix")
	assert.Equal(t, append(prefix[:6:6], a.DeviceAddr(nil)...), a.DeviceAddr(prefix[:6:6]), "DeviceAddr appends")
	if p.A.Iface.Attr().Caps.Has(uct.CapConnectIface) {
		assert.Equal(t, append(prefix[:6:6], a.IfaceAddr(nil)...), a.IfaceAddr(prefix[:6:6]), "IfaceAddr appends")
	}
}

// damaged returns invalid versions of b: truncated, longer and random.
func damaged(b []byte) [][]byte {
	out := [][]byte{{}}
	for n := 1; n < len(b); n++ {
		out = append(out, b[:n:n])
	}
	out = append(out, append(b[:len(b):len(b)], 0))
	rng := rand.New(rand.NewPCG(1, 2))
	for range 16 {
		r := make([]byte, len(b))
		for i := range r {
			r[i] = byte(rng.Uint32())
		}
		out = append(out, r)
	}
	return out
}

// flipped returns the copies of b that differ in one bit.
func flipped(b []byte) [][]byte {
	var out [][]byte
	for bit := range 8 * len(b) {
		c := append([]byte{}, b...)
		c[bit/8] ^= 1 << (bit % 8)
		out = append(out, c)
	}
	return out
}

func checkGarbageAddress(t checkT, p *pair) {
	a := p.A.Iface.Ext().Address
	device, iface := p.B.addresses(t)
	for _, bad := range damaged(device) {
		if len(device) == 0 {
			break
		}
		ok, why := a.Reachable(bad, iface)
		assert.False(t, ok, "device address % x", bad)
		assert.NotEmpty(t, why, "the criterion for % x", bad)
	}
	for _, bad := range damaged(iface) {
		if len(iface) == 0 || len(bad) == len(iface) {
			continue // an iface address may have no checksum
		}
		ok, why := a.Reachable(device, bad)
		assert.False(t, ok, "iface address % x", bad)
		assert.NotEmpty(t, why, "the criterion for % x", bad)
	}
	for _, odd := range flipped(device) {
		a.Reachable(odd, iface)
	}
	for _, odd := range flipped(iface) {
		a.Reachable(device, odd)
	}
}

func checkConnectGarbage(t checkT, p *pair) {
	device, iface := p.B.addresses(t)
	if p.A.Iface.Attr().Caps.Has(uct.CapConnectIface) {
		for _, bad := range damaged(device) {
			p.refusesEP(t, uct.EPParams{DeviceAddr: bad, IfaceAddr: iface})
		}
		for _, bad := range damaged(iface) {
			if len(bad) != len(iface) {
				p.refusesEP(t, uct.EPParams{DeviceAddr: device, IfaceAddr: bad})
			}
		}
		return
	}
	mine, err := p.A.Iface.NewEP(uct.EPParams{})
	require.NoError(t, err)
	theirs, err := p.B.Iface.NewEP(uct.EPParams{})
	require.NoError(t, err)
	ep := theirs.Ops().Connect.EPAddr(nil)
	for _, bad := range damaged(device) {
		assert.Error(t, mine.Ops().Connect.Connect(bad, ep), "device address % x", bad)
	}
	for _, bad := range damaged(ep) {
		if len(bad) != len(ep) {
			assert.Error(t, mine.Ops().Connect.Connect(device, bad), "ep address % x", bad)
		}
	}
	assert.NoError(t, mine.Close())
	assert.NoError(t, theirs.Close())
}

func (p *pair) refusesEP(t checkT, params uct.EPParams) {
	t.Helper()
	if len(params.DeviceAddr) == 0 && len(params.IfaceAddr) == 0 {
		return
	}
	ep, err := p.A.Iface.NewEP(params)
	if !assert.Error(t, err, "device % x, iface % x", params.DeviceAddr, params.IfaceAddr) {
		assert.NoError(t, ep.Close())
	}
}

func checkPostBeforeConnect(t checkT, p *pair) {
	if p.A.Iface.Attr().Caps.Has(uct.CapConnectIface) {
		t.Skipf("endpoints connect to ifaces")
	}
	in := newInbox(t, p.B, 3)
	ab, ba := p.half(t, p.A, p.B), p.half(t, p.B, p.A)
	p.join(t, ab, p.B, ba.EP)
	v := anyAM(p.A.Iface.Attr())
	err := v.send(p, ab, 3, pattern(1, 64))
	for range idleRounds {
		p.round()
	}
	assert.Empty(t, in.msgs, "a message arrived before its receiver was connected")
	p.join(t, ba, p.A, ab.EP)
	if err == uct.ErrNoResource {
		err = p.push(t, func() error { return v.send(p, ab, 3, pattern(1, 64)) })
	}
	require.NoError(t, err)
	p.expect(t, in, "posted early", pattern(1, 64))
}

func checkConnectMany(t checkT, p *pair) {
	const count = 8
	v := anyAM(p.A.Iface.Attr())
	inA, inB := newInbox(t, p.A, 3), newInbox(t, p.B, 3)
	for i := range count {
		ab, ba := p.connect(t, p.A, p.B)
		require.NoError(t, p.push(t, func() error { return v.send(p, ab, 3, pattern(i, 64)) }))
		require.NoError(t, p.push(t, func() error { return v.send(p, ba, 3, pattern(100+i, 64)) }))
		p.expect(t, inB, "on a new ep", pattern(i, 64))
		p.expect(t, inA, "on a new ep", pattern(100+i, 64))
		if i%2 == 0 { // the next EP reuses a slot that carried operations
			p.flush(t, ab)
			p.flush(t, ba)
			p.closeLink(t, ab)
			p.closeLink(t, ba)
		}
	}
}

// FuzzAddress calls Reachable, NewEP and Connect with fuzzed addresses. f is the fuzz target of the transport's test.
func FuzzAddress(f *testing.F, h Harness) {
	r := &recorder{}
	var p *pair
	r.isolate(func() { p = openPair(r, &h, Options{TxDepth: tinyTxDepth, RxDepth: tinyRxDepth}) })
	if r.Failed() {
		f.Fatal(r.result.Log)
	}
	f.Cleanup(func() {
		for i := len(r.cleanup) - 1; i >= 0; i-- {
			r.cleanup[i]()
		}
	})
	device, peer := p.B.addresses(r)
	f.Add(device, peer)
	f.Add([]byte{}, []byte{})
	f.Add(peer, device)
	for _, odd := range damaged(device) {
		f.Add(odd, peer)
	}
	f.Fuzz(func(t *testing.T, device, peer []byte) {
		p.A.Iface.Ext().Address.Reachable(device, peer)
		p.A.Iface.Ext().Address.Reachable(device, nil)
		params := uct.EPParams{}
		if p.A.Iface.Attr().Caps.Has(uct.CapConnectIface) {
			params = uct.EPParams{DeviceAddr: device, IfaceAddr: peer}
		}
		ep, err := p.A.Iface.NewEP(params)
		if err != nil {
			return
		}
		if c := ep.Ops().Connect; c != nil {
			_ = c.Connect(device, peer) // may return an error, must not panic
		}
		require.NoError(t, ep.Close())
	})
}
