package ucxpeer_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/ucxwire"
	"github.com/gucx/gucx/ucp/ucxpeer"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ucxtcp"
)

// wireup sends a wireup message with the address of a UCX worker.
func (h *hostile) wireup(m ucxwire.WireupMsg) {
	m.Address = h.address()
	require.True(h.t, h.send(ucxwire.IDWireup, ucxwire.AppendWireup(nil, &m)))
}

// readWireup returns the next wireup message. It replies to frames of the transport.
func (h *hostile) readWireup() ucxwire.WireupMsg {
	for {
		id, body := h.read()
		switch id {
		case frameCM:
			if le.Uint32(body) == connRequest {
				h.send(frameCM, le.AppendUint32(nil, connAck))
			}
		case framePut:
			h.send(framePutAck, body[16:20])
		case ucxwire.IDWireup:
			m, err := ucxwire.DecodeWireup(body)
			require.NoError(h.t, err)
			return m
		default:
			require.Fail(h.t, "unexpected frame", "%d", id)
		}
	}
}

// epWithAddr returns an EP of the program to the peer. The peer has the endpoint 0x4001 and sends on the same connection.
func (h *hostile) epWithAddr(cfg ucxpeer.EPConfig) *ucxpeer.EP {
	address := h.address()
	e, err := h.w.NewEP(ucxwire.AppendAddress(nil, &address, ucxwire.Layout{}), cfg)
	require.NoError(h.t, err)
	if !cfg.PeerErrors { // start an operation that needs the endpoint of the peer
		_, err = e.StreamSend([]byte{1}, nil)
		require.NoError(h.t, err)
	}
	h.accept(connJoin)
	h.ep = h.readWireup().SrcEP
	h.wireup(ucxwire.WireupMsg{Type: ucxwire.WireupReply, SrcEP: 0x4001, DstEP: h.ep})
	testenv.ProgressWithin(h.t, testenv.Watchdog, func() bool { h.w.Progress(); return e.Connected() })
	return e
}

// TestRemoved_Fails: if the peer reports that its endpoint does not exist, the EP fails with all its operations.
func TestRemoved_Fails(t *testing.T) {
	for _, closing := range []bool{false, true} {
		w := newWorker(t, ucxpeer.Config{})
		h := newHostile(t, w)
		e := h.epWithAddr(ucxpeer.EPConfig{PeerErrors: true})
		failures := 0
		w.OnError(func(failed *ucxpeer.EP, err error) {
			assert.Same(t, e, failed)
			failures++
		})
		send, err := e.TagSendSync(1, []byte("x"), nil)
		require.NoError(t, err)
		recv, err := e.StreamRecv(make([]byte, 1), true, nil)
		require.NoError(t, err)
		pending := []*ucxpeer.Request{send, recv}
		if closing {
			r, err := e.Close(ucxpeer.CloseFlush)
			require.NoError(t, err)
			pending = append(pending, r)
		}
		h.wireup(ucxwire.WireupMsg{Type: ucxwire.WireupEPRemoved, ErrMode: ucxwire.ErrModePeer, SrcEP: 7, DstEP: h.ep})
		testenv.ProgressWithin(t, testenv.Watchdog, func() bool { w.Progress(); return e.Err() != nil })
		for _, r := range pending {
			assert.ErrorIs(t, r.Err(), ucs.ErrConnReset)
		}
		assert.ErrorIs(t, e.Err(), ucs.ErrConnReset)
		assert.Equal(t, 1, failures)
		h.wireup(ucxwire.WireupMsg{Type: ucxwire.WireupEPRemoved, DstEP: h.ep}) // again: the id does not exist
		for range 10 {
			w.Progress()
		}
		assert.Zero(t, w.Stats().Malformed)
	}
}

