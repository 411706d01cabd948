package ucxpeer_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/ucxwire"
	"github.com/gucx/gucx/ucp/ucxpeer"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ucxtcp"
)

var le = binary.LittleEndian

// hostile is a peer that can send any bytes over a connection of UCX's transport.
type hostile struct {
	t      *testing.T
	w      *ucxpeer.Worker
	ip     [4]byte      // IP address of both sides
	listen net.Listener // the port that the peer claims to listen on
	claim  [4]byte      // the IP address that the peer claims to listen on
	conn   net.Conn
	ep     uint64 // an endpoint of the worker, which the peer has requested
	uuid   uint64
	serial uint64          // of the next connection
	target ucxwire.Address // of the worker
}

// Frames of the transport.
const (
	frameCM     = 32
	framePut    = 33
	framePutAck = 34
	connRequest = 1
	connAck     = 2
	connJoin    = 3 // an ACK that is a request too
	connFin     = 4
)

func newHostile(t *testing.T, w *ucxpeer.Worker) *hostile {
	return newHostileAt(t, w, [4]byte{127, 0, 0, 1})
}

func newHostileAt(t *testing.T, w *ucxpeer.Worker, ip [4]byte) *hostile {
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: ip[:]})
	require.NoError(t, err)
	h := &hostile{t: t, w: w, ip: ip, listen: l, claim: ip, uuid: rand.Uint64()}
	h.target, _, err = ucxwire.DecodeAddress(w.Address(), ucxwire.Layout{})
	require.NoError(t, err)
	t.Cleanup(func() { h.hangUp(); _ = l.Close() })
	return h
}

func (h *hostile) hangUp() {
	if h.conn != nil {
		_ = h.conn.Close()
		h.conn = nil
		h.uuid++ // another worker's next time, because the worker may not have detected the end of this connection
	}
}

// connect opens a connection and receives the id of an endpoint.
func (h *hostile) connect() {
	h.open()
	for h.ep = 0; h.ep == 0; {
		id, body := h.read()
		if id == frameCM && le.Uint32(body)&connRequest != 0 { // the worker sends on this connection too
			h.send(frameCM, le.AppendUint32(nil, connAck))
		}
		if m, err := ucxwire.DecodeWireup(body); id == ucxwire.IDWireup && err == nil {
			h.ep = m.SrcEP
		}
	}
}

// open opens a connection and requests an endpoint.
func (h *hostile) open() {
	h.dial()
	h.wireup(ucxwire.WireupMsg{Type: ucxwire.WireupRequest, SrcEP: 0x4001})
}

// dial opens a connection.
func (h *hostile) dial() {
	h.hangUp()
	port := binary.BigEndian.Uint16(h.target.Devices[0].Ifaces[0].Addr)
	conn, err := net.DialTCP("tcp4", nil, &net.TCPAddr{IP: h.ip[:], Port: int(port)})
	require.NoError(h.t, err)
	h.conn = conn
	_, err = conn.Write(le.AppendUint64(nil, 0xCAFEBABE12345678))
	require.NoError(h.t, err)
	h.send(frameCM, h.request(h.serial))
	h.serial++
}

// request sends a connection request with a serial number.
func (h *hostile) request(serial uint64) []byte {
	own := uint16(h.listen.Addr().(*net.TCPAddr).Port)
	b := append(le.AppendUint32(nil, connRequest), 0)
	b = le.AppendUint64(b, serial)
	b = append(append(b, 2, 0, byte(own>>8), byte(own)), h.claim[:]...)
	return append(b, make([]byte, 8)...)
}

// send writes a frame. It ignores errors, which mean that the worker has broken the connection.
func (h *hostile) send(id uint8, body []byte) bool { return h.sendWithin(testenv.Watchdog, id, body) }

// sendWithin is send to a worker that may have stopped reading.
func (h *hostile) sendWithin(limit time.Duration, id uint8, body []byte) bool {
	frame := le.AppendUint32([]byte{id}, uint32(len(body)))
	_ = h.conn.SetWriteDeadline(time.Now().Add(limit))
	_, err := h.conn.Write(append(frame, body...))
	return err == nil
}

// read returns the next frame while the worker makes progress.
func (h *hostile) read() (id uint8, body []byte) {
	var head [5]byte
	h.full(head[:])
	body = make([]byte, le.Uint32(head[1:]))
	h.full(body)
	return head[0], body
}

