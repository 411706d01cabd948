package ucxpeer_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/ucxwire"
	"github.com/gucx/gucx/ucp/ucxpeer"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ucxtcp"
)

// two has two workers in this process, each with an EP to the other.
type two struct {
	t    *testing.T
	a, b *ucxpeer.Worker
	ab   *ucxpeer.EP
	ba   *ucxpeer.EP
}

func connectTwo(t *testing.T, cfg ucxpeer.Config, mode ucxpeer.EPConfig) *two {
	p := &two{t: t, a: newWorker(t, cfg), b: newWorker(t, cfg)}
	var err error
	p.ab, err = p.a.NewEP(p.b.Address(), mode)
	require.NoError(t, err)
	p.ba, err = p.b.NewEP(p.a.Address(), mode)
	require.NoError(t, err)
	return p
}

// until makes progress on both sides.
func (p *two) until(done func() bool) {
	p.t.Helper()
	testenv.ProgressWithin(p.t, time.Minute, func() bool {
		p.a.Progress()
		p.b.Progress()
		return done()
	})
}

func (p *two) wait(r *ucxpeer.Request, err error) error {
	p.t.Helper()
	if err != nil {
		return err
	}
	p.until(r.Done)
	return r.Err()
}

const all = ^uint64(0)

func TestTag(t *testing.T) {
	p := connectTwo(t, ucxpeer.Config{}, ucxpeer.EPConfig{})
	for i, n := range sizes {
		for _, expected := range []bool{true, false} {
			buf := make([]byte, n)
			var info ucxpeer.TagInfo
			var recv *ucxpeer.Request
			var err error
			if expected {
				recv, err = p.b.TagRecv(buf, 5, all, &info, nil)
				require.NoError(t, err)
			}
			send, err := p.ab.TagSend(5, pattern(n, i), nil)
			require.NoError(t, err)
			if !expected {
				p.until(func() bool { _, _, ok := p.b.TagProbe(5, all, false); return ok })
				recv, err = p.b.TagRecv(buf, 5, all, &info, nil)
			}
			require.NoError(t, p.wait(recv, err))
			require.NoError(t, p.wait(send, nil))
			require.Equal(t, pattern(n, i), buf)
			assert.Equal(t, ucxpeer.TagInfo{Tag: 5, Length: n}, info)
		}
	}
	assert.Zero(t, p.b.Stats())
}

func TestTag_Order(t *testing.T) {
	p := connectTwo(t, ucxpeer.Config{}, ucxpeer.EPConfig{})
	for i := range 100 {
		_, err := p.ab.TagSend(uint64(i%2), pattern(i*300, i), nil)
		require.NoError(t, err)
	}
	for i := range 100 {
		buf := make([]byte, i*300)
		require.NoError(t, p.wait(p.b.TagRecv(buf, uint64(i%2), all, nil, nil)))
		require.Equal(t, pattern(i*300, i), buf)
	}
}

func TestTag_SyncWaitsForTheReceive(t *testing.T) {
	p := connectTwo(t, ucxpeer.Config{}, ucxpeer.EPConfig{})
	for _, n := range sizes {
		done := false
		send, err := p.ab.TagSendSync(1, pattern(n, 1), &ucxpeer.OpParams{OnDone: func(error) { done = true }})
		require.NoError(t, err)
		p.until(func() bool { _, _, ok := p.b.TagProbe(1, all, false); return ok })
		assert.False(t, send.Done())
		require.NoError(t, p.wait(p.b.TagRecv(make([]byte, n), 1, all, nil, nil)))
		require.NoError(t, p.wait(send, nil))
		assert.True(t, done)
	}
}

func TestTag_CancelAndTruncate(t *testing.T) {
	p := connectTwo(t, ucxpeer.Config{}, ucxpeer.EPConfig{})
	r, err := p.b.TagRecv(make([]byte, 8), 1, all, nil, nil)
	require.NoError(t, err)
	assert.True(t, r.Cancel())
	assert.ErrorIs(t, r.Err(), ucs.ErrCanceled)
	assert.False(t, r.Cancel())

	for _, n := range []int{8, 20000, 1 << 20} {
		buf := make([]byte, n/2)
		var info ucxpeer.TagInfo
		r, err := p.b.TagRecv(buf, 1, all, &info, nil)
		require.NoError(t, err)
		require.NoError(t, p.wait(p.ab.TagSend(1, pattern(n, 1), nil)))
		assert.ErrorIs(t, p.wait(r, nil), ucs.ErrTruncated)
		assert.Equal(t, n, info.Length)
	}
}

func TestTag_ProbeRemoves(t *testing.T) {
	p := connectTwo(t, ucxpeer.Config{}, ucxpeer.EPConfig{})
	for _, n := range []int{8, 20000, 1 << 20} {
		var m *ucxpeer.TagMessage
		probe := func() (ok bool) { m, _, ok = p.b.TagProbe(0, 0, true); return ok }
		send, err := p.ab.TagSend(9, pattern(n, 1), nil)
		require.NoError(t, err)
		p.until(probe)
		buf := make([]byte, n)
		require.NoError(t, p.wait(m.Recv(buf, nil, nil)))
		assert.Equal(t, pattern(n, 1), buf)
		require.NoError(t, p.wait(send, nil))

		send, err = p.ab.TagSendSync(9, pattern(n, 1), nil)
		require.NoError(t, err)
		p.until(probe)
		m.Release()
		assert.ErrorIs(t, p.wait(send, nil), ucs.ErrCanceled, "%d bytes", n)
	}
}

