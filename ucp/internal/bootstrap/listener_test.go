package bootstrap

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
)

// networks has, for each network, a function that returns a free address.
var networks = []struct {
	name, network string
	address       func(t testing.TB) string
}{
	{"tcp", "tcp", func(testing.TB) string { return ":0" }},
	{"unix", "unix", func(t testing.TB) string { return filepath.Join(testenv.SocketDir(t), "s") }},
	{"abstract", "unix", func(testing.TB) string { return abstractName() }},
}

var names atomic.Int64

func abstractName() string {
	return "@gucx-bootstrap-test-" + strconv.Itoa(os.Getpid()) + "-" + strconv.FormatInt(names.Add(1), 10)
}

// overAll runs a test over all networks.
func overAll(t *testing.T, f func(t *testing.T, network, address string)) {
	for _, n := range networks {
		t.Run(n.name, func(t *testing.T) { f(t, n.network, n.address(t)) })
	}
}

// listener is a Listener whose owner is the test.
type listener struct {
	*Listener
	t    testing.TB
	news chan struct{} // has room for one

	tls   TLSConfigs // used by dial
	token string     // used by dial
}

func open(t testing.TB, network, address string, cfg Config) *listener {
	t.Helper()
	l := &listener{t: t, news: make(chan struct{}, 1)}
	cfg.Notify = func() {
		select {
		case l.news <- struct{}{}:
		default:
		}
	}
	cfg.Stats = new(Stats)
	var err error
	l.Listener, err = Listen(t.Context(), network, address, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

// receive reads a message of any type without a proof.
func receive(conn net.Conn) (header, []byte, error) {
	return (*session)(nil).receive(conn, kindHello, kindAccept, kindReject, kindDone, kindChallenge)
}

// next waits until Take has returned n requests.
func (l *listener) next(n int) (all []*Request) {
	l.t.Helper()
	for {
		if all = append(all, l.inbox.Take()...); len(all) >= n {
			require.Len(l.t, all, n)
			return all
		}
		select {
		case <-l.news:
		case <-time.After(testenv.Watchdog):
			require.FailNow(l.t, "no request")
		}
	}
}

// counted waits until a counter has a value.
func (l *listener) counted(what string, n uint64, load func() uint64) {
	l.t.Helper()
	testenv.ProgressWithin(l.t, testenv.Watchdog, func() bool { return load() >= n })
	assert.Equal(l.t, n, load(), what)
}

// idle waits until no connection is being served.
func (l *listener) idle() {
	l.t.Helper()
	testenv.ProgressWithin(l.t, testenv.Watchdog, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.live) == 0 && len(l.lobby.in) == 0
	})
}

// occupied returns the number of connections with a place.
func (l *listener) occupied() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.live)
}

// dialed is the result of a dial.
type dialed struct {
	conn *Conn
	err  error
}

// dial dials in a goroutine.
func (l *listener) dial(ctx context.Context) <-chan dialed {
	c := make(chan dialed, 1)
	go func() {
		conn, err := dialAndExchange(ctx, l.Addr().Network(), l.Addr().String(), sampleHello(), &DialConfig{TLS: l.tls, Token: l.token})
		c <- dialed{conn, err}
	}()
	return c
}

// raw connects and sends b, unless the listener closes the socket first.
func (l *listener) raw(b []byte) net.Conn {
	l.t.Helper()
	conn, err := net.Dial(l.Addr().Network(), l.Addr().String())
	require.NoError(l.t, err)
	l.t.Cleanup(func() { _ = conn.Close() })
	_, _ = conn.Write(b)
	return conn
}

func TestExchange_Accept(t *testing.T) {
	overAll(t, func(t *testing.T, network, address string) {
		l := open(t, network, address, Config{})
		result := l.dial(t.Context())
		r := l.next(1)[0]
		assert.Equal(t, *sampleHello(), r.Hello)
		r.Accept(sampleAnswer())
		d := <-result
		require.NoError(t, d.err)
		assert.Equal(t, sampleAnswer(), d.conn.Answer)
		for _, from := range []Identity{r.From, d.conn.From} {
			assert.Equal(t, network, from.Network)
			if network == "unix" {
				assert.Equal(t, os.Getpid(), from.PID)
				assert.Equal(t, uint32(os.Geteuid()), from.UID)
				assert.Equal(t, uint32(os.Getegid()), from.GID)
			} else {
				assert.True(t, from.Addr.Addr().IsLoopback())
			}
			assert.NotEmpty(t, from.String())
		}
		r.Connected()
		require.NoError(t, d.conn.Close())
		l.idle()
		assert.Empty(t, l.inbox.Take(), "a dialer that has connected may go")
	})
}