// full reads len(b) bytes while the worker makes progress.
func (h *hostile) full(b []byte) {
	n := 0
	testenv.ProgressWithin(h.t, testenv.Watchdog, func() bool {
		if h.w.Progress(); n == len(b) {
			return true
		}
		_ = h.conn.SetReadDeadline(time.Now().Add(time.Millisecond))
		k, err := h.conn.Read(b[n:])
		if n += k; err != nil {
			require.ErrorIs(h.t, err, os.ErrDeadlineExceeded)
		}
		return n == len(b)
	})
}

// broken reports whether the worker has broken the connection.
func (h *hostile) broken() bool {
	var b [4096]byte
	_ = h.conn.SetReadDeadline(time.Now().Add(50 * time.Microsecond))
	_, err := h.conn.Read(b[:])
	var timeout net.Error
	return err != nil && (!errors.As(err, &timeout) || !timeout.Timeout())
}

func (h *hostile) expectBroken() {
	h.t.Helper()
	testenv.ProgressWithin(h.t, time.Minute, func() bool {
		h.w.Progress()
		return h.broken()
	})
}

// guarded is memory of which only the middle is registered for peers.
type guarded struct {
	whole []byte
	mem   *ucxpeer.Mem
}

func newGuarded(t *testing.T, w *ucxpeer.Worker, access uct.Access) *guarded {
	g := &guarded{whole: pattern(3*4096, 9)}
	var err error
	g.mem, err = w.MemMap(g.whole[4096:8192], access)
	require.NoError(t, err)
	return g
}

func (g *guarded) check(t *testing.T, window bool) {
	t.Helper()
	want := pattern(3*4096, 9)
	assert.True(t, bytes.Equal(want[:4096], g.whole[:4096]) && bytes.Equal(want[8192:], g.whole[8192:]), "written outside of the window")
	if window {
		assert.True(t, bytes.Equal(want, g.whole), "written without the right")
	}
}

// TestHostile: each invalid message breaks the connection, and accesses no memory.
func TestHostile(t *testing.T) {
	w := newWorker(t, ucxpeer.Config{MaxActive: 1 << 20})
	g := newGuarded(t, w, uct.AccessRemoteRead)
	h := newHostile(t, w)
	u64 := func(v uint64) []byte { return le.AppendUint64(nil, v) }
	for _, c := range []struct {
		name string
		id   uint8
		body func() []byte
	}{
		{"put of the transport", framePut, func() []byte {
			return le.AppendUint32(append(u64(g.mem.Addr()), u64(8)...), 0)
		}},
		{"short header", ucxwire.IDEager, func() []byte { return make([]byte, 7) }},
		{"put without the right", ucxwire.IDPut, func() []byte {
			return append(ucxwire.AppendPut(nil, ucxwire.Put{Addr: g.mem.Addr(), EP: h.ep}), make([]byte, 100)...)
		}},
		{"get behind the end", ucxwire.IDGetRequest, func() []byte {
			return ucxwire.AppendGetRequest(nil, &ucxwire.GetRequest{Addr: g.mem.Addr() + 4000, Size: 97, EP: h.ep, Req: 1})
		}},
		{"get of all memory", ucxwire.IDGetRequest, func() []byte {
			return ucxwire.AppendGetRequest(nil, &ucxwire.GetRequest{Addr: g.mem.Addr(), Size: 1 << 63, EP: h.ep, Req: 1})
		}},
		{"get of other memory", ucxwire.IDGetRequest, func() []byte {
			return ucxwire.AppendGetRequest(nil, &ucxwire.GetRequest{Addr: g.mem.Addr(), Size: 8, EP: h.ep, Req: 1, Memory: 3})
		}},
		{"atomic of 2 bytes", ucxwire.IDAtomic, func() []byte {
			return append(ucxwire.AppendAtomic(nil, &ucxwire.Atomic{Addr: g.mem.Addr(), EP: h.ep, Size: 8})[:24], 2, 0, 1, 0)
		}},
		{"unknown atomic", ucxwire.IDAtomic, func() []byte {
			return ucxwire.AppendAtomic(nil, &ucxwire.Atomic{Addr: g.mem.Addr(), EP: h.ep, Size: 8, Op: 9})
		}},
		{"atomic without the right", ucxwire.IDAtomic, func() []byte {
			return ucxwire.AppendAtomic(nil, &ucxwire.Atomic{Addr: g.mem.Addr(), EP: h.ep, Size: 8, Value: 1})
		}},
		{"fragment of no message", ucxwire.IDEagerMiddle, func() []byte {
			return append(ucxwire.AppendFragment(nil, ucxwire.Fragment{Name: 1}), 1)
		}},
		{"message of 2^60 bytes", ucxwire.IDEagerFirst, func() []byte {
			return ucxwire.AppendEagerFirst(nil, ucxwire.EagerFirst{Tag: 1, Total: 1 << 60, MsgID: 1})
		}},
		{"active message of 2 MiB", ucxwire.IDAMFirst, func() []byte {
			return ucxwire.AppendAMFirstTail(ucxwire.AppendAMHead(nil, 1, 0, 0), 1, h.ep, 2<<20)
		}},
		{"active header longer than the message", ucxwire.IDAM, func() []byte { return ucxwire.AppendAMHead(nil, 1, 0, 1<<31) }},
		{"completion of nothing", ucxwire.IDCompletion, func() []byte { return ucxwire.AppendCompletion(nil, h.ep) }},
		{"wireup of an unknown type", ucxwire.IDWireup, func() []byte { return bytes.Repeat([]byte{9}, 40) }},
		{"another endpoint for the same EP", ucxwire.IDWireup, func() []byte {
			return ucxwire.AppendWireup(nil, &ucxwire.WireupMsg{Type: ucxwire.WireupReply, SrcEP: 77, DstEP: h.ep,
				Address: ucxwire.Address{Version: 1, Release: ucxwire.NoRelease, HasUUID: true, UUID: h.uuid}})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h.t = t
			h.connect()
			before := w.Stats().Malformed
			require.True(t, h.send(c.id, c.body()))
			h.expectBroken()
			if c.id != framePut {
				assert.Equal(t, before+1, w.Stats().Malformed)
			}
			g.check(t, true)
		})
	}
}