func TestTag_Buffers(t *testing.T) {
	p := connectTwo(t, ucxpeer.Config{}, ucxpeer.EPConfig{})
	for _, n := range []int{100, 30000, 600000} {
		b := pattern(n, 3)
		got := [][]byte{make([]byte, 7), make([]byte, n/2), make([]byte, n-n/2-7)}
		r, err := p.b.TagRecvData(ucxpeer.Buffers(got), 1, all, nil, nil)
		require.NoError(t, err)
		require.NoError(t, p.wait(p.ab.TagSendData(1, ucxpeer.Buffers([][]byte{b[:n/3], b[n/3 : n/2], b[n/2:]}), nil)))
		require.NoError(t, p.wait(r, nil))
		assert.Equal(t, b, append(append(append([]byte(nil), got[0]...), got[1]...), got[2]...))
	}
}

func TestActive(t *testing.T) {
	p := connectTwo(t, ucxpeer.Config{}, ucxpeer.EPConfig{})
	var got []byte
	var from *ucxpeer.EP
	var fetch *ucxpeer.Request
	arrived := false
	p.b.OnActive(3, func(m *ucxpeer.ActiveMessage) {
		assert.Equal(t, "head", string(m.Header))
		got, from = make([]byte, m.Length), m.From
		var err error
		fetch, err = m.Recv(got, nil)
		assert.NoError(t, err)
		arrived = true
	})
	for i, n := range sizes {
		for _, reply := range []bool{false, true} {
			arrived = false
			require.NoError(t, p.wait(p.ab.SendActive(3, []byte("head"), pattern(n, i), &ucxpeer.OpParams{Reply: reply})))
			p.until(func() bool { return arrived && fetch.Done() })
			require.NoError(t, fetch.Err())
			require.Equal(t, pattern(n, i), got)
			if reply {
				assert.Equal(t, p.ba, from)
			} else {
				assert.Nil(t, from)
			}
		}
	}
	require.ErrorIs(t, p.wait(p.ab.SendActive(3, make([]byte, 9000), nil, nil)), ucs.ErrTooLong)
}

func TestActive_WithoutHandler(t *testing.T) {
	p := connectTwo(t, ucxpeer.Config{}, ucxpeer.EPConfig{})
	require.NoError(t, p.wait(p.ab.SendActive(3, nil, []byte("lost"), nil)))
	p.until(func() bool { return p.b.Stats().Unhandled == 1 })
	assert.ErrorIs(t, p.wait(p.ab.SendActive(3, nil, make([]byte, 1<<20), nil)), ucs.ErrRejected)
}

func TestSendActive_Allocs(t *testing.T) {
	p := connectTwo(t, ucxpeer.Config{}, ucxpeer.EPConfig{})
	came, sent := 0, 0
	p.b.OnActive(3, func(*ucxpeer.ActiveMessage) { came++ })
	header, data := []byte("head"), make([]byte, 8)
	exchange := func() {
		_, _ = p.ab.SendActive(3, header, data, nil)
		sent++
		for came < sent {
			p.a.Progress()
			p.b.Progress()
		}
	}
	exchange()
	testenv.NoAllocs(t, "send and receive an active message", exchange)
}

func TestStream(t *testing.T) {
	p := connectTwo(t, ucxpeer.Config{}, ucxpeer.EPConfig{})
	for i, n := range sizes[1:] {
		buf := make([]byte, n)
		r, err := p.ba.StreamRecv(buf, true, nil)
		require.NoError(t, err)
		require.NoError(t, p.wait(p.ab.StreamSend(pattern(n, i), nil)))
		require.NoError(t, p.wait(r, nil))
		require.Equal(t, pattern(n, i), buf)
	}
	require.NoError(t, p.wait(p.ab.StreamSend([]byte("some"), nil)))
	buf := make([]byte, 100)
	r, err := p.ba.StreamRecv(buf, false, nil)
	require.NoError(t, p.wait(r, err))
	assert.Equal(t, "some", string(buf[:r.Count()]))

	r, err = p.ba.StreamRecv(buf, false, nil)
	require.NoError(t, err)
	assert.True(t, r.Cancel())
}

// TestStream_CallbackReceives: OnDone of a receive that completes at once may receive more, in order, and close the EP.
func TestStream_CallbackReceives(t *testing.T) {
	p := connectTwo(t, ucxpeer.Config{}, ucxpeer.EPConfig{})
	want := pattern(64, 1)
	for i := range want { // one piece each
		require.NoError(t, p.wait(p.ab.StreamSend(want[i:i+1], nil)))
	}
	require.NoError(t, p.wait(p.ab.TagSend(1, nil, nil)))
	require.NoError(t, p.wait(p.b.TagRecv(nil, 1, all, nil, nil))) // after all of them
	var got []byte
	var receive func()
	receive = func() {
		buf := make([]byte, 4)
		_, err := p.ba.StreamRecv(buf, true, &ucxpeer.OpParams{OnDone: func(err error) {
			if assert.NoError(t, err); len(got)+len(buf) <= len(want) {
				got = append(got, buf...)
			}
			if len(got) < len(want)/2 {
				receive()
				return
			}
			_, _ = p.ba.Close(ucxpeer.CloseForce)
		}})
		assert.NoError(t, err)
	}
	receive()
	assert.Equal(t, want[:len(want)/2], got)
}