func TestExchange_Reject(t *testing.T) {
	overAll(t, func(t *testing.T, network, address string) {
		l := open(t, network, address, Config{})
		result := l.dial(t.Context())
		l.next(1)[0].Reject(CodeRejected, []byte("no"))
		d := <-result
		require.ErrorIs(t, d.err, ucs.ErrRejected)
		var rejected *RejectedError
		require.ErrorAs(t, d.err, &rejected)
		assert.Equal(t, RejectedError{Code: CodeRejected, Private: []byte("no")}, *rejected)
		l.idle()
		assert.Empty(t, l.inbox.Take())
		assert.EqualValues(t, 1, l.cfg.Stats.rejected.Load())
	})
}

// TestExchange_DialerCanceled: the context of a dialer ends before the listener has replied. Take does not return the
// request; if it has returned it before, it returns it again as gone.
func TestExchange_DialerCanceled(t *testing.T) {
	overAll(t, func(t *testing.T, network, address string) {
		l := open(t, network, address, Config{})
		ctx, cancel := context.WithCancel(t.Context())
		result := l.dial(ctx)
		r := l.next(1)[0]
		cancel()
		assert.Equal(t, context.Canceled, (<-result).err)
		assert.Same(t, r, l.next(1)[0])
		assert.True(t, r.Gone())
		r.Drop()

		ctx, cancel = context.WithCancel(t.Context())
		result = l.dial(ctx)
		<-l.news
		cancel()
		assert.Equal(t, context.Canceled, (<-result).err)
		l.idle()
		assert.Empty(t, l.inbox.Take())
	})
}

// TestExchange_AcceptedDialerCloses: Take returns the request of an accepted dialer that closes its socket before it has
// connected.
func TestExchange_AcceptedDialerCloses(t *testing.T) {
	overAll(t, func(t *testing.T, network, address string) {
		l := open(t, network, address, Config{})
		result := l.dial(t.Context())
		r := l.next(1)[0]
		r.Accept(sampleAnswer())
		d := <-result
		require.NoError(t, d.err)
		require.NoError(t, d.conn.Close())
		assert.Same(t, r, l.next(1)[0])
		assert.True(t, r.Gone())
	})
}

// TestExchange_OwnerDrops: Drop of an accepted request closes the socket.
func TestExchange_OwnerDrops(t *testing.T) {
	overAll(t, func(t *testing.T, network, address string) {
		l := open(t, network, address, Config{})
		result := l.dial(t.Context())
		r := l.next(1)[0]
		r.Accept(sampleAnswer())
		d := <-result
		require.NoError(t, d.err)
		r.Drop()
		assert.ErrorIs(t, d.conn.Wait(), ucs.ErrConnReset)
		require.NoError(t, d.conn.Close())
		l.idle()
		assert.Empty(t, l.inbox.Take(), "the owner knows")
	})
}

func TestClose_ClosesAllSockets(t *testing.T) {
	overAll(t, func(t *testing.T, network, address string) {
		l := open(t, network, address, Config{})
		result := l.dial(t.Context())
		l.next(1)
		silent := l.raw(nil)
		require.NoError(t, l.Close())
		require.NoError(t, l.Close())
		assert.ErrorIs(t, (<-result).err, ucs.ErrConnReset)
		_, err := silent.Read(make([]byte, 1))
		assert.Error(t, err)
		_, err = dialAndExchange(t.Context(), network, l.Addr().String(), sampleHello(), &DialConfig{})
		require.ErrorIs(t, err, ucs.ErrUnreachable)
		assert.ErrorContains(t, err, "start the listener first")
	})
}