// TestHostile_UnknownIDs: messages with ids of endpoints and requests that do not exist have no effect.
func TestHostile_UnknownIDs(t *testing.T) {
	w := newWorker(t, ucxpeer.Config{})
	h := newHostile(t, w)
	h.connect()
	for id := uint8(2); id <= ucxwire.LargestID; id++ {
		body := make([]byte, 64)
		body[8], body[16] = 1, 1
		switch id {
		case ucxwire.IDEager, ucxwire.IDEagerMiddle, ucxwire.IDAM: // have no id, or that of a message
			continue
		case ucxwire.IDGetRequest:
			body = body[:ucxwire.GetRequestLen]
		case ucxwire.IDAtomic:
			body = ucxwire.AppendAtomic(nil, &ucxwire.Atomic{Addr: 1, EP: 1, Size: 8})
		case ucxwire.IDAtomicReply:
			body = body[:16]
		case ucxwire.IDCompletion:
			body = body[:8]
		case ucxwire.IDEagerFirst:
			le.PutUint64(body[8:], 40)
		case ucxwire.IDSyncFirst:
			le.PutUint64(body[8:], 24)
		case ucxwire.IDAMFirst, ucxwire.IDAMFirstPSN:
			le.PutUint64(body[56:], 100)
		case ucxwire.IDRTR:
			clear(body[32:40])
			body[8] = 1
		}
		require.True(t, h.send(id, body), "message %d", id)
		for range 50 {
			w.Progress()
		}
		assert.False(t, h.broken(), "message %d", id)
	}
	assert.Greater(t, w.Stats().Late, uint64(10))
	assert.Zero(t, w.Stats().Malformed)
}