// TestStream_CallbackCloses: OnDone of a receive may close the EP; the remaining bytes are dropped.
func TestStream_CallbackCloses(t *testing.T) {
	p := connectTwo(t, ucxpeer.Config{}, ucxpeer.EPConfig{})
	closed := false
	_, err := p.ba.StreamRecv(make([]byte, 4), true, &ucxpeer.OpParams{OnDone: func(error) {
		_, _ = p.ba.Close(ucxpeer.CloseForce)
		closed = true
	}})
	require.NoError(t, err)
	_, err = p.ab.StreamSend(make([]byte, 100), nil)
	require.NoError(t, err)
	p.until(func() bool { return closed })
}

// TestFlush_DoesNotWaitForReceives: a flush completes although the peer has matched no message.
func TestFlush_DoesNotWaitForReceives(t *testing.T) {
	p := connectTwo(t, ucxpeer.Config{RndvThresh: 1000}, ucxpeer.EPConfig{})
	for _, n := range []int{8, 1000} { // a synchronous send and a rendezvous
		send, err := p.ab.TagSendSync(1, pattern(n, 1), nil)
		require.NoError(t, err)
		require.NoError(t, p.wait(p.ab.Flush()))
		assert.False(t, send.Done())
		buf := make([]byte, n)
		require.NoError(t, p.wait(p.b.TagRecv(buf, 1, all, nil, nil)))
		require.NoError(t, p.wait(send, nil))
		assert.Equal(t, pattern(n, 1), buf)
	}
}

func TestMemory(t *testing.T) {
	p := connectTwo(t, ucxpeer.Config{}, ucxpeer.EPConfig{})
	mem, err := p.b.MemMap(make([]byte, 1<<20), uct.AccessAll)
	require.NoError(t, err)
	key, err := p.ab.Unpack(mem.Pack())
	require.NoError(t, err)
	for i, n := range sizes {
		require.NoError(t, p.wait(p.ab.Put(pattern(n, i), mem.Addr(), key, nil)))
		require.NoError(t, p.wait(p.ab.Flush()))
		require.Equal(t, pattern(n, i), mem.Bytes()[:n])
		buf := make([]byte, n)
		require.NoError(t, p.wait(p.ab.Get(buf, mem.Addr(), key, nil)))
		require.Equal(t, pattern(n, i), buf)
	}
	for _, size := range []int{4, 8} {
		put(mem.Bytes(), 40)
		var old uint64
		require.NoError(t, p.wait(p.ab.AtomicFetch(uct.AtomicAdd, size, 2, &old, mem.Addr(), key)))
		assert.Equal(t, uint64(40), old)
		require.NoError(t, p.wait(p.ab.AtomicCSwap(size, 42, 7, &old, mem.Addr(), key)))
		assert.Equal(t, uint64(42), old)
		require.NoError(t, p.wait(p.ab.AtomicPost(uct.AtomicXor, size, 1, mem.Addr(), key)))
		require.NoError(t, p.wait(p.ab.Flush()))
		assert.Equal(t, uint64(6), toUint64(mem.Bytes()))
	}
	_, err = p.ab.AtomicPost(uct.AtomicAdd, 8, 1, mem.Addr()+1, key)
	assert.ErrorIs(t, err, ucs.ErrInvalidParam)
	_, err = p.ab.AtomicPost(uct.AtomicAdd, 2, 1, mem.Addr(), key)
	assert.ErrorIs(t, err, ucs.ErrInvalidParam)
}

// TestMemory_BothPut: two workers that put to each other without pause do not deadlock: each reads the requests of the
// other while its own replies wait.
func TestMemory_BothPut(t *testing.T) {
	p := connectTwo(t, ucxpeer.Config{TCP: ucxtcp.Config{SndBuf: 16 << 10, RcvBuf: 16 << 10}}, ucxpeer.EPConfig{})
	type side struct {
		ep  *ucxpeer.EP
		mem *ucxpeer.Mem
		key *ucxpeer.RKey
	}
	var sides [2]side
	for i, from := range []*ucxpeer.EP{p.ab, p.ba} {
		mem, err := []*ucxpeer.Worker{p.b, p.a}[i].MemMap(make([]byte, 8), uct.AccessAll)
		require.NoError(t, err)
		key, err := from.Unpack(mem.Pack())
		require.NoError(t, err)
		require.NoError(t, p.wait(from.Put(make([]byte, 8), mem.Addr(), key, nil)))
		sides[i] = side{from, mem, key}
	}
	var flushes [2]*ucxpeer.Request
	for i, s := range sides {
		for range 50000 {
			_, err := s.ep.Put(pattern(8, i), s.mem.Addr(), s.key, nil)
			require.NoError(t, err)
		}
		var err error
		flushes[i], err = s.ep.Flush()
		require.NoError(t, err)
	}
	for i, s := range sides {
		require.NoError(t, p.wait(flushes[i], nil))
		assert.Equal(t, pattern(8, i), s.mem.Bytes())
	}
}

