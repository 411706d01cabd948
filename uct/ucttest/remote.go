package ucttest

import (
	"bytes"
	"errors"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

var peerChecks = []check{
	{
		name: "peer/exchange",
		rule: "the contract holds between processes: messages both ways, put, get and atomics",
		run:  checkPeerExchange,
	},
	{
		name: "peer/stopped",
		rule: "put, get, atomics and their flush complete while the target's process is stopped",
		any:  uct.CapPut | uct.CapGet | uct.CapAtomic, run: checkPeerStopped,
	},
	{
		name: "peer/killed",
		rule: "when a peer dies operations end once, with an error; OnError is told once for each EP, which then refuses work; other EPs work on",
		need: uct.CapErrPeer, run: checkPeerKilled,
	},
	{
		name: "peer/killed-idle",
		rule: "an EP whose peer died while it was idle fails at the latest when it is used",
		need: uct.CapErrPeer, run: checkPeerKilledIdle,
	},
}

// far is a peer and the EP to it.
type far struct {
	*Peer
	p *Pair
	l *Link // Key and Raddr are of the peer's memory
}

// startPeer starts a peer and connects A to it.
func (p *Pair) startPeer(t T) *far {
	t.Helper()
	if p.h.StartPeer == nil {
		t.Skipf("the harness starts no peer")
	}
	peer, err := p.h.StartPeer()
	require.NoError(t, err, "start peer")
	f := &far{Peer: peer, p: p}
	t.Cleanup(func() { _ = peer.Close() }) // idempotent; checks look at the first result
	hello := f.ask(t, request{Op: opHello})
	params := uct.EPParams{DeviceAddr: hello.Device, IfaceAddr: hello.Iface}
	if !p.A.Iface.Attr().Caps.Has(uct.CapConnectIface) {
		params = uct.EPParams{}
	}
	ep, err := p.A.Iface.NewEP(params)
	require.NoError(t, err, "ep to the peer")
	f.l = p.link(t, ep, p.A, nil)
	f.bind(t, &hello)
	r := request{Op: opConnect}
	r.Device, r.Iface = p.A.addresses(t)
	if c, ok := ep.(uct.EPConnector); ok && len(params.DeviceAddr) == 0 {
		r.EP = c.EPAddr(nil)
		require.NoError(t, c.Connect(hello.Device, hello.EP), "connect to the peer")
	}
	f.ask(t, r)
	return f
}

// bind unpacks the key of the peer's memory.
func (f *far) bind(t T, hello *reply) {
	t.Helper()
	f.l.Raddr = hello.Raddr
	u, ok := f.p.A.MD.(uct.RKeyUnpacker)
	if !ok || len(hello.Key) == 0 {
		return
	}
	key, err := u.UnpackRKey(hello.Key)
	require.NoError(t, err, "key of the peer")
	f.p.keys = append(f.p.keys, key)
	f.l.Key = key
}

// ask sends a request and progresses until the answer is there.
func (f *far) ask(t T, r request) reply {
	t.Helper()
	require.NoError(t, f.enc.Encode(r), r.Op)
	var m reply
	f.p.eventually(t, "the peer does not answer "+r.Op, func() bool {
		select {
		case got, ok := <-f.replies:
			if !ok {
				got.Err = "the peer has ended"
			}
			m = got
			return true
		default:
			return false
		}
	})
	require.Empty(t, m.Err, "peer: %s", r.Op)
	return m
}

func checkPeerExchange(t T, p *Pair) {
	f := p.startPeer(t)
	const count, n = 100, 64
	if f.l.AM != nil {
		in := newInbox(t, p.A, peerAMID)
		f.ask(t, request{Op: opSend, Count: count, Len: n})
		p.until(t, "messages of the peer", func() bool { return len(in.msgs) >= count })
		for i, msg := range in.msgs {
			assert.Equal(t, pattern(i, n), msg, "message %d of the peer", i)
		}
		v := anyAM(p.A.Iface.Attr())
		for i := range count {
			require.NoError(t, p.push(t, func() error { return v.send(p, f.l, peerAMID, pattern(i, n)) }))
		}
		f.until(t, "the peer did not get all messages", func() bool {
			return f.ask(t, request{Op: opReceived}).Received == count
		})
	}
	for i, v := range claimedPut(p.A.Iface.Attr()) {
		data := pattern(i, v.clamp(5000))
		p.put(t, f.l, &v, 100, data)
		got := f.ask(t, request{Op: opRead, Off: 100, Len: len(data)}).Data
		assert.True(t, bytes.Equal(data, got), "put %s to the peer", v.name)
	}
	for i, v := range claimedGet(p.A.Iface.Attr()) {
		data := pattern(50+i, v.clamp(5000))
		f.ask(t, request{Op: opWrite, Off: 100, Data: data})
		assert.True(t, bytes.Equal(data, p.get(t, f.l, &v, 100, len(data))), "get %s from the peer", v.name)
	}
	f.atomics(t)
	p.flush(t, f.l)
	f.leave(t)
}

// until is Pair.until with questions to the peer, each of which takes a while.
func (f *far) until(t T, what string, cond func() bool) {
	t.Helper()
	for range 1000 {
		if cond() {
			return
		}
		f.p.round()
	}
	require.Fail(t, what)
}

// atomics tries each operation on the peer's memory.
func (f *far) atomics(t T) {
	t.Helper()
	for _, v := range claimedAtomics(f.p.A.Iface.Attr()) {
		var old [8]byte
		setWord(old[:], v.size, 41)
		f.ask(t, request{Op: opWrite, Off: 64, Data: old[:v.size]})
		call := &atomicCall{}
		require.NoError(t, f.p.push(t, func() error { return v.post(f.p, f.l, f.l.Raddr+64, f.l.Key, 41, 7, call) }), v.name())
		f.p.until(t, v.name(), func() bool { return call.done })
		f.p.flush(t, f.l)
		got := f.ask(t, request{Op: opRead, Off: 64, Len: v.size}).Data
		assert.Equal(t, v.op.Apply(v.size, 41, 41, 7), word(got, v.size), v.name())
	}
}

// leave closes the EP and ends the peer, which must be content.
func (f *far) leave(t T) {
	t.Helper()
	f.p.closeLink(t, f.l)
	assert.NoError(t, f.Close(), "the peer")
}

func checkPeerStopped(t T, p *Pair) {
	if !p.h.OneSided {
		t.Skipf("the harness does not claim it")
	}
	f := p.startPeer(t)
	// The first operation sets up what the transport connects lazily.
	if v := claimedPut(p.A.Iface.Attr()); len(v) > 0 {
		p.put(t, f.l, &v[0], 0, pattern(0, v[0].clamp(8)))
	}
	require.NoError(t, f.Stop())
	var last []byte
	for i, v := range claimedPut(p.A.Iface.Attr()) {
		last = pattern(i, v.clamp(20000))
		p.put(t, f.l, &v, 256, last)
	}
	for _, v := range claimedGet(p.A.Iface.Attr()) {
		n := min(len(last), v.clamp(len(last)))
		assert.True(t, bytes.Equal(last[:n], p.get(t, f.l, &v, 256, n)), "get %s from a stopped peer", v.name)
	}
	for _, v := range claimedAtomics(p.A.Iface.Attr()) {
		call := &atomicCall{}
		require.NoError(t, p.push(t, func() error { return v.post(p, f.l, f.l.Raddr+64, f.l.Key, 0, 1, call) }), v.name())
		p.until(t, v.name()+" on a stopped peer", func() bool { return call.done })
		p.flush(t, f.l)
	}
	p.flushWith(t, f.l.EP.Flush, func() {})
	require.NoError(t, f.Continue())
	got := f.ask(t, request{Op: opRead, Off: 256, Len: len(last)}).Data
	assert.True(t, bytes.Equal(last, got), "what was put while the peer was stopped")
	f.leave(t)
}

func checkPeerKilled(t T, p *Pair) {
	f := p.startPeer(t)
	f.l.failed = true
	if f.l.AM != nil { // something in flight that needs the peer
		f.ask(t, request{Op: opReceived})
		require.NoError(t, f.Stop())
	}
	before := len(p.comps)
	for i := range 64 {
		if p.post(f.l, i) != nil {
			break
		}
	}
	_ = p.zcopies(t, f.l)
	fl := p.comp(1)
	if pending, err := f.l.EP.Flush(&fl.Completion); err != nil || !pending {
		fl.expect = 0
	}
	seen := 0
	r := uct.PendingReq{}
	r.Func = func(*uct.PendingReq) error {
		err := p.post(f.l, 0)
		if err != nil && err != uct.ErrNoResource {
			seen++
			assert.ErrorIs(t, err, uct.ErrEPFailed, "a pending request after the failure")
		}
		return err
	}
	queued := f.l.EP.AddPending(&r) == nil
	require.NoError(t, f.Kill())
	f.dead(t)
	for _, c := range p.comps[before:] {
		p.eventually(t, "an operation to a dead peer did not end", func() bool { return c.fired >= c.expect })
	}
	if fl.expect > 0 {
		assert.NotEqual(t, ucs.StatusOK, fl.Status, "flush to a dead peer")
	}
	p.settle()
	assert.Equal(t, 1, p.told(f.l), "calls of OnError")
	if queued && seen == 0 && r.Next != nil {
		t.Errorf("a pending request of a failed ep was not dispatched")
	}
	p.refuses(t, f.l, "to a dead peer")
	p.closeLink(t, f.l)
	assert.NoError(t, f.Close())
	p.works(t, p.AB, "another ep")
}

func checkPeerKilledIdle(t T, p *Pair) {
	f := p.startPeer(t)
	f.l.failed = true
	if f.l.AM != nil || f.l.Put != nil {
		require.NoError(t, p.push(t, func() error { return p.postFar(f, 0) }))
		p.flush(t, f.l)
	}
	require.NoError(t, f.Kill())
	f.dead(t)
	assert.Equal(t, 1, p.told(f.l), "calls of OnError")
	p.closeLink(t, f.l)
	assert.NoError(t, f.Close())
	p.works(t, p.AB, "another ep")
}

// postFar is a small operation on the peer.
func (p *Pair) postFar(f *far, i int) error {
	if f.l.AM != nil {
		return anyAM(p.A.Iface.Attr()).send(p, f.l, peerAMID, pattern(i, 64))
	}
	return p.post(f.l, i)
}

// dead posts to a killed peer until the EP refuses.
func (f *far) dead(t T) {
	t.Helper()
	var err error
	f.p.eventually(t, "the death of the peer is not noticed", func() bool {
		err = f.p.postFar(f, 0)
		return err != nil && err != uct.ErrNoResource
	})
	assert.True(t, errors.Is(err, uct.ErrEPFailed), "a post to a dead peer: %v", err)
	f.p.eventually(t, "OnError was not called", func() bool { return f.p.told(f.l) > 0 })
}