// TestHostile_Random: random messages that are nearly valid cause no panic, no write outside of the window, and no
// unlimited use of memory.
func TestHostile_Random(t *testing.T) {
	const limit = 1 << 20
	w := newWorker(t, ucxpeer.Config{MaxActive: limit, MaxBuffered: limit})
	g := newGuarded(t, w, uct.AccessAll)
	w.OnActive(1, func(m *ucxpeer.ActiveMessage) { m.Reject() })
	h := newHostile(t, w)
	random := rand.New(rand.NewPCG(1, 2))
	words := []uint64{0, 1, 7, 8, 4096, 1 << 20, 1 << 31, 1 << 32, 1 << 63, ^uint64(0), ^uint64(7)}
	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range testenv.Rounds(200, 100000) {
		if h.conn == nil || h.broken() {
			h.connect()
		}
		id := uint8(random.IntN(36))
		var body []byte
		for range random.IntN(8) {
			v := words[random.IntN(len(words))]
			switch random.IntN(4) {
			case 0:
				v = h.ep
			case 1:
				v = g.mem.Addr() + uint64(random.IntN(5000)) - 200
			}
			body = le.AppendUint64(body, v)
		}
		body = append(body, pattern(random.IntN(300), random.IntN(256))...)
		if len(body) > 0 && random.IntN(4) == 0 {
			body = body[:random.IntN(len(body))]
		}
		if !h.sendWithin(time.Millisecond, id, body) {
			h.hangUp()
		}
		for range 3 {
			w.Progress()
		}
	}
	g.check(t, false)
	var after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&after)
	assert.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(64<<20), "what the peer has sent is kept")

	// The worker still serves an honest peer.
	a := newWorker(t, ucxpeer.Config{})
	ep, err := a.NewEP(w.Address(), ucxpeer.EPConfig{})
	require.NoError(t, err)
	p := &two{t: t, a: a, b: w, ab: ep}
	buf := make([]byte, 100)
	r, err := w.TagRecv(buf, 0xabcdef12345, all, nil, nil)
	require.NoError(t, err)
	require.NoError(t, p.wait(ep.TagSend(0xabcdef12345, pattern(100, 1), nil)))
	require.NoError(t, p.wait(r, nil))
	assert.Equal(t, pattern(100, 1), buf)
}

// accept accepts the connection of the worker to the peer, and replies to its request with event.
func (h *hostile) accept(event uint32) {
	h.hangUp()
	testenv.ProgressWithin(h.t, testenv.Watchdog, func() bool { h.w.Progress(); return h.dialed() })
	h.answer(event)
}

// dialed accepts a connection of the worker to the peer, if there is one.
func (h *hostile) dialed() bool {
	require.NoError(h.t, h.listen.(*net.TCPListener).SetDeadline(time.Now().Add(time.Millisecond)))
	conn, err := h.listen.Accept()
	if err != nil {
		require.ErrorIs(h.t, err, os.ErrDeadlineExceeded)
		return false
	}
	h.conn = conn
	return true
}

// answer replies to the request of the worker on the connection with event.
func (h *hostile) answer(event uint32) {
	h.full(make([]byte, 8)) // the magic number
	id, _ := h.read()
	require.Equal(h.t, uint8(frameCM), id)
	h.send(frameCM, le.AppendUint32(nil, event))
}

// address returns the address of the peer, as a worker of UCX would have it.
func (h *hostile) address() ucxwire.Address {
	own := uint16(h.listen.Addr().(*net.TCPAddr).Port)
	a, _, err := ucxwire.DecodeAddress(h.w.Address(), ucxwire.Layout{})
	require.NoError(h.t, err)
	a.UUID = h.uuid
	a.Devices[0].Ifaces[0].Addr = []byte{byte(own >> 8), byte(own)}
	return a
}

// nameOn creates an EP to the peer, whose address has devices with these IP addresses.
func (h *hostile) nameOn(ips ...[4]byte) {
	a := h.address()
	first := a.Devices[0]
	a.Devices = nil
	for _, ip := range ips {
		d := first
		if d.Addr[0] == 0 || ip != h.ip { // otherwise d.Addr is that of a loopback device
			d.Addr = append([]byte{0, 2}, ip[:]...)
		}
		a.Devices = append(a.Devices, d)
	}
	_, err := h.w.NewEP(ucxwire.AppendAddress(nil, &a, ucxwire.Layout{}), ucxpeer.EPConfig{})
	require.NoError(h.t, err)
}

// otherNetwork returns a network with IPv4 that is not loopback. The test skips if there is none.
func otherNetwork(t *testing.T) (ip [4]byte, cfg ucxpeer.Config) {
	for _, n := range networks(t) {
		if n.ip.Is4() {
			return n.ip.As4(), ucxpeer.Config{Device: n.device, TCP: ucxtcp.Config{Family: n.family}}
		}
	}
	t.Skip("this host has an IPv4 address on loopback only")
	return
}