// TestMemory_RejectsOtherMemory: an access to memory that is not registered, or not with the needed right, fails the EP,
// and nothing is read or written.
func TestMemory_RejectsOtherMemory(t *testing.T) {
	for _, c := range []struct {
		name   string
		access uct.Access
		op     func(e *ucxpeer.EP, m *ucxpeer.Mem, key *ucxpeer.RKey) (*ucxpeer.Request, error)
	}{
		{"put behind the end", uct.AccessAll, func(e *ucxpeer.EP, m *ucxpeer.Mem, key *ucxpeer.RKey) (*ucxpeer.Request, error) {
			return e.Put(make([]byte, 9), m.Addr()+120, key, nil)
		}},
		{"put before the begin", uct.AccessAll, func(e *ucxpeer.EP, m *ucxpeer.Mem, key *ucxpeer.RKey) (*ucxpeer.Request, error) {
			return e.Put(make([]byte, 8), m.Addr()-1, key, nil)
		}},
		{"get of the largest address", uct.AccessAll, func(e *ucxpeer.EP, m *ucxpeer.Mem, key *ucxpeer.RKey) (*ucxpeer.Request, error) {
			return e.Get(make([]byte, 8), ^uint64(0)-3, key, nil)
		}},
		{"get without the right", uct.AccessRemoteWrite, func(e *ucxpeer.EP, m *ucxpeer.Mem, key *ucxpeer.RKey) (*ucxpeer.Request, error) {
			return e.Get(make([]byte, 8), m.Addr(), key, nil)
		}},
		{"put without the right", uct.AccessRemoteRead, func(e *ucxpeer.EP, m *ucxpeer.Mem, key *ucxpeer.RKey) (*ucxpeer.Request, error) {
			return e.Put(make([]byte, 8), m.Addr(), key, nil)
		}},
		{"atomic without the right", uct.AccessRemoteWrite, func(e *ucxpeer.EP, m *ucxpeer.Mem, key *ucxpeer.RKey) (*ucxpeer.Request, error) {
			return e.AtomicPost(uct.AtomicAdd, 8, 1, m.Addr(), key)
		}},
		{"put to memory that was deregistered", uct.AccessAll, func(e *ucxpeer.EP, m *ucxpeer.Mem, key *ucxpeer.RKey) (*ucxpeer.Request, error) {
			_ = m.Close()
			return e.Put(make([]byte, 8), m.Addr(), key, nil)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := connectTwo(t, ucxpeer.Config{}, ucxpeer.EPConfig{})
			whole := pattern(256, 1)
			mem, err := p.b.MemMap(whole[64:192], c.access)
			require.NoError(t, err)
			key, err := p.ab.Unpack(mem.Pack())
			require.NoError(t, err)
			_, err = c.op(p.ab, mem, key)
			require.NoError(t, err)
			flush, err := p.ab.Flush()
			require.NoError(t, err)
			p.until(func() bool { return flush.Done() && p.ba.Err() != nil })
			assert.ErrorIs(t, p.ba.Err(), ucs.ErrRemoteAccess)
			assert.Error(t, flush.Err())
			assert.Equal(t, pattern(256, 1), whole)
		})
	}
}

// inet6 returns the configuration of a worker that uses IPv6 on loopback. The test skips if there is none.
func inet6(t *testing.T) ucxpeer.Config {
	l, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		t.Skipf("no IPv6 on loopback: %v", err)
	}
	require.NoError(t, l.Close())
	return ucxpeer.Config{TCP: ucxtcp.Config{Family: "inet6"}}
}

func TestListenDial(t *testing.T) { testListenDial(t, ucxpeer.Config{}, "127.0.0.1:0") }

func TestListenDial_IPv6(t *testing.T) { testListenDial(t, inet6(t), "[::1]:0") }

func testListenDial(t *testing.T, cfg ucxpeer.Config, listen string) {
	a, b := newWorker(t, cfg), newWorker(t, cfg)
	p := &two{t: t, a: a, b: b}
	l, err := b.Listen(t.Context(), "tcp", listen, ucxpeer.ListenConfig{OnConnect: func(e *ucxpeer.EP) { p.ba = e }})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error)
	go func() { served <- b.Serve(ctx) }()
	p.ab, err = a.Dial(t.Context(), "tcp", l.Addr().String(), ucxpeer.DialConfig{})
	cancel()
	assert.ErrorIs(t, <-served, context.Canceled)
	require.NoError(t, err)
	p.until(func() bool { return p.ba != nil })
	require.NoError(t, l.Close())
	for _, e := range []*ucxpeer.EP{p.ab, p.ba} {
		assert.Contains(t, e.Explain(), "private data: of UCX 1.14 or later")
	}

	buf := make([]byte, 1<<20)
	r, err := b.TagRecv(buf, 1, all, nil, nil)
	require.NoError(t, err)
	require.NoError(t, p.wait(p.ab.TagSend(1, pattern(len(buf), 1), nil)))
	require.NoError(t, p.wait(r, nil))
	assert.Equal(t, pattern(len(buf), 1), buf)

	require.NoError(t, p.wait(p.ab.Close(ucxpeer.CloseFlush)))
	p.until(func() bool { return p.ba.Err() != nil })
	assert.ErrorIs(t, p.ba.Err(), ucs.ErrPeerClosed)
}

// TestListenDial_OtherFamily: sockets of connection managers have the family of the worker's device.
func TestListenDial_OtherFamily(t *testing.T) {
	w := newWorker(t, ucxpeer.Config{})
	accept := ucxpeer.ListenConfig{OnConnect: func(*ucxpeer.EP) {}}
	for _, network := range []string{"tcp6", "unix"} {
		_, err := w.Dial(t.Context(), network, "[::1]:1", ucxpeer.DialConfig{})
		assert.ErrorIs(t, err, ucs.ErrInvalidParam)
		_, err = w.Listen(t.Context(), network, "[::1]:0", accept)
		assert.ErrorIs(t, err, ucs.ErrInvalidParam)
	}
	_, err := w.Dial(t.Context(), "tcp", "[::1]:1", ucxpeer.DialConfig{})
	assert.ErrorContains(t, err, "no suitable address")
	_, err = w.Listen(t.Context(), "tcp", "[::1]:0", accept)
	assert.ErrorContains(t, err, "no suitable address")
	l, err := w.Listen(t.Context(), "tcp", ":0", accept)
	require.NoError(t, err)
	assert.True(t, netip.MustParseAddrPort(l.Addr().String()).Addr().Is4(), "%v", l.Addr())
	require.NoError(t, l.Close())
}