// TestRemoved_Closing: if only the flush of a close is in progress, the close succeeds when the peer has removed its
// endpoint.
func TestRemoved_Closing(t *testing.T) {
	w := newWorker(t, ucxpeer.Config{})
	w.OnError(func(_ *ucxpeer.EP, err error) { assert.NoError(t, err) })
	h := newHostile(t, w)
	e := h.epWithAddr(ucxpeer.EPConfig{PeerErrors: true})
	closing, err := e.Close(ucxpeer.CloseFlush)
	require.NoError(t, err)
	require.False(t, closing.Done(), "the peer has not acknowledged the flush")
	id, flush := h.read()
	require.Equal(t, uint8(framePut), id)
	h.wireup(ucxwire.WireupMsg{Type: ucxwire.WireupEPRemoved, ErrMode: ucxwire.ErrModePeer, SrcEP: 7, DstEP: h.ep})
	h.send(framePut, make([]byte, 20)) // its acknowledgement shows that the message has arrived
	id, _ = h.read()
	require.Equal(t, uint8(framePutAck), id)
	for range 10 {
		w.Progress()
	}
	require.False(t, closing.Done())
	h.send(framePutAck, flush[16:20])
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool { w.Progress(); return closing.Done() })
	assert.NoError(t, closing.Err())
}

// TestRemoved_Check: when a peer closes its connection to an EP, the worker checks whether the peer's endpoint exists.
func TestRemoved_Check(t *testing.T) {
	w := newWorker(t, ucxpeer.Config{})
	h := newHostile(t, w)
	e := h.epWithAddr(ucxpeer.EPConfig{PeerErrors: true})
	h.send(frameCM, le.AppendUint32(nil, connFin))
	m := h.readWireup()
	assert.Equal(t, ucxwire.WireupEPCheck, m.Type)
	assert.Equal(t, uint64(0x4001), m.DstEP)
	assert.Equal(t, h.ep, m.SrcEP)
	assert.Equal(t, h.target.Devices, m.Address.Devices, "the peer replies to this address")

	// It does not, and the reply arrives over a separate connection.
	other := newHostile(t, w)
	other.listen, other.uuid, other.serial = h.listen, h.uuid, 1
	other.dial()
	other.wireup(ucxwire.WireupMsg{Type: ucxwire.WireupEPRemoved, SrcEP: 7, DstEP: m.SrcEP})
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool { w.Progress(); return e.Err() != nil })
	assert.ErrorIs(t, e.Err(), ucs.ErrConnReset)
}

// TestKeepalive: an EP checks the endpoint of its peer repeatedly, and fails if it does not exist.
func TestKeepalive(t *testing.T) {
	w := newWorker(t, ucxpeer.Config{KeepaliveInterval: time.Millisecond})
	h := newHostile(t, w)
	e := h.epWithAddr(ucxpeer.EPConfig{PeerErrors: true})
	for range 3 {
		m := h.readWireup()
		assert.Equal(t, ucxwire.WireupEPCheck, m.Type)
		assert.Equal(t, uint64(0x4001), m.DstEP)
		assert.Equal(t, h.target.Devices, m.Address.Devices, "the peer replies to this address")
	}
	require.NoError(t, e.Err())
	h.wireup(ucxwire.WireupMsg{Type: ucxwire.WireupEPRemoved, ErrMode: ucxwire.ErrModePeer, SrcEP: 7, DstEP: h.ep})
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool { w.Progress(); return e.Err() != nil })
	assert.ErrorIs(t, e.Err(), ucs.ErrConnReset)
}

// TestKeepalive_Sleeps: a worker that sleeps wakes up for the checks. A worker whose EPs send no checks sets no timer.
func TestKeepalive_Sleeps(t *testing.T) {
	a := newWorker(t, ucxpeer.Config{KeepaliveInterval: time.Millisecond, SpinPolls: 1})
	b := newWorker(t, ucxpeer.Config{KeepaliveInterval: -1})
	p := &two{t: t, a: a, b: b}
	var err error
	p.ab, err = a.NewEP(b.Address(), ucxpeer.EPConfig{PeerErrors: true})
	require.NoError(t, err)
	p.ba, err = b.NewEP(a.Address(), ucxpeer.EPConfig{PeerErrors: true})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error)
	go func() { served <- a.Serve(ctx) }()
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool { b.Progress(); return b.Stats().Checks >= 10 })
	stop()
	assert.ErrorIs(t, <-served, context.Canceled)
	assert.Zero(t, a.Stats().Checks)
}