// TestNewEP_AllowsSources: a peer whose address lists several devices may connect from one and claim to listen on another.
func TestNewEP_AllowsSources(t *testing.T) {
	ip, cfg := otherNetwork(t)
	w := newWorker(t, cfg)
	h := newHostileAt(t, w, ip)
	h.claim = [4]byte{198, 51, 100, 1}
	h.dial()
	h.expectBroken()
	h.nameOn(ip, h.claim)
	h.dial()
	id, body := h.read()
	assert.Equal(t, uint8(frameCM), id)
	assert.Equal(t, uint32(connAck), le.Uint32(body))

	h.claim = [4]byte{198, 51, 100, 2} // not in the address of the peer
	h.dial()
	h.expectBroken()
}

// TestNewEP_OtherHosts: if the address of a peer on another host contains IP addresses of this host, no process of this
// host can connect as that peer.
func TestNewEP_OtherHosts(t *testing.T) {
	t.Run("loopback", func(t *testing.T) {
		w := newWorker(t, ucxpeer.Config{})
		h := newHostile(t, w)
		h.claim = [4]byte{127, 0, 0, 2}
		h.nameOn(h.ip, h.claim)
		h.dial()
		h.expectBroken()
	})
	t.Run("private", func(t *testing.T) {
		ip, cfg := otherNetwork(t)
		h := newHostileAt(t, newWorker(t, cfg), ip)
		h.claim = ip
		h.claim[3] ^= 1
		if ucxtcp.IsLocal(netip.AddrFrom4(h.claim)) {
			t.Skip("this host has several addresses of the network")
		}
		h.nameOn(h.claim, ip) // of two devices in the same network, the first is used
		h.dial()
		h.expectBroken()
	})
}

// TestNewEP_Serials: the numbers of the EPs to a worker continue after earlier EPs were closed, as in UCX.
func TestNewEP_Serials(t *testing.T) {
	w := newWorker(t, ucxpeer.Config{})
	h := newHostile(t, w)
	address := h.address()
	for i := range uint16(3) {
		e, err := w.NewEP(ucxwire.AppendAddress(nil, &address, ucxwire.Layout{}), ucxpeer.EPConfig{PeerErrors: true})
		require.NoError(t, err)
		h.accept(connAck)
		id, body := h.read()
		require.Equal(t, ucxwire.IDWireup, id)
		m, err := ucxwire.DecodeWireup(body)
		require.NoError(t, err)
		assert.Equal(t, i, m.ConnSN)
		_, err = e.Close(ucxpeer.CloseForce)
		require.NoError(t, err)
	}
}

// TestHostile_UnreadReplies: the connection of a peer that does not read the replies to its requests is broken.
func TestHostile_UnreadReplies(t *testing.T) {
	w := newWorker(t, ucxpeer.Config{TCP: ucxtcp.Config{SndBuf: 64 << 10, RcvBuf: 64 << 10}})
	h := newHostile(t, w)
	h.connect()
	frame := ucxwire.AppendWireup(nil, &ucxwire.WireupMsg{Type: ucxwire.WireupRequest, SrcEP: 0x4001, DstEP: h.ep, Address: h.address()})
	frame = append(le.AppendUint32([]byte{ucxwire.IDWireup}, uint32(len(frame))), frame...)
	flood := bytes.Repeat(frame, 64)
	rest := flood
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
		_ = h.conn.SetWriteDeadline(time.Now().Add(time.Millisecond))
		n, err := h.conn.Write(rest)
		if rest = rest[n:]; len(rest) == 0 {
			rest = flood
		}
		w.Progress()
		return err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
	})
	assert.Equal(t, uint64(1), w.Stats().Malformed)
}