// TestNewEP_IPv6: the address contains the IPv6 device, which a worker that uses IPv4 does not reach.
func TestNewEP_IPv6(t *testing.T) {
	cfg := inet6(t)
	for version := 1; version <= 2; version++ {
		cfg.AddressVersion = version
		p := connectTwo(t, cfg, ucxpeer.EPConfig{PeerErrors: true})
		a, _, err := ucxwire.DecodeAddress(p.a.Address(), ucxwire.Layout{})
		require.NoError(t, err)
		assert.Equal(t, []byte{1, 10}, a.Devices[0].Addr[:2], "loopback, IPv6")
		buf := make([]byte, 1<<20)
		r, err := p.b.TagRecv(buf, 1, all, nil, nil)
		require.NoError(t, err)
		require.NoError(t, p.wait(p.ab.TagSend(1, pattern(len(buf), 1), nil)))
		require.NoError(t, p.wait(r, nil))
		assert.Equal(t, pattern(len(buf), 1), buf)

		_, err = newWorker(t, ucxpeer.Config{}).NewEP(p.a.Address(), ucxpeer.EPConfig{})
		assert.ErrorIs(t, err, ucs.ErrUnreachable)
		assert.ErrorContains(t, err, "family")
	}
}

// TestNewEP_SeveralDevices: of the devices in an address, the one with the shortest distance is used.
func TestNewEP_SeveralDevices(t *testing.T) {
	for _, device := range []string{"lo", otherDevice(t)} {
		t.Run(device, func(t *testing.T) {
			if device == "" {
				t.Skip("no device but loopback has an IPv4 address")
			}
			cfg := ucxpeer.Config{Device: device}
			p := &two{t: t, a: newWorker(t, cfg), b: newWorker(t, cfg)}
			a, _, err := ucxwire.DecodeAddress(p.b.Address(), ucxwire.Layout{})
			require.NoError(t, err)
			own := a.Devices[0]
			with := func(addr ...byte) ucxwire.Device {
				d := own
				d.Addr = addr
				return d
			}
			other := own
			other.Ifaces = []ucxwire.Iface{{Transport: ucxwire.TransportSum("sysv"), Attr: ucxwire.TCPAttr, Addr: []byte{1}}}
			a.Devices = []ucxwire.Device{
				other,
				with(0, 2, 198, 51, 100, 1), // an address for documentation, which no host has
				with(0, 10, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1),
				with(1, 2, 1, 2, 3, 4, 5, 6, 7, 8, 1, 0, 0, 0, 0, 0, 0, 0), // loopback of another host
				own,
			}
			p.ab, err = p.a.NewEP(ucxwire.AppendAddress(nil, &a, ucxwire.Layout{}), ucxpeer.EPConfig{PeerErrors: true})
			require.NoError(t, err)
			r, err := p.b.TagRecv(make([]byte, 8), 1, all, nil, nil)
			require.NoError(t, err)
			require.NoError(t, p.wait(p.ab.TagSend(1, make([]byte, 8), nil)))
			require.NoError(t, p.wait(r, nil))

			a.Devices = a.Devices[:1]
			_, err = p.a.NewEP(ucxwire.AppendAddress(nil, &a, ucxwire.Layout{}), ucxpeer.EPConfig{})
			assert.ErrorIs(t, err, ucs.ErrUnreachable)
		})
	}
}

// closedPort returns the address of an interface that rejects connections: a socket is bound to the port and does not listen.
func closedPort(t *testing.T) []byte {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, unix.Close(fd)) })
	require.NoError(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	at, err := unix.Getsockname(fd)
	require.NoError(t, err)
	port := at.(*unix.SockaddrInet4).Port
	return []byte{byte(port >> 8), byte(port)}
}

// severalPorts returns an address with closed interfaces before the interface of the worker.
func severalPorts(t *testing.T, w *ucxpeer.Worker, closed int, open bool) []byte {
	a, _, err := ucxwire.DecodeAddress(w.Address(), ucxwire.Layout{})
	require.NoError(t, err)
	own := a.Devices[0]
	a.Devices = nil
	for range closed {
		d := own
		d.Ifaces = []ucxwire.Iface{own.Ifaces[0]}
		d.Ifaces[0].Addr = closedPort(t)
		a.Devices = append(a.Devices, d)
	}
	if open {
		a.Devices = append(a.Devices, own)
	}
	return ucxwire.AppendAddress(nil, &a, ucxwire.Layout{})
}

