package tcp

import (
	"errors"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/keypair"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct"
)

// end is one end of a connection in a test: an iface and what its callbacks received.
type end struct {
	t      testing.TB
	md     *domain
	it     *iface
	mem    *memory
	errs   []error
	failed []uct.EP
	got    [][]byte
	eps    []*endpoint
}

// msgID is the active message that ends append to got.
const msgID = 3

const endMem = 1 << 20

func newEnd(t testing.TB, cfg Config) *end {
	t.Helper()
	return newEndOn(t, "lo", cfg)
}

func newEndOn(t testing.TB, device string, cfg Config) *end {
	t.Helper()
	return openEnd(t, device, "", cfg)
}

// openEnd opens an end with a token.
func openEnd(t testing.TB, device, token string, cfg Config) *end {
	t.Helper()
	md, err := New(Config{Devices: []string{allDevices}}).OpenMD(Name)
	require.NoError(t, err)
	e := &end{t: t, md: md.(*domain)}
	it, err := md.OpenIface(uct.IfaceParams{Transport: Name, Device: device, Config: cfg, Token: token,
		OnError: func(ep uct.EP, err error) { e.failed, e.errs = append(e.failed, ep), append(e.errs, err) }})
	require.NoError(t, err)
	e.it = it.(*iface)
	mem, err := e.md.Alloc(endMem, uct.AccessAll)
	require.NoError(t, err)
	e.mem = mem.(*memory)
	keep := func(d []byte, _ uct.Desc) bool { e.got = append(e.got, append([]byte(nil), d...)); return false }
	require.NoError(t, it.SetAMHandler(msgID, uct.AMHandlerFunc(keep)))
	t.Cleanup(e.close)
	return e
}

// close closes everything. Idempotent.
func (e *end) close() {
	for _, ep := range e.eps {
		ep.PurgePending(func(*uct.PendingReq) {})
		require.NoError(e.t, ep.Close())
	}
	e.eps = nil
	require.NoError(e.t, e.it.Close())
	require.NoError(e.t, e.mem.Close())
	require.NoError(e.t, e.md.Close())
}

// to makes an EP to another end.
func (e *end) to(peer *end) *endpoint {
	e.t.Helper()
	ep, err := e.it.NewEP(uct.EPParams{DeviceAddr: peer.it.DeviceAddr(nil), IfaceAddr: peer.it.IfaceAddr(nil)})
	require.NoError(e.t, err)
	e.eps = append(e.eps, ep.(*endpoint))
	return ep.(*endpoint)
}

// name makes an EP of e to the peer with this key.
func (e *end) name(k *keypair.PublicKey) *endpoint {
	e.t.Helper()
	addr := ifaceAddr{port4: 1, key: *k, seg: e.it.addr.seg}
	ep, err := e.it.NewEP(uct.EPParams{DeviceAddr: e.it.DeviceAddr(nil), IfaceAddr: addr.append(nil)})
	require.NoError(e.t, err)
	e.eps = append(e.eps, ep.(*endpoint))
	return ep.(*endpoint)
}

// keyOf unpacks the key of peer's memory for e.
func (e *end) keyOf(peer *end) uct.RKey {
	b, err := peer.mem.PackRKey(nil)
	require.NoError(e.t, err)
	key, err := e.md.UnpackRKey(b)
	require.NoError(e.t, err)
	e.t.Cleanup(func() { e.md.ReleaseRKey(key) })
	return key
}

// limit is the timeout of waits.
const limit = testenv.Watchdog

// After idleRounds consecutive rounds without progress, until sleeps for idlePause, so that other
// processes can run.
const (
	idleRounds = 16
	idlePause  = 20 * time.Microsecond
)

// until calls Progress of the ends until cond is true.
func until(t testing.TB, cond func() bool, ends ...*end) {
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
		require.Less(t, time.Since(start), limit, "no progress")
		time.Sleep(idlePause)
	}
}

// flush waits until all requests of ep are executed.
func flush(t testing.TB, ep *endpoint, ends ...*end) {
	t.Helper()
	until(t, func() bool {
		busy, err := ep.Flush(nil)
		require.True(t, err == nil || err == uct.ErrNoResource, "%v", err)
		return err == nil && !busy
	}, ends...)
}

// push posts as soon as there are resources.
func push(t testing.TB, post func() error, ends ...*end) {
	t.Helper()
	var err error
	until(t, func() bool { err = post(); return err != uct.ErrNoResource }, ends...)
	require.NoError(t, err)
}

// send posts a message of n bytes, which starts with seq.
func send(t testing.TB, ep *endpoint, seq uint64, n int, ends ...*end) {
	t.Helper()
	payload := make([]byte, n-8)
	for i := range payload {
		payload[i] = byte(seq) + byte(i)
	}
	push(t, func() error { return ep.AMShort(msgID, seq, payload) }, ends...)
}

// counter is a completion that counts its calls.
type counter struct {
	uct.Completion
	fired int
}

func newCounter(count int) *counter {
	c := &counter{}
	c.Count = count
	c.Func = func(*uct.Completion) { c.fired++ }
	return c
}

// fill fills b with pseudo-random bytes.
func fill(b []byte, seed int) []byte {
	x := uint32(seed)*2654435761 + 1
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}

// killSockets closes every socket of an iface like the death of its process: during operations and
// without BYE. The iface can still be closed.
func killSockets(it *iface, reset bool) error {
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(null)
	var errs []error
	for fd, w := range it.poll.All() {
		if c, ok := w.(*conn); ok && c.tun != nil {
			c.tun.Socket(func(sock *net.TCPConn) {
				if reset {
					_ = sock.SetLinger(0)
				}
				_ = sock.Close()
			})
		}
		if reset {
			_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		}
		errs = append(errs, unix.Dup3(null, fd, unix.O_CLOEXEC))
	}
	return errors.Join(errs...)
}