func TestDial_NoListener(t *testing.T) {
	for _, n := range networks[1:] {
		t.Run(n.name, func(t *testing.T) {
			_, err := dialAndExchange(t.Context(), n.network, n.address(t), sampleHello(), &DialConfig{})
			require.ErrorIs(t, err, ucs.ErrUnreachable)
			assert.ErrorContains(t, err, "start the listener first")
		})
	}
}

func TestListen_InvalidAddress(t *testing.T) {
	for _, tc := range []struct{ network, address string }{
		{"udp", ":0"}, {"", ":0"}, {"tcp", ""}, {"tcp", "localhost"}, {"unix", ""},
	} {
		_, err := Listen(t.Context(), tc.network, tc.address, Config{})
		assert.ErrorIs(t, err, ucs.ErrInvalidParam, "%v", tc)
	}
	_, err := dialAndExchange(t.Context(), "udp", ":1", sampleHello(), &DialConfig{})
	assert.ErrorIs(t, err, ucs.ErrInvalidParam)
}

// TestListen_Defaults: one source may have half of the places, rounded up.
func TestListen_Defaults(t *testing.T) {
	for _, tt := range []struct{ places, source, want int }{
		{0, 0, DefaultMaxHandshakes / 2}, {5, 0, 3}, {4, 0, 2}, {1, 0, 1}, {5, 4, 4},
	} {
		l := open(t, "unix", abstractName(), Config{MaxHandshakes: tt.places, MaxPerSource: tt.source})
		assert.Equal(t, tt.want, l.cfg.MaxPerSource, "%v", tt)
		assert.Equal(t, DefaultHelloTimeout, l.cfg.HelloTimeout)
	}
}

func TestListen_NameTaken(t *testing.T) {
	name := filepath.Join(testenv.SocketDir(t), "s")
	open(t, "unix", name, Config{})
	require.NoError(t, os.Chtimes(name, time.Time{}, time.Now().Add(-time.Hour)))
	_, err := Listen(t.Context(), "unix", name, Config{})
	assert.ErrorIs(t, err, syscall.EADDRINUSE)
	assert.ErrorContains(t, err, "another process listens there")
}

// TestListen_StaleSocketFile: the file of a process that was killed is replaced; other files are not.
func TestListen_StaleSocketFile(t *testing.T) {
	name := filepath.Join(testenv.SocketDir(t), "s")
	dead, err := net.Listen("unix", name)
	require.NoError(t, err)
	dead.(*net.UnixListener).SetUnlinkOnClose(false)
	require.NoError(t, dead.Close())
	require.NoError(t, os.Chtimes(name, time.Time{}, time.Now().Add(-time.Hour)))
	l := open(t, "unix", name, Config{})
	result := l.dial(t.Context())
	l.next(1)[0].Reject(CodeRejected, nil)
	assert.ErrorIs(t, (<-result).err, ucs.ErrRejected)

	other := filepath.Join(t.TempDir(), "f")
	require.NoError(t, os.WriteFile(other, nil, 0o600))
	_, err = Listen(t.Context(), "unix", other, Config{})
	assert.ErrorIs(t, err, syscall.EADDRINUSE)
	assert.FileExists(t, other)
}

func TestListen_EmptyHostIsLoopback(t *testing.T) {
	l := open(t, "tcp", ":0", Config{})
	assert.True(t, l.Addr().(*net.TCPAddr).IP.IsLoopback())
}

func TestListen_FileMode(t *testing.T) {
	for want, users := range map[os.FileMode][]uint32{0o600: nil, 0o666: {12345}} {
		name := filepath.Join(testenv.SocketDir(t), "s")
		l := open(t, "unix", name, Config{AllowUIDs: users})
		info, err := os.Stat(name)
		require.NoError(t, err)
		assert.Equal(t, want, info.Mode().Perm())
		require.NoError(t, l.Close())
		_, err = os.Stat(name)
		assert.ErrorIs(t, err, os.ErrNotExist)
	}
}