// TestNewEP_NextDevice: an EP that cannot connect to one device of its peer connects to the next one, and sends all operations there.
func TestNewEP_NextDevice(t *testing.T) {
	for _, mode := range []ucxpeer.EPConfig{{}, {PeerErrors: true}} {
		p := &two{t: t, a: newWorker(t, ucxpeer.Config{}), b: newWorker(t, ucxpeer.Config{})}
		p.a.OnError(func(_ *ucxpeer.EP, err error) { assert.NoError(t, err) })
		var err error
		p.ab, err = p.a.NewEP(severalPorts(t, p.b, 2, true), mode)
		require.NoError(t, err)
		send, err := p.ab.TagSendSync(1, pattern(8, 1), nil)
		require.NoError(t, err)
		closing, err := p.ab.Close(ucxpeer.CloseFlush)
		require.NoError(t, err)
		buf := make([]byte, 8)
		require.NoError(t, p.wait(p.b.TagRecv(buf, 1, all, nil, nil)))
		assert.Equal(t, pattern(8, 1), buf)
		require.NoError(t, p.wait(send, nil))
		require.NoError(t, p.wait(closing, nil))
	}
}

// TestNewEP_NoSocket: an EP that cannot create a socket for its first connection connects to the next device. Operations that were
// started before are not lost.
func TestNewEP_NoSocket(t *testing.T) {
	for _, mode := range []ucxpeer.EPConfig{{}, {PeerErrors: true}} {
		p := &two{t: t, a: newWorker(t, ucxpeer.Config{}), b: newWorker(t, ucxpeer.Config{})}
		address := severalPorts(t, p.b, 1, true)
		var send *ucxpeer.Request
		testenv.WithoutDescriptors(t, func() {
			var err error
			p.ab, err = p.a.NewEP(address, mode)
			require.NoError(t, err)
			send, err = p.ab.TagSend(1, pattern(8, 1), nil)
			require.NoError(t, err)
			require.False(t, send.Done())
		})
		require.NoError(t, p.wait(p.b.TagRecv(make([]byte, 8), 1, all, nil, nil)))
		require.NoError(t, p.wait(send, nil))
	}
}

// TestExplain: Explain describes the connection of an EP and what is known of the UCX release of the peer.
func TestExplain(t *testing.T) {
	p := &two{t: t, a: newWorker(t, ucxpeer.Config{}), b: newWorker(t, ucxpeer.Config{KeepaliveInterval: -1})}
	address, _, err := ucxwire.DecodeAddress(severalPorts(t, p.b, 1, true), ucxwire.Layout{})
	require.NoError(t, err)
	address.Version, address.Release = 1, 7
	p.ab, err = p.a.NewEP(ucxwire.AppendAddress(nil, &address, ucxwire.Layout{}), ucxpeer.EPConfig{PeerErrors: true})
	require.NoError(t, err)
	text := p.ab.Explain()
	assert.Contains(t, text, "not connected\n")
	assert.Contains(t, text, "another interface: 127.0.0.1:")
	assert.Contains(t, text, "version 1, of UCX 1.23, as it says\n")
	assert.Contains(t, text, "loopback address: wide")
	assert.Contains(t, text, "a check each 20s")
	p.until(p.ab.Connected)
	text = p.ab.Explain()
	assert.Contains(t, text, ", connected\n")
	assert.Contains(t, text, "connection refused\n")

	p.ba, err = p.b.NewEP(p.a.Address(), ucxpeer.EPConfig{PeerErrors: true}) // returns the EP that the peer has created
	require.NoError(t, err)
	assert.Contains(t, p.ba.Explain(), "no checks")
	require.NoError(t, p.wait(p.ab.Close(ucxpeer.CloseFlush)))
	assert.Contains(t, p.ab.Explain(), "closed\n")
	p.until(func() bool { return p.ba.Err() != nil })
	assert.Contains(t, p.ba.Explain(), "no such endpoint")
}

// TestNewEP_NoDevice: an EP that cannot connect to any device of its peer fails with the errors of all of them.
func TestNewEP_NoDevice(t *testing.T) {
	p := &two{t: t, a: newWorker(t, ucxpeer.Config{}), b: newWorker(t, ucxpeer.Config{})}
	failures := 0
	p.a.OnError(func(*ucxpeer.EP, error) { failures++ })
	var err error
	p.ab, err = p.a.NewEP(severalPorts(t, p.b, 3, false), ucxpeer.EPConfig{PeerErrors: true})
	require.NoError(t, err)
	err = p.wait(p.ab.TagSend(1, nil, nil))
	assert.ErrorIs(t, err, ucs.ErrUnreachable)
	assert.Equal(t, 3, strings.Count(p.ab.Err().Error(), "connection refused"), "%v", p.ab.Err())
	assert.Equal(t, 1, failures)
}

// otherDevice returns a device with an IPv4 address that is not loopback; empty if there is none.
func otherDevice(t *testing.T) string {
	for _, n := range networks(t) {
		if n.family == "inet" {
			return n.device
		}
	}
	return ""
}