// TestKeepalive_Blocked: checks of a peer that does not read do not accumulate.
func TestKeepalive_Blocked(t *testing.T) {
	w := newWorker(t, ucxpeer.Config{KeepaliveInterval: -1, TCP: ucxtcp.Config{SndBuf: 4 << 10, TxBuf: 1}})
	h := newHostile(t, w)
	e := h.epWithAddr(ucxpeer.EPConfig{PeerErrors: true})
	sends := 0
	var last *ucxpeer.Request
	for ; last.Done(); sends++ { // until the connection is full
		var err error
		last, err = e.TagSend(1, make([]byte, 8000), nil)
		require.NoError(t, err)
		w.Progress()
	}
	for range 100 {
		w.Alarm(0)
	}
	for range sends {
		id, _ := h.read()
		require.Equal(t, ucxwire.IDEager, id)
	}
	require.True(t, last.Done())
	w.Alarm(0)
	assert.Equal(t, ucxwire.WireupEPCheck, h.readWireup().Type)
}

// TestRemoved_NoCheck: an endpoint without error handling is not checked, because UCX uses its id as a pointer.
func TestRemoved_NoCheck(t *testing.T) {
	w := newWorker(t, ucxpeer.Config{})
	h := newHostile(t, w)
	e := h.epWithAddr(ucxpeer.EPConfig{})
	id, _ := h.read()
	require.Equal(t, ucxwire.IDStream, id)
	h.send(frameCM, le.AppendUint32(nil, connFin))
	h.send(framePut, make([]byte, 20)) // a flush: its acknowledgement shows that the FIN has arrived
	id, _ = h.read()
	require.Equal(t, uint8(framePutAck), id)
	_, err := e.StreamSend([]byte{2}, nil)
	require.NoError(t, err)
	id, _ = h.read()
	assert.Equal(t, ucxwire.IDStream, id)
}

// TestRemoved_Reply: the worker replies to a check of an endpoint that does not exist, in any state of the connection.
func TestRemoved_Reply(t *testing.T) {
	check := ucxwire.WireupMsg{Type: ucxwire.WireupEPCheck, ErrMode: ucxwire.ErrModePeer, SrcEP: 0x4001, DstEP: 99}
	expect := func(t *testing.T, h *hostile) {
		m := h.readWireup()
		assert.Equal(t, ucxwire.WireupEPRemoved, m.Type)
		assert.Equal(t, check.SrcEP, m.DstEP)
	}
	t.Run("another EP", func(t *testing.T) {
		h := newHostile(t, newWorker(t, ucxpeer.Config{}))
		h.connect()
		there := check
		there.DstEP = h.ep
		h.wireup(there) // no reply
		h.wireup(check)
		expect(t, h)
	})
	t.Run("no EP", func(t *testing.T) {
		w := newWorker(t, ucxpeer.Config{MaxPeerEPs: 1})
		h := newHostile(t, w)
		for h.serial = 0; h.serial < 3; h.serial++ { // EPs for replies are released
			h.dial()
			h.wireup(check)
			expect(t, h)
			h.finish()
		}
		assert.Zero(t, w.Stats().Refused)
	})
	t.Run("closed EP", func(t *testing.T) {
		w := newWorker(t, ucxpeer.Config{})
		h := newHostile(t, w)
		e := h.epWithAddr(ucxpeer.EPConfig{PeerErrors: true})
		r, err := e.Close(ucxpeer.CloseForce)
		require.NoError(t, err)
		require.Nil(t, r)
		gone := check
		gone.DstEP = h.ep
		h.wireup(gone)
		conn := h.conn // the worker has shut down its side
		defer conn.Close()
		h.conn = nil
		h.accept(connAck)
		expect(t, h)
		h.finish()
	})
	t.Run("too many", func(t *testing.T) {
		w := newWorker(t, ucxpeer.Config{MaxPeerEPs: 1})
		first := newHostile(t, w)
		first.connect()
		h := newHostile(t, w)
		h.dial()
		h.wireup(check)
		h.expectBroken()
		assert.Equal(t, uint64(1), w.Stats().Refused)
	})
}

