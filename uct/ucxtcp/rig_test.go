package ucxtcp

import (
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct"
)

// end is one end of a connection in a test: an iface and what its callbacks received.
type end struct {
	t    testing.TB
	it   *Iface
	errs []error
	left []error
	got  []string
}

// msgID is the active message that ends record.
const msgID = 3

func newEnd(t testing.TB, cfg Config) *end {
	t.Helper()
	md, err := openMD()
	require.NoError(t, err)
	e := &end{t: t}
	it, err := md.OpenIface(uct.IfaceParams{Transport: Name, Device: "lo", Config: cfg,
		OnError: func(_ uct.EP, err error) { e.errs = append(e.errs, err) }})
	require.NoError(t, err)
	e.it = it.(*Iface)
	e.it.OnLeave(func(_ *Conn, err error) { e.left = append(e.left, err) })
	record := func(d []byte, _ uct.Desc) bool { e.got = append(e.got, string(d)); return false }
	require.NoError(t, it.SetAMHandler(msgID, uct.AMHandlerFunc(record)))
	t.Cleanup(func() {
		require.NoError(t, it.Close())
		require.NoError(t, md.Close())
	})
	return e
}

// to makes an EP to a peer that listens on loopback.
func (e *end) to(port uint16, mode uct.DialMode) *EP {
	e.t.Helper()
	ep, err := e.it.NewEP(uct.EPParams{DeviceAddr: e.it.DeviceAddr(nil), IfaceAddr: []byte{byte(port >> 8), byte(port)}, Dial: mode})
	require.NoError(e.t, err)
	return ep.(*EP)
}

// After idleRounds consecutive rounds without progress, until sleeps for idlePause, so that other
// processes can run.
const (
	idleRounds = 16
	idlePause  = 20 * time.Microsecond
)

// until calls Progress of the ends until cond is true.
func until(t testing.TB, what string, cond func() bool, ends ...*end) {
	t.Helper()
	start := time.Now()
	for idle := 0; !cond(); {
		n := 0
		for _, e := range ends {
			n += e.it.Progress()
		}
		if n > 0 {
			idle = 0
			continue
		}
		if idle++; idle%idleRounds != 0 {
			runtime.Gosched()
			continue
		}
		require.Less(t, time.Since(start), testenv.Watchdog, "stuck: %s", what)
		time.Sleep(idlePause)
	}
}

// rawPeer is a peer of an end that is not an Iface. It can send any bytes.
type rawPeer struct {
	t    testing.TB
	e    *end
	l    *net.TCPListener
	port uint16
}

func newRawPeer(t testing.TB, e *end) *rawPeer {
	t.Helper()
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return &rawPeer{t: t, e: e, l: l, port: uint16(l.Addr().(*net.TCPAddr).Port)}
}

// orderedPair makes an end and a raw peer. The address of the end is the higher one if greater is
// set.
func orderedPair(t testing.TB, greater bool) (*end, *rawPeer) {
	t.Helper()
	for {
		e := newEnd(t, Config{})
		p := newRawPeer(t, e)
		if e.it.listen.Port() > p.port == greater {
			return e, p
		}
	}
}

// stream is a connection of a raw peer.
type stream struct {
	t testing.TB
	e *end
	c *net.TCPConn
}

// accept waits until the end connects.
func (p *rawPeer) accept() *stream {
	p.t.Helper()
	accepted := make(chan *net.TCPConn, 1)
	go func() {
		c, err := p.l.AcceptTCP()
		if err == nil {
			accepted <- c
		}
	}()
	var c *net.TCPConn
	until(p.t, "accept", func() bool {
		select {
		case c = <-accepted:
		default:
		}
		return c != nil
	}, p.e)
	return p.stream(c)
}

func (p *rawPeer) stream(c *net.TCPConn) *stream {
	p.t.Cleanup(func() { _ = c.Close() })
	return &stream{p.t, p.e, c}
}

// dial connects to the end and sends b.
func (p *rawPeer) dial(b []byte) *stream {
	p.t.Helper()
	c, err := net.DialTCP("tcp4", nil, net.TCPAddrFromAddrPort(p.e.it.listen))
	require.NoError(p.t, err)
	s := p.stream(c)
	s.send(b)
	return s
}

func (s *stream) send(b []byte) {
	s.t.Helper()
	_, err := s.c.Write(b)
	require.NoError(s.t, err)
}

// read reads n bytes. It calls Progress of the end.
func (s *stream) read(n int) []byte {
	s.t.Helper()
	b, got := make([]byte, n), 0
	until(s.t, "a peer waits for bytes", func() bool {
		require.NoError(s.t, s.c.SetReadDeadline(time.Now().Add(time.Millisecond)))
		k, err := s.c.Read(b[got:])
		got += k
		if e, ok := err.(net.Error); err != nil && (!ok || !e.Timeout()) {
			require.NoError(s.t, err, "after %d of %d bytes", got, n)
		}
		return got == n
	}, s.e)
	return b
}

// readAll waits until the end has closed the connection, and returns the remaining bytes.
func (s *stream) readAll() (rest []byte) {
	s.t.Helper()
	b := make([]byte, 4096)
	until(s.t, "a peer waits for the end of a connection", func() bool {
		_ = s.c.SetReadDeadline(time.Now().Add(time.Millisecond))
		n, err := s.c.Read(b)
		rest = append(rest, b[:n]...)
		e, ok := err.(net.Error)
		return err == io.EOF || err != nil && (!ok || !e.Timeout())
	}, s.e)
	return rest
}

// frame makes a frame.
func frame(id uint8, body ...byte) []byte {
	b := make([]byte, frameLen, frameLen+len(body))
	putFrame(b, id, len(body))
	return append(b, body...)
}

func event(e uint32) []byte { return frame(idCM, binary.LittleEndian.AppendUint32(nil, e)...) }

func message(text string) []byte { return frame(msgID, []byte(text)...) }

func putFrameOf(n uint64, sn uint32) []byte {
	b := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, 0), n)
	return frame(idPut, binary.LittleEndian.AppendUint32(b, sn)...)
}

func putAckFrame(sn uint32) []byte {
	return frame(idPutAck, binary.LittleEndian.AppendUint32(nil, sn)...)
}

// requestFrame returns the connection request of a peer that listens at a port of loopback.
func requestFrame(port uint16, toEP bool, conn uint64) []byte {
	r := request{toEP: toEP, conn: conn, listen: netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port)}
	b := make([]byte, r.bodyLen())
	r.put(b)
	return frame(idCM, b...)
}

// first returns the first bytes of a connection.
func first(port uint16, toEP bool, conn uint64) []byte {
	return append(binary.LittleEndian.AppendUint64(nil, magic), requestFrame(port, toEP, conn)...)
}