func TestListen_InvalidParams(t *testing.T) {
	a, b := newWorker(t, ucxpeer.Config{}), newWorker(t, ucxpeer.Config{})
	refused := make(chan error, 2)
	l, err := b.Listen(t.Context(), "tcp4", "127.0.0.1:0", ucxpeer.ListenConfig{
		OnConnect: func(*ucxpeer.EP) { t.Error("accepted") },
		Accept:    func(netip.AddrPort) bool { return false },
		OnRefuse:  func(_ net.Addr, err error) { refused <- err },
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error)
	go func() { served <- b.Serve(ctx) }()
	_, err = a.Dial(t.Context(), "tcp4", l.Addr().String(), ucxpeer.DialConfig{})
	assert.ErrorIs(t, err, ucs.ErrRejected)
	assert.ErrorIs(t, <-refused, ucs.ErrRejected)
	cancel()
	<-served
}

// TestListen_CloseWorker: a worker can be closed while clients are in any state of the exchange.
func TestListen_CloseWorker(t *testing.T) {
	w, err := ucxpeer.NewWorker(ucxpeer.Config{})
	require.NoError(t, err)
	l, err := w.Listen(t.Context(), "tcp4", "127.0.0.1:0", ucxpeer.ListenConfig{OnConnect: func(*ucxpeer.EP) { t.Error("connected") }})
	require.NoError(t, err)
	private := ucxwire.AppendPrivate(nil, &ucxwire.Private{Version: 2, EP: 3, ErrMode: ucxwire.ErrModePeer, Resource: true,
		Address: ucxwire.Address{Version: 1, Release: ucxwire.NoRelease, Devices: []ucxwire.Device{{SysDev: ucxwire.NoSysDev,
			Ifaces: []ucxwire.Iface{{Transport: ucxwire.TransportSum("tcp"), Attr: ucxwire.TCPAttr, Addr: []byte{1, 1},
				EPs: []ucxwire.EPAddr{{Addr: []byte{1, 1, 3, 0, 0, 0, 0, 0, 0, 0}, Lane: 1}}}}}}}})
	frame := append(ucxwire.AppendSockHeader(nil, ucxwire.SockHeader{Len: len(private)}), private...)
	for _, sent := range [][]byte{nil, frame[:10], frame, frame} {
		conn, err := net.Dial("tcp4", l.Addr().String())
		require.NoError(t, err)
		defer conn.Close()
		_, err = conn.Write(sent)
		require.NoError(t, err)
		for range 100 { // clients reach various states; no check depends on them
			w.Progress()
			runtime.Gosched()
		}
	}
	began := time.Now()
	require.NoError(t, w.Close())
	assert.Less(t, time.Since(began), 15*time.Second, "Close has waited for a client")
}

// TestClose_WaitsForMatches: a close waits for sends that the peer has not matched.
func TestClose_WaitsForMatches(t *testing.T) {
	for _, n := range []int{8, 1 << 20} {
		p := connectTwo(t, ucxpeer.Config{}, ucxpeer.EPConfig{})
		send, err := p.ab.TagSendSync(1, pattern(n, 1), nil)
		require.NoError(t, err)
		p.until(func() bool { _, _, ok := p.b.TagProbe(1, all, false); return ok })
		closing, err := p.ab.Close(ucxpeer.CloseFlush)
		require.NoError(t, err)
		again, err := p.ab.Close(ucxpeer.CloseFlush)
		require.NoError(t, err)
		assert.Same(t, closing, again)
		for range 100 { // a close that does not wait would complete
			p.a.Progress()
			p.b.Progress()
		}
		assert.False(t, send.Done())
		buf := make([]byte, n)
		require.NoError(t, p.wait(p.b.TagRecv(buf, 1, all, nil, nil)))
		require.NoError(t, p.wait(send, nil))
		require.NoError(t, p.wait(closing, nil))
		assert.Equal(t, pattern(n, 1), buf)
	}
}

// TestClose_Twice: a close that waits completes when the EP is closed with CloseForce, or the worker is closed.
func TestClose_Twice(t *testing.T) {
	for _, worker := range []bool{false, true} {
		p := connectTwo(t, ucxpeer.Config{}, ucxpeer.EPConfig{})
		_, err := p.ab.TagSendSync(1, make([]byte, 8), nil)
		require.NoError(t, err)
		closing, err := p.ab.Close(ucxpeer.CloseFlush)
		require.NoError(t, err)
		require.False(t, closing.Done())
		if worker {
			require.NoError(t, p.a.Close())
		} else {
			_, err = p.ab.Close(ucxpeer.CloseForce)
			require.NoError(t, err)
		}
		require.True(t, closing.Done())
		assert.ErrorIs(t, closing.Err(), ucs.ErrCanceled)
	}
}

// TestPeerClosed_EndsOperations: when the peer is gone, every operation completes with the reason.
func TestPeerClosed_EndsOperations(t *testing.T) {
	p := connectTwo(t, ucxpeer.Config{RndvThresh: -1}, ucxpeer.EPConfig{})
	key, err := p.ab.Unpack(make([]byte, 9))
	require.NoError(t, err)
	var pending []*ucxpeer.Request
	add := func(r *ucxpeer.Request, err error) {
		require.NoError(t, err)
		pending = append(pending, r)
	}
	p.until(func() bool { // both sides know the endpoint of the other
		if !p.ab.Connected() {
			_, err := p.ab.StreamSend([]byte("x"), nil)
			require.NoError(t, err)
		}
		return p.ab.Connected() && p.ba.Connected()
	})
	add(p.ab.TagSendSync(1, make([]byte, 8), nil))
	add(p.ab.StreamRecv(make([]byte, 8), true, nil))
	add(p.ab.Get(make([]byte, 8), 1<<20, key, nil))
	add(p.ab.Flush())
	add(p.ab.TagSend(1, make([]byte, 32<<20), nil))
	require.NoError(t, p.b.Close())
	testenv.ProgressWithin(t, time.Minute, func() bool {
		p.a.Progress()
		for _, r := range pending {
			if !r.Done() {
				return false
			}
		}
		return true
	})
	for _, r := range pending {
		err := r.Err()
		assert.True(t, errors.Is(err, ucs.ErrPeerClosed) || errors.Is(err, ucs.ErrConnReset), "%v", err)
	}
	require.Error(t, p.ab.Err())
	_, err = p.ab.TagSend(1, nil, nil)
	assert.ErrorIs(t, err, ucs.ErrEPFailed)
}

// TestMaxBuffered: unexpected messages are buffered up to the limit; then the peer waits.
func TestMaxBuffered(t *testing.T) {
	p := connectTwo(t, ucxpeer.Config{MaxBuffered: 1 << 20, TCP: ucxtcp.Config{SndBuf: 64 << 10, RcvBuf: 64 << 10}}, ucxpeer.EPConfig{})
	const messages, n = 4000, 4096
	sent := 0
	for i := range messages {
		r, err := p.ab.TagSend(uint64(i), pattern(n, i), &ucxpeer.OpParams{OnDone: func(error) { sent++ }})
		if require.NoError(t, err); r == nil {
			sent++
		}
	}
	p.until(func() bool { return p.b.Stats().Paused > 0 })
	for range 1000 {
		p.a.Progress()
		p.b.Progress()
	}
	assert.Less(t, sent, messages, "the sender does not wait")
	for i := range messages {
		buf := make([]byte, n)
		require.NoError(t, p.wait(p.b.TagRecv(buf, uint64(i), all, nil, nil)))
		require.Equal(t, pattern(n, i), buf)
	}
	assert.Equal(t, messages, sent)
}

func TestNewEP_InvalidAddress(t *testing.T) {
	w := newWorker(t, ucxpeer.Config{})
	_, err := w.NewEP(nil, ucxpeer.EPConfig{})
	assert.ErrorIs(t, err, ucs.ErrInvalidAddr)
	_, err = w.NewEP(w.Address(), ucxpeer.EPConfig{})
	assert.ErrorIs(t, err, ucs.ErrUnsupported)
}

// TestAddressVersion: an address of version 2, the default, contains the fragment size; an address of version 1 does not.
func TestAddressVersion(t *testing.T) {
	for _, c := range []struct{ version, want int }{{0, 2}, {1, 1}, {2, 2}} {
		p := connectTwo(t, ucxpeer.Config{AddressVersion: c.version, TCP: ucxtcp.Config{MaxFrame: 10000}}, ucxpeer.EPConfig{})
		a, _, err := ucxwire.DecodeAddress(p.a.Address(), ucxwire.Layout{})
		require.NoError(t, err)
		assert.Equal(t, c.want, a.Version)
		seg := a.Devices[0].Ifaces[0].Attr.SegLen
		if c.want == 2 {
			assert.True(t, seg > 0 && seg <= 10000 && seg%64 == 0, "%d bytes", seg) // the MTU of the device decides
		} else {
			assert.Zero(t, seg)
		}
		r, err := p.b.TagRecv(make([]byte, 8), 1, all, nil, nil)
		require.NoError(t, err)
		require.NoError(t, p.wait(p.ab.TagSend(1, make([]byte, 8), nil)))
		require.NoError(t, p.wait(r, nil))
	}
}

// TestAddressVersion_Sockets: the private data on the socket of a connection manager have an address of the same version.
func TestAddressVersion_Sockets(t *testing.T) {
	read := func(conn net.Conn) ucxwire.Private {
		head := make([]byte, ucxwire.SockHeaderLen)
		_, err := io.ReadFull(conn, head)
		require.NoError(t, err)
		h, ok := ucxwire.DecodeSockHeader(head)
		require.True(t, ok)
		b := make([]byte, h.Len)
		_, err = io.ReadFull(conn, b)
		require.NoError(t, err)
		p, err := ucxwire.DecodePrivate(b)
		require.NoError(t, err)
		return p
	}
	for _, version := range []int{1, 2} {
		w := newWorker(t, ucxpeer.Config{AddressVersion: version})
		own, _, err := ucxwire.DecodeAddress(w.Address(), ucxwire.Layout{})
		require.NoError(t, err)
		check := func(p ucxwire.Private) {
			assert.Equal(t, version, p.Address.Version)
			assert.Equal(t, own.Devices[0].Ifaces[0].Attr, p.Address.Devices[0].Ifaces[0].Attr)
		}

		l, err := net.Listen("tcp4", "127.0.0.1:0")
		require.NoError(t, err)
		dialed := make(chan error)
		go func() {
			_, err := w.Dial(t.Context(), "tcp", l.Addr().String(), ucxpeer.DialConfig{Layout: ucxpeer.LayoutSince14})
			dialed <- err
		}()
		conn, err := l.Accept()
		require.NoError(t, err)
		p := read(conn)
		check(p)
		require.NoError(t, conn.Close())
		assert.Error(t, <-dialed)

		listener, err := w.Listen(t.Context(), "tcp", "127.0.0.1:0", ucxpeer.ListenConfig{OnConnect: func(*ucxpeer.EP) {}})
		require.NoError(t, err)
		conn, err = net.Dial("tcp4", listener.Addr().String())
		require.NoError(t, err)
		port := l.Addr().(*net.TCPAddr).Port // the worker can connect to it, and gets no reply
		copy(p.Address.Devices[0].Ifaces[0].EPs[0].Addr, []byte{byte(port >> 8), byte(port)})
		private := ucxwire.AppendPrivate(nil, &p)
		_, err = conn.Write(append(ucxwire.AppendSockHeader(nil, ucxwire.SockHeader{Len: len(private)}), private...))
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		served := make(chan error)
		go func() { served <- w.Serve(ctx) }()
		check(read(conn))
		require.NoError(t, conn.Close())
		stop()
		assert.ErrorIs(t, <-served, context.Canceled)
		require.NoError(t, listener.Close())
		require.NoError(t, l.Close())
	}
}