// TestRemoved_Flood: replies to repeated checks of a closed EP use one connection, as long as the peer does not close it.
func TestRemoved_Flood(t *testing.T) {
	w := newWorker(t, ucxpeer.Config{MaxPeerEPs: 1})
	h := newHostile(t, w)
	e := h.epWithAddr(ucxpeer.EPConfig{PeerErrors: true})
	_, err := e.Close(ucxpeer.CloseForce)
	require.NoError(t, err)
	check := ucxwire.WireupMsg{Type: ucxwire.WireupEPCheck, ErrMode: ucxwire.ErrModePeer, SrcEP: 0x4001, DstEP: h.ep}
	for range 50 {
		h.wireup(check)
	}
	checks := h.conn
	defer checks.Close()
	h.conn = nil
	h.accept(connJoin)
	assert.Equal(t, ucxwire.WireupEPRemoved, h.readWireup().Type)
	h.finish()
	replies := h.conn
	defer replies.Close()
	h.conn = checks
	check.Address = h.address()
	for range 150 {
		h.send(ucxwire.IDWireup, ucxwire.AppendWireup(nil, &check))
	}
	h.expectBroken() // no connection for a reply is available
	for range 10 {
		w.Progress()
		require.False(t, h.dialed())
	}
	assert.Zero(t, w.Stats().Malformed)

	require.NoError(t, replies.Close()) // the worker can reply to the next check
	h.conn = nil
	e = h.epWithAddr(ucxpeer.EPConfig{PeerErrors: true})
	_, err = e.Close(ucxpeer.CloseForce)
	require.NoError(t, err)
	check.DstEP = h.ep
	h.wireup(check)
	asked := h.conn
	defer asked.Close()
	h.conn = nil
	h.accept(connAck)
	assert.Equal(t, ucxwire.WireupEPRemoved, h.readWireup().Type)
}

// TestRequest_OnClosedConnection: the reply to a wireup request on the connection of a closed EP uses another connection,
// or the connection ends.
func TestRequest_OnClosedConnection(t *testing.T) {
	w := newWorker(t, ucxpeer.Config{})
	h := newHostile(t, w)
	address := h.address()
	e, err := w.NewEP(ucxwire.AppendAddress(nil, &address, ucxwire.Layout{}), ucxpeer.EPConfig{PeerErrors: true})
	require.NoError(t, err)
	h.accept(connAck)
	require.Equal(t, ucxwire.WireupRequest, h.readWireup().Type)
	h.send(frameCM, h.request(0))
	h.wireup(ucxwire.WireupMsg{Type: ucxwire.WireupRequest, ErrMode: ucxwire.ErrModePeer, ConnSN: 1, SrcEP: 0x4002})
	_, err = e.Close(ucxpeer.CloseForce)
	require.NoError(t, err)
	asked, replied := h.conn, false
	defer asked.Close()
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
		w.Progress()
		replied = h.dialed()
		return replied || h.broken()
	})
	if replied {
		h.answer(connAck)
		m := h.readWireup()
		assert.Equal(t, ucxwire.WireupReply, m.Type)
		assert.Equal(t, uint64(0x4002), m.DstEP)
	}
}

// finish waits until the worker has flushed and shut down its side of the connection.
func (h *hostile) finish() {
	for {
		id, body := h.read()
		switch {
		case id == framePut:
			h.send(framePutAck, body[16:20])
		case id == frameCM && le.Uint32(body) == connFin:
			return
		}
	}
}

// TestRemoved_Peers: when a worker closes its EP, the EP of the peer fails, and a new EP of the peer can connect.
func TestRemoved_Peers(t *testing.T) {
	mode := ucxpeer.EPConfig{PeerErrors: true}
	p := connectTwo(t, ucxpeer.Config{}, mode)
	p.until(func() bool { return p.ab.Connected() && p.ba.Connected() })
	require.NoError(t, p.wait(p.ab.Close(ucxpeer.CloseFlush)))
	p.until(func() bool { return p.ba.Err() != nil })
	assert.ErrorIs(t, p.ba.Err(), ucs.ErrConnReset)
	var err error
	p.ab, err = p.a.NewEP(p.b.Address(), mode)
	require.NoError(t, err)
	p.ba, err = p.b.NewEP(p.a.Address(), mode)
	require.NoError(t, err)
	r, err := p.b.TagRecv(make([]byte, 8), 1, all, nil, nil)
	require.NoError(t, err)
	require.NoError(t, p.wait(p.ab.TagSendSync(1, make([]byte, 8), nil)))
	require.NoError(t, p.wait(r, nil))
}
