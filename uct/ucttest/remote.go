package ucttest

import (
	"bytes"
	"errors"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/race"
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
		rule: "when a peer dies, each operation completes once, with an error; OnError is called once for each EP: with ErrConnReset, with ErrTimedOut if the transport detects only missing replies, with ErrUnreachable if the EP was not yet connected; later posts on the EP fail; other EPs continue to work",
		need: uct.CapErrPeer, opts: Options{PeerDies: true}, run: checkPeerKilled,
	},
	{
		name: "peer/revoke",
		rule: "Mem.Close revokes the access of a process that is accessing the memory, and of one that is stopped during an access: for registered memory Close may then return ucs.InUseError; for allocated memory it returns without waiting",
		need: uct.CapErrRemoteMem, any: uct.CapPut | uct.CapGet | uct.CapAtomic, run: checkRevokePeer,
	},
	{
		name: "peer/killed-idle",
		rule: "an EP whose peer died while the EP was idle fails at the next post at the latest",
		need: uct.CapErrPeer, opts: Options{PeerDies: true}, run: checkPeerKilledIdle,
	},
}

// checkRevokePeer closes memory while another process accesses it, running or stopped.
func checkRevokePeer(t checkT, p *pair) {
	kinds := floodKinds(p.A.Iface.Attr())
	for i, c := range []struct{ registered, stop bool }{{true, false}, {false, false}, {true, true}, {false, true}} {
		p.tryRevokePeer(t, &kinds[i%len(kinds)], c.registered, c.stop)
	}
	p.works(t, p.AB, "another ep")
}

func (p *pair) tryRevokePeer(t checkT, k *floodKind, reg, stop bool) {
	t.Helper()
	const accepted, steps = 3, 200
	f := p.startPeer(t)
	f.l.mayFail = true
	open := region(allocated)
	if reg {
		open = registered
	}
	mem := open(t, p, p.A)
	fillWith(mem.Bytes(), oldByte)
	packed, err := mem.PackRKey(nil)
	require.NoError(t, err)
	f.ask(t, request{Op: opFlood, Key: packed, Raddr: mem.Addr(), Kind: k.name})
	f.flooded(t, func(m *reply) bool { return m.Posted >= accepted })

	a := repeat(t, p.A.progress)
	if stop {
		require.NoError(t, f.Stop())
	}
	f.revoke(t, mem, reg)
	if !reg { // the allocator may reuse the address range
		mem = open(t, p, p.A)
	}
	fillWith(mem.Bytes(), ownByte)
	require.NoError(t, f.Continue())
	a.stop()
	start := f.flooded(t, func(*reply) bool { return true }).Steps
	end := f.flooded(t, func(m *reply) bool { return m.Steps >= start+steps })
	require.True(t, holdsOnly(mem.Bytes(), ownByte), "%s by another process: memory was written after it was closed", k.name)
	require.Zero(t, end.Foreign, "%s by another process: memory was read after it was closed", k.name)
	p.drop(t, mem)
	require.NoError(t, f.Kill())
	require.NoError(t, f.Close())
}

// revoke closes memory that the peer accesses. If Close returns InUseError, because the peer was stopped during an
// access to registered memory, revoke resumes the peer and closes the memory again.
func (f *far) revoke(t checkT, mem uct.Mem, reg bool) {
	t.Helper()
	err := mem.Close()
	if inUse := new(ucs.InUseError); reg && errors.As(err, &inUse) {
		assert.NotEmpty(t, inUse.PIDs, "processes that access the memory")
		require.NoError(t, f.Continue())
		closeMem(t, mem)
		return
	}
	require.NoError(t, err, "close memory")
}

// flooded sends opFlooded until cond is true for the reply, and returns that reply.
func (f *far) flooded(t checkT, cond func(*reply) bool) (m reply) {
	t.Helper()
	f.p.eventually(t, "the peer makes no progress", func() bool {
		m = f.ask(t, request{Op: opFlooded})
		return cond(&m)
	})
	return m
}

// far is a peer with an EP from A to it.
type far struct {
	*Peer
	p *pair
	l *link // Key and Raddr are of the peer's memory
}

// startPeer starts a peer and connects A to it.
func (p *pair) startPeer(t checkT) *far {
	t.Helper()
	if p.h.StartPeer == nil {
		t.Skipf("the harness has no StartPeer: the claims about peers in other processes and about their death are not checked")
	}
	peer, err := p.h.StartPeer()
	require.NoError(t, err, "start peer")
	f := &far{Peer: peer, p: p}
	t.Cleanup(func() { _ = peer.Close() }) // idempotent; the check itself asserts the result of the first Close
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
	if c := ep.Ops().Connect; c != nil && len(params.DeviceAddr) == 0 {
		r.EP = c.EPAddr(nil)
		require.NoError(t, c.Connect(hello.Device, hello.EP), "connect to the peer")
	}
	f.ask(t, r)
	return f
}