// TestUntrusted_InvalidHello: a connection that sends no valid HELLO is closed and counted.
func TestUntrusted_InvalidHello(t *testing.T) {
	hello := sampleHello().append(nil)
	huge := bytes.Clone(hello)
	copy(huge[8:], []byte{0xff, 0xff, 0xff, 0xff})
	for name, b := range map[string][]byte{
		"another protocol": []byte("GET / HTTP/1.1\r\n\r\n"),
		"a length":         huge,
		"another kind":     sampleAnswer().append(nil),
		"a body":           edit(hello, headerLen, 0xff),
	} {
		t.Run(name, func(t *testing.T) {
			overAll(t, func(t *testing.T, network, address string) {
				l := open(t, network, address, Config{})
				conn := l.raw(b)
				_, err := io.ReadAll(conn) // until the listener closes the socket, with a reset if it has not read everything
				if err != nil {
					assert.ErrorIs(t, reset(err), ucs.ErrConnReset)
				}
				l.idle()
				assert.Empty(t, l.inbox.Take())
				assert.EqualValues(t, 1, l.cfg.Stats.malformed.Load())
			})
		})
	}
}

// TestUntrusted_AnotherKind: the listener rejects a message that is not for it without its body, so an untrusted dialer
// cannot make it allocate the body of an ACCEPT.
func TestUntrusted_AnotherKind(t *testing.T) {
	l := open(t, "unix", abstractName(), Config{HelloTimeout: time.Hour})
	for n, k := range []kind{kindAccept, kindReject, kindDone, kindProof} {
		head := appendMessage(nil, k, 0, func(b []byte) []byte { return b })
		if k == kindReject {
			head[kindAt+1] = byte(CodeRejected)
		}
		binary.LittleEndian.PutUint32(head[8:], uint32(maxBody[k]))
		l.raw(head)
		l.counted("malformed", uint64(n+1), l.cfg.Stats.malformed.Load)
		l.idle()
	}
}

// TestUntrusted_AnotherVersion: a dialer with another version gets a REJECT.
func TestUntrusted_AnotherVersion(t *testing.T) {
	l := open(t, "unix", abstractName(), Config{})
	conn := l.raw(edit(sampleHello().append(nil), 4, 9)[:headerLen])
	h, _, err := receive(conn)
	require.NoError(t, err)
	assert.Equal(t, CodeVersion, h.code)
}

// TestUntrusted_Truncated: a connection with an incomplete HELLO is counted.
func TestUntrusted_Truncated(t *testing.T) {
	overAll(t, func(t *testing.T, network, address string) {
		l := open(t, network, address, Config{})
		hello := sampleHello().append(nil)
		require.NoError(t, l.raw(hello[:len(hello)-1]).Close())
		l.counted("malformed", 1, l.cfg.Stats.malformed.Load)
		l.idle()
		assert.Empty(t, l.inbox.Take())
	})
}

// TestUntrusted_Silence: a connection that sends nothing is closed.
func TestUntrusted_Silence(t *testing.T) {
	overAll(t, func(t *testing.T, network, address string) {
		l := open(t, network, address, Config{HelloTimeout: time.Millisecond})
		_, err := l.raw(nil).Read(make([]byte, 1))
		assert.ErrorIs(t, err, io.EOF)
		l.counted("silent", 1, l.cfg.Stats.silent.Load)
	})
}

// TestConnected: Connected sends DONE to the dialer and releases its place, also if the dialer does not close its
// socket.
func TestConnected(t *testing.T) {
	overAll(t, func(t *testing.T, network, address string) {
		l := open(t, network, address, Config{})
		result := l.dial(t.Context())
		r := l.next(1)[0]
		r.Accept(sampleAnswer())
		r.Connected()
		d := <-result
		require.NoError(t, d.err)
		assert.NoError(t, d.conn.Wait())
		l.idle()
		require.NoError(t, d.conn.Close())
		assert.Empty(t, l.inbox.Take())
	})
}