// TestHostile_OtherPeersIDs: messages with the id of another peer's endpoint have no effect.
func TestHostile_OtherPeersIDs(t *testing.T) {
	w := newWorker(t, ucxpeer.Config{})
	mem, err := w.MemMap(make([]byte, 8), uct.AccessAll)
	require.NoError(t, err)
	victim, h := newHostile(t, w), newHostile(t, w)
	victim.connect()
	h.connect()
	bare := ucxwire.Address{Version: 1, Release: ucxwire.NoRelease, HasUUID: true, UUID: victim.uuid}
	removed := ucxwire.AppendWireup(nil, &ucxwire.WireupMsg{Type: ucxwire.WireupEPRemoved, DstEP: victim.ep, Address: bare})
	h.send(ucxwire.IDWireup, removed)
	h.send(ucxwire.IDStream, append(ucxwire.AppendStream(nil, ucxwire.Stream{EP: victim.ep}), 1))
	h.send(ucxwire.IDPut, append(ucxwire.AppendPut(nil, ucxwire.Put{Addr: mem.Addr(), EP: victim.ep, Memory: ucxwire.HostMemory}), 1))
	h.send(ucxwire.IDCompletion, ucxwire.AppendCompletion(nil, victim.ep))
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
		w.Progress()
		return w.Stats().Late >= 3
	})
	assert.Equal(t, make([]byte, 8), mem.Bytes())
	assert.Zero(t, w.Stats().Malformed)
	assert.False(t, h.broken())

	put := append(ucxwire.AppendPut(nil, ucxwire.Put{Addr: mem.Addr(), EP: victim.ep, Memory: ucxwire.HostMemory}), 7)
	victim.send(ucxwire.IDPut, put)
	id, _ := victim.read()
	assert.Equal(t, ucxwire.IDCompletion, id, "the victim is served as before")
	assert.Equal(t, byte(7), mem.Bytes()[0])
}

// TestHostile_ClaimsUUID: a peer with the UUID of another worker does not receive messages for that worker.
func TestHostile_ClaimsUUID(t *testing.T) {
	a, b := newWorker(t, ucxpeer.Config{}), newWorker(t, ucxpeer.Config{})
	address, _, err := ucxwire.DecodeAddress(b.Address(), ucxwire.Layout{})
	require.NoError(t, err)
	h := newHostile(t, a)
	h.uuid = address.UUID
	h.connect()
	p := &two{t: t, a: a, b: b}
	p.ab, err = a.NewEP(b.Address(), ucxpeer.EPConfig{})
	require.NoError(t, err)
	_, err = p.ab.TagSend(1, []byte("secret"), nil)
	require.NoError(t, err)
	buf := make([]byte, 6)
	require.NoError(t, p.wait(b.TagRecv(buf, 1, all, nil, nil)))
	assert.Equal(t, "secret", string(buf))
}

// TestHostile_ManyEPs: the EPs that one source can create are limited, until one is closed.
func TestHostile_ManyEPs(t *testing.T) {
	const most = 256
	w := newWorker(t, ucxpeer.Config{})
	h := newHostile(t, w)
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}()
	for range most + 10 { // closed EPs do not count
		h.connect()
	}
	h.hangUp()
	for range most {
		h.connect()
		conns = append(conns, h.conn)
		h.conn, h.uuid = nil, h.uuid+1
	}
	assert.Zero(t, w.Stats().Refused)
	h.open()
	h.expectBroken() // so that the peer does not wait for a reply
	assert.Equal(t, uint64(1), w.Stats().Refused)
	assert.Zero(t, w.Stats().Malformed)
}

// TestPeerEPs: the configuration limits the EPs that peers create. EPs that the program has admitted do not count.
func TestPeerEPs(t *testing.T) {
	w := newWorker(t, ucxpeer.Config{MaxPeerEPs: 3, MaxPeerEPsPerSource: 2})
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}()
	h := newHostile(t, w)
	var from *ucxpeer.EP
	w.OnActive(7, func(m *ucxpeer.ActiveMessage) { from = m.From })
	for range 5 { // more than the limit
		h.connect()
		from = nil
		h.send(ucxwire.IDAMReply, ucxwire.AppendAMReplyTail(ucxwire.AppendAMHead(nil, 7, ucxwire.FlagAMReply, 0), h.ep))
		testenv.ProgressWithin(t, testenv.Watchdog, func() bool { w.Progress(); return from != nil })
		from.Admit()
		from.Admit()
		conns = append(conns, h.conn)
		h.conn, h.uuid = nil, h.uuid+1
	}
	for range 2 {
		h.connect()
		conns = append(conns, h.conn)
		h.conn, h.uuid = nil, h.uuid+1
	}
	assert.Zero(t, w.Stats().Refused)
	h.open()
	h.expectBroken()
	assert.Equal(t, uint64(1), w.Stats().Refused)
	_, err := ucxpeer.NewWorker(ucxpeer.Config{MaxPeerEPsPerSource: -1})
	assert.ErrorIs(t, err, ucs.ErrInvalidParam)
}