// bind unpacks the key of the peer's memory.
func (f *far) bind(t checkT, hello *reply) {
	t.Helper()
	f.l.Raddr = hello.Raddr
	u := f.p.A.MD.Ext().Keys
	if u == nil || len(hello.Key) == 0 {
		return
	}
	key, err := u.UnpackRKey(hello.Key)
	require.NoError(t, err, "key of the peer")
	f.p.keys = append(f.p.keys, unpacked{f.p.A.MD, key})
	f.l.Key = key
}

// ask sends a request and progresses until the reply arrives.
func (f *far) ask(t checkT, r request) reply {
	t.Helper()
	race.ReleaseToPeers() // the peer may access memory of this process after the request, and have done so before the reply
	require.NoError(t, f.enc.Encode(r), r.Op)
	var m reply
	f.p.eventually(t, "the peer does not reply to "+r.Op, func() bool {
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
	race.AcquireFromPeers()
	require.Empty(t, m.Err, "peer: %s", r.Op)
	return m
}

func checkPeerExchange(t checkT, p *pair) {
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
		p.until(t, "the peer did not receive all messages", func() bool {
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

// atomics runs each claimed atomic on the peer's memory.
func (f *far) atomics(t checkT) {
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

// leave closes the EP and the peer, which must report no error.
func (f *far) leave(t checkT) {
	t.Helper()
	f.p.closeLink(t, f.l)
	assert.NoError(t, f.Close(), "the peer")
}

func checkPeerStopped(t checkT, p *pair) {
	if !p.h.OneSided {
		t.Skipf("the harness does not claim OneSided")
	}
	f := p.startPeer(t)
	if p.h.OneSidedAM {
		f.ask(t, request{Op: opReceived})
	}
	// The first operation connects a transport that connects lazily.
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
	if p.h.OneSidedAM {
		require.NoError(t, p.push(t, func() error { return p.postFar(f, 0) }))
	}
	p.flushWith(t, f.l.EP.Flush, func() {})
	require.NoError(t, f.Continue())
	if p.h.OneSidedAM {
		p.until(t, "the peer did not receive the message", func() bool { return f.ask(t, request{Op: opReceived}).Received == 1 })
	}
	got := f.ask(t, request{Op: opRead, Off: 256, Len: len(last)}).Data
	assert.True(t, bytes.Equal(last, got), "what was put while the peer was stopped")
	f.leave(t)
}

func checkPeerKilled(t checkT, p *pair) {
	f := p.startPeer(t)
	f.l.failed = true
	if f.l.AM != nil { // messages to a stopped peer remain in flight
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
		p.eventually(t, "an operation to a dead peer did not complete", func() bool { return c.fired >= c.expect })
	}
	if fl.expect > 0 && !p.h.OneSidedAM {
		assert.NotEqual(t, ucs.StatusOK, fl.Status, "flush to a dead peer")
	}
	p.oneFailure(t, f.l, died...)
	if queued && seen == 0 && r.Next != nil {
		t.Errorf("a pending request of a failed ep was not dispatched")
	}
	p.refuses(t, f.l, "to a dead peer")
	p.closeLink(t, f.l)
	assert.NoError(t, f.Close())
	p.works(t, p.AB, "another ep")
}

func checkPeerKilledIdle(t checkT, p *pair) { p.dieIdle(t, (*far).dead) }

// dieIdle uses an EP to a peer, flushes it and kills the peer. After notice has returned, OnError must have been called
// once for the EP, and other EPs must work.
func (p *pair) dieIdle(t checkT, notice func(*far, checkT)) {
	t.Helper()
	f := p.startPeer(t)
	f.l.failed = true
	if f.l.AM != nil || f.l.Put != nil {
		require.NoError(t, p.push(t, func() error { return p.postFar(f, 0) }))
		p.flush(t, f.l)
	}
	require.NoError(t, f.Kill())
	notice(f, t)
	p.oneFailure(t, f.l, died...)
	p.closeLink(t, f.l)
	assert.NoError(t, f.Close())
	p.works(t, p.AB, "another ep")
}

// died lists the errors of an EP whose peer died before or after the EP was connected. ErrPeerClosed is not among them:
// it means that the peer closed its iface.
var died = []error{ucs.ErrConnReset, ucs.ErrTimedOut, ucs.ErrUnreachable}

// postFar posts a small message or put to the peer.
func (p *pair) postFar(f *far, i int) error {
	if f.l.AM != nil {
		return anyAM(p.A.Iface.Attr()).send(p, f.l, peerAMID, pattern(i, 64))
	}
	return p.post(f.l, i)
}

// dead posts to a killed peer until a post returns ErrEPFailed, and then waits for OnError.
func (f *far) dead(t checkT) {
	t.Helper()
	var err error
	f.p.eventually(t, "the transport does not detect the death of the peer", func() bool {
		err = f.p.postFar(f, 0)
		return err != nil && err != uct.ErrNoResource
	})
	assert.True(t, errors.Is(err, uct.ErrEPFailed), "a post to a dead peer: %v", err)
	f.p.eventually(t, "OnError was not called", func() bool { return f.p.failures(f.l) > 0 })
}