// TestRequest_ProcessStopped: a HELLO that arrived before the deadline is read, although the process was stopped until
// after the deadline.
func TestRequest_ProcessStopped(t *testing.T) {
	overAll(t, func(t *testing.T, network, address string) {
		socket, err := net.Listen(network, address)
		require.NoError(t, err)
		t.Cleanup(func() { _ = socket.Close() })
		l := open(t, "unix", abstractName(), Config{})
		accepted := func(b []byte) *Request {
			dialer, err := net.Dial(socket.Addr().Network(), socket.Addr().String())
			require.NoError(t, err)
			t.Cleanup(func() { _ = dialer.Close() })
			_, err = dialer.Write(b)
			require.NoError(t, err)
			conn, err := socket.Accept()
			require.NoError(t, err)
			t.Cleanup(func() { _ = conn.Close() })
			awaitReadable(t, conn)
			r := newRequest(l.Listener, conn, Identity{})
			t.Cleanup(r.cancel)
			ok, _ := l.enter(r, time.Now().Add(-time.Hour))
			require.True(t, ok)
			return r
		}
		hello := sampleHello().append(nil)
		r := accepted(hello)
		require.True(t, r.readHello())
		assert.Equal(t, *sampleHello(), r.Hello)
		assert.Zero(t, l.cfg.Stats.silent.Load())
		r = accepted(hello[:len(hello)-1])
		assert.False(t, r.readHello(), "the rest is not waited for")
		assert.EqualValues(t, 1, l.cfg.Stats.silent.Load())
	})
}

// awaitReadable waits until bytes have arrived.
func awaitReadable(t *testing.T, conn net.Conn) {
	t.Helper()
	raw, err := conn.(syscall.Conn).SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(fd uintptr) {
		assert.True(t, testenv.Readable(t, int(fd), testenv.Watchdog))
	}))
}

// fakeListener replies to a dialer with the given bytes.
func fakeListener(t *testing.T, b []byte) string {
	t.Helper()
	name := abstractName()
	socket, err := net.Listen("unix", name)
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := socket.Accept()
		if err != nil {
			return
		}
		_, _, _ = receive(conn)
		_, _ = conn.Write(b)
		_ = conn.Close()
	}()
	t.Cleanup(func() {
		_ = socket.Close()
		<-done
	})
	return name
}

func TestDial_BadListeners(t *testing.T) {
	answer := sampleAnswer().append(nil)
	for _, tc := range []struct {
		name string
		in   []byte
		want error
	}{
		{"another protocol", []byte("HTTP/1.1 400 Bad Request\r\n\r\n"), ucs.ErrUnsupported},
		{"another version", edit(answer, 4, 9), ucs.ErrUnsupported},
		{"nothing", nil, ucs.ErrConnReset},
		{"half an answer", answer[:len(answer)-1], ucs.ErrConnReset},
		{"too long an answer", edit(answer, 11, 0xff), ucs.ErrInvalidParam},
		{"a wrong answer", edit(answer, headerLen+10, 0xff), ucs.ErrInvalidParam},
		{"a hello", sampleHello().append(nil), ucs.ErrInvalidParam},
		{"a reject of a later version", edit(rejection(CodeVersion, nil), 4, 9), ucs.ErrRejected},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := dialAndExchange(t.Context(), "unix", fakeListener(t, tc.in), sampleHello(), &DialConfig{})
			assert.ErrorIs(t, err, tc.want)
		})
	}
}

func TestDial_ContextHasEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l := open(t, "tcp", ":0", Config{})
	_, err := dialAndExchange(ctx, "tcp", l.Addr().String(), sampleHello(), &DialConfig{})
	assert.Equal(t, context.Canceled, err)
}

func TestPermitted(t *testing.T) {
	own := uint32(os.Geteuid())
	assert.True(t, Identity{Network: "tcp", UID: own + 1}.permitted(nil))
	assert.True(t, Identity{Network: "unix", UID: own}.permitted(nil))
	assert.False(t, Identity{Network: "unix", UID: own + 1}.permitted(nil))
	assert.True(t, Identity{Network: "unix", UID: own + 1}.permitted([]uint32{own + 1}))
}

// dialAndExchange connects to a listener, and exchanges a HELLO for its reply.
func dialAndExchange(ctx context.Context, network, address string, hello *Hello, cfg *DialConfig) (*Conn, error) {
	c, err := Connect(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if err := c.Exchange(ctx, hello, cfg); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}