// TestPeerEPs_Removed: a peer that has an EP and requests one above the limit gets a rejection on that EP.
func TestPeerEPs_Removed(t *testing.T) {
	w := newWorker(t, ucxpeer.Config{MaxPeerEPs: 1})
	h := newHostile(t, w)
	h.connect()
	h.wireup(ucxwire.WireupMsg{Type: ucxwire.WireupRequest, ConnSN: 1, SrcEP: 0x4002})
	m := h.readWireup()
	assert.Equal(t, ucxwire.WireupEPRemoved, m.Type)
	assert.Equal(t, uint64(0x4002), m.DstEP)
	assert.Equal(t, uint64(1), w.Stats().Refused)
	h.wireup(ucxwire.WireupMsg{Type: ucxwire.WireupRequest, SrcEP: 0x4001}) // the first EP still exists
	assert.Equal(t, ucxwire.WireupReply, h.readWireup().Type)
}

// TestHostile_DisconnectsRepeatedly: the total limit applies to a peer that connects, sends and disconnects repeatedly.
// When its messages are received, peers are served again.
func TestHostile_DisconnectsRepeatedly(t *testing.T) {
	w := newWorker(t, ucxpeer.Config{MaxBuffered: 64 << 10, MaxBufferedTotal: 128 << 10})
	h := newHostile(t, w)
	eager := func(tag uint64) []byte {
		return append(ucxwire.AppendEager(nil, ucxwire.Eager{Tag: tag}), make([]byte, 4096)...)
	}
	for range 200 {
		h.connect()
		for range 10 {
			h.send(ucxwire.IDEager, eager(1))
		}
		for range 20 {
			w.Progress()
		}
		h.hangUp()
		if w.Stats().Overflows > 0 {
			break
		}
	}
	require.Positive(t, w.Stats().Overflows)
	for ok := true; ok; {
		w.Progress()
		var m *ucxpeer.TagMessage
		if m, _, ok = w.TagProbe(1, all, true); ok {
			m.Release()
		}
	}
	h.connect()
	h.send(ucxwire.IDEager, eager(2))
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
		w.Progress()
		m, _, ok := w.TagProbe(1, all, true) // a message of a connection that is read again
		if ok {
			m.Release()
		}
		_, _, ok = w.TagProbe(2, all, false)
		return ok
	})
}

// TestHostile_ManyIncomplete: the incomplete messages of a connection are limited, separately for each connection.
func TestHostile_ManyIncomplete(t *testing.T) {
	w := newWorker(t, ucxpeer.Config{})
	honest, h := newHostile(t, w), newHostile(t, w)
	honest.connect()
	h.connect()
	begin := func(tag, id uint64) []byte {
		return ucxwire.AppendEagerFirst(nil, ucxwire.EagerFirst{Tag: tag, Total: 1, MsgID: id})
	}
	for id := range uint64(1025) {
		h.send(ucxwire.IDEagerFirst, begin(1, id+1))
		w.Progress()
	}
	h.expectBroken()
	honest.send(ucxwire.IDEagerFirst, begin(2, 1))
	honest.send(ucxwire.IDEagerMiddle, append(ucxwire.AppendFragment(nil, ucxwire.Fragment{Name: 1}), 7))
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
		w.Progress()
		m, _, ok := w.TagProbe(2, all, true)
		if !ok {
			return false
		}
		r, err := m.Recv(make([]byte, 1), nil, nil)
		return assert.NoError(t, err) && assert.True(t, r.Done())
	})
}

// TestRequest_RepliesOnSameConnection: the reply to a wireup request is sent on the connection of the request, also if
// the peer has other connections, or the number of the endpoint is not the next one.
func TestRequest_RepliesOnSameConnection(t *testing.T) {
	w := newWorker(t, ucxpeer.Config{})
	h := newHostile(t, w)
	for _, serial := range []uint64{1, 7, 0, 3} {
		h.serial = serial
		h.connect()
		assert.NotZero(t, h.ep)
	}
}
