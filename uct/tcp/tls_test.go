package tcp

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ucttest"
)

// trusting returns a configuration with certificates of a.
func trusting(a *testenv.Authority) Config { return Config{TLS: a.Good()} }

func TestConformance_TLS(t *testing.T) {
	if runtime.GOMAXPROCS(0) == 1 {
		t.Skip("with one CPU, a suite that polls lets the goroutines of TLS check their sockets only every 10 ms")
	}
	if testing.Short() || testenv.RaceEnabled {
		t.Skip("takes minutes on a busy machine, as each message wakes four goroutines; the other tests of TLS run")
	}
	a := testenv.NewAuthority(t)
	secret := a.Config(a.Issue("worker", time.Hour))
	h := harness()
	h.Engine = true
	if !testenv.Soak() { // TLS does not change how requests access memory
		h.Except = []string{"atomic", "fault", "fence/matrix", "mem", "put", "get", "revoke", "cost", "reenter/completion", "limit"}
	}
	h.Watchdog = 5 * time.Minute // goroutines wait for a CPU on a busy machine
	h.Config = func(o ucttest.Options) any {
		cfg := tiny(o).(Config)
		cfg.TLS = secret
		cfg.SndBuf, cfg.RcvBuf = 0, 0 // small buffers would need a wake-up for every few messages
		return cfg
	}
	ucttest.Test(t, localPeers(h))
}

// TestTLS_RejectsInvalidCertificates: a peer without a valid certificate gets no connection, and
// both sides report the reason.
func TestTLS_RejectsInvalidCertificates(t *testing.T) {
	a, other := testenv.NewAuthority(t), testenv.NewAuthority(t)
	fine := a.Issue("worker", time.Hour)
	named := func(c Config, name string) Config { c.TLSName = name; return c }
	for _, tc := range []struct {
		name             string
		dials, accepts   Config
		dialer, accepter string // part of the error of each side
	}{
		{"unknown authority of the client", Config{TLS: &tls.Config{Certificates: []tls.Certificate{other.Issue("worker", time.Hour)}, RootCAs: a.Pool(), ClientCAs: a.Pool()}},
			trusting(a), "unknown certificate authority", "signed by unknown authority"},
		{"unknown authority of the server", trusting(a), Config{TLS: &tls.Config{Certificates: []tls.Certificate{other.Issue("worker", time.Hour)}, RootCAs: a.Pool(), ClientCAs: a.Pool()}},
			"signed by unknown authority", "bad certificate"},
		{"expired client", Config{TLS: a.Config(a.Issue("worker", -time.Hour))}, trusting(a), "expired certificate", "expired"},
		{"expired server", trusting(a), Config{TLS: a.Config(a.Issue("worker", -time.Hour))}, "expired", "bad certificate"},
		{"name of the client", named(Config{TLS: a.Config(a.Issue("guest", time.Hour))}, "worker"), named(Config{TLS: a.Config(fine)}, "worker"),
			"bad certificate", "valid for guest"},
		{"name of the server", named(Config{TLS: a.Config(fine)}, "worker"), named(Config{TLS: a.Config(a.Issue("guest", time.Hour))}, "worker"),
			"valid for guest", "bad certificate"},
		{"address of the client", Config{TLS: a.Config(a.IssueAs("worker", time.Hour, func(c *x509.Certificate) { c.IPAddresses = nil }))}, trusting(a),
			"bad certificate", "TLS_NAME"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d, s := newEnd(t, tc.dials), newEnd(t, tc.accepts)
			ep := d.to(s)
			require.NoError(t, ep.AMShort(msgID, 0, nil))
			until(t, func() bool { return len(d.errs) == 1 && s.it.limits.refused.Load() > 0 }, d, s)
			assert.ErrorIs(t, d.errs[0], ucs.ErrRejected)
			assert.ErrorContains(t, d.errs[0], tc.dialer)
			assert.ErrorContains(t, s.it.refused.last, tc.accepter)
			assert.Empty(t, s.got)
			assert.Zero(t, s.it.openCount)
		})
	}
}

// dialTLS runs a TLS client against e and returns its error. A client of TLS 1.3 gets errors of the
// server not in the handshake, but at the first read.
func dialTLS(t *testing.T, e *end, cfg *tls.Config) error {
	t.Helper()
	sock := client(t, e)
	done := make(chan error, 1)
	go func() {
		conn := tls.Client(sock, cfg)
		err := conn.Handshake()
		if err == nil {
			_, err = conn.Read(make([]byte, 1))
		}
		done <- err
	}()
	var err error
	until(t, func() bool {
		select {
		case err = <-done:
			return true
		default:
			return false
		}
	}, e)
	return err
}

// TestTLS_RejectsOtherClients: other TLS clients are refused with a TLS alert.
func TestTLS_RejectsOtherClients(t *testing.T) {
	a := testenv.NewAuthority(t)
	cert := a.Issue("worker", time.Hour)
	client := func(change func(*tls.Config)) *tls.Config {
		c := &tls.Config{RootCAs: a.Pool(), ServerName: "127.0.0.1", NextProtos: []string{tlsProtocol}, Certificates: []tls.Certificate{cert}}
		change(c)
		return c
	}
	for _, tc := range []struct {
		name           string
		cfg            *tls.Config
		client, server string
	}{
		{"no certificate", client(func(c *tls.Config) { c.Certificates = nil }), "certificate required", "didn't provide a certificate"},
		{"TLS 1.2", client(func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }), "protocol version", "unsupported versions"},
		{"another protocol", client(func(c *tls.Config) { c.NextProtos = []string{"h2"} }), "no application protocol", "unsupported application protocols"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := newEnd(t, trusting(a))
			assert.ErrorContains(t, dialTLS(t, e, tc.cfg), tc.client)
			until(t, func() bool { return e.it.refused.last != nil }, e)
			assert.ErrorContains(t, e.it.refused.last, tc.server)
		})
	}
}

// TestTLS_RejectsDowngrade: an end with TLS and one without reject each other by their addresses,
// and in the handshake if an address was modified.
func TestTLS_RejectsDowngrade(t *testing.T) {
	a := testenv.NewAuthority(t)
	for _, tc := range []struct {
		name                   string
		dials, accepts         Config
		why, dialer, accepting string
	}{
		{"plain to TLS", Config{}, trusting(a), "the peer demands TLS", "the peer demands TLS", "first record does not look like a TLS handshake"},
		{"TLS to plain", trusting(a), Config{}, "TLS is demanded here", "no application protocol", "the peer uses TLS, and this side does not"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d, s := newEnd(t, tc.dials), newEnd(t, tc.accepts)
			ok, why := d.it.Reachable(s.it.DeviceAddr(nil), s.it.IfaceAddr(nil))
			assert.False(t, ok)
			assert.Contains(t, why, tc.why)
			_, err := d.it.NewEP(uct.EPParams{DeviceAddr: s.it.DeviceAddr(nil), IfaceAddr: s.it.IfaceAddr(nil)})
			require.ErrorIs(t, err, uct.ErrUnreachable)

			forged := s.it.addr
			forged.tls = d.it.addr.tls
			ep, err := d.it.NewEP(uct.EPParams{DeviceAddr: s.it.DeviceAddr(nil), IfaceAddr: forged.append(nil)})
			require.NoError(t, err)
			defer ep.Close()
			require.NoError(t, ep.(*endpoint).AMShort(msgID, 0, nil))
			until(t, func() bool { return len(d.errs) == 1 && s.it.refused.last != nil }, d, s)
			assert.ErrorIs(t, d.errs[0], ucs.ErrRejected)
			assert.ErrorContains(t, d.errs[0], tc.dialer)
			assert.ErrorContains(t, s.it.refused.last, tc.accepting)
		})
	}
}

// TestTLS_Encrypts: data is not visible on the network, and arrives completely.
func TestTLS_Encrypts(t *testing.T) {
	a := testenv.NewAuthority(t)
	d, s := newEnd(t, trusting(a)), newEnd(t, trusting(a))
	tap := newTap(t, s)
	addr := s.it.addr
	addr.port4 = tap.port
	got, err := d.it.NewEP(uct.EPParams{DeviceAddr: s.it.DeviceAddr(nil), IfaceAddr: addr.append(nil)})
	require.NoError(t, err)
	ep := got.(*endpoint)
	d.eps = append(d.eps, ep)
	key := d.keyOf(s)
	want := fill(make([]byte, endMem), 1)
	c := newCounter(1)
	push(t, func() error {
		_, err := ep.PutZcopy([]uct.IOV{{Buf: want}}, s.mem.addr, key, &c.Completion)
		return err
	}, d, s)
	until(t, func() bool { return c.fired == 1 }, d, s)
	assert.Equal(t, ucs.StatusOK, c.Status)
	assert.True(t, bytes.Equal(want, s.mem.buf))
	seen := tap.seen()
	assert.Greater(t, len(seen), endMem)
	assert.NotContains(t, string(seen), string(want[:16]))
	assert.NotContains(t, string(seen), "GXCP")
}

// tap forwards one connection and records the bytes of the client.
type tap struct {
	port  uint16
	bytes chan []byte
	conns chan net.Conn // to close
}

func newTap(t *testing.T, to *end) *tap {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &tap{port: uint16(l.Addr().(*net.TCPAddr).Port), bytes: make(chan []byte, 1), conns: make(chan net.Conn, 2)}
	go func() {
		defer l.Close()
		in, err := l.Accept()
		if err != nil {
			return
		}
		out, err := net.DialTCP("tcp", nil, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(to.it.addr.port4)})
		if err != nil {
			in.Close()
			return
		}
		p.conns <- in
		p.conns <- out
		go io.Copy(struct{ io.Writer }{in}, struct{ io.Reader }{out})
		var seen bytes.Buffer
		_, _ = io.Copy(struct{ io.Writer }{out}, io.TeeReader(in, &seen))
		p.bytes <- seen.Bytes()
	}()
	return p
}

// seen closes the connection and returns the recorded bytes.
func (p *tap) seen() []byte {
	(<-p.conns).Close()
	seen := <-p.bytes
	(<-p.conns).Close()
	return seen
}

// TestTLS_CloseWithoutByeFailsEPs: a connection that is closed without BYE fails the EPs.
func TestTLS_CloseWithoutByeFailsEPs(t *testing.T) {
	a := testenv.NewAuthority(t)
	d, s := newEnd(t, trusting(a)), newEnd(t, trusting(a))
	ep := d.to(s)
	send(t, ep, 1, 64, d, s)
	flush(t, ep, d, s)
	ep.conn.tun.Socket(func(sock *net.TCPConn) { require.NoError(t, sock.CloseWrite()) })
	back := s.to(d)
	until(t, func() bool { return len(s.errs) == 1 }, d, s)
	assert.ErrorIs(t, s.errs[0], ucs.ErrConnReset)
	assert.Same(t, uct.EP(back), s.failed[0])
}

// TestTLS_CloseDeliversPosted: messages that were posted before a close arrive.
func TestTLS_CloseDeliversPosted(t *testing.T) {
	a := testenv.NewAuthority(t)
	d, s := newEnd(t, trusting(a)), newEnd(t, trusting(a))
	ep := d.to(s)
	send(t, ep, 0, 64, d, s)
	flush(t, ep, d, s)
	const count = 500
	for i := 1; i <= count; i++ {
		require.NoError(t, ep.AMShort(msgID, uint64(i), make([]byte, 100)))
	}
	d.close()
	until(t, func() bool { return len(s.got) == count+1 }, s)
	for i, m := range s.got {
		require.EqualValues(t, i, binary.LittleEndian.Uint64(m))
	}
}

// TestTLS_Files: certificates can be in files.
func TestTLS_Files(t *testing.T) {
	a := testenv.NewAuthority(t)
	var whole Config
	whole.TLSCert, whole.TLSKey, whole.TLSCA = a.Files(a.Issue("worker", time.Hour))
	d, s := newEnd(t, whole), newEnd(t, trusting(a))
	ep := d.to(s)
	send(t, ep, 1, 64, d, s)
	flush(t, ep, d, s)
	assert.Len(t, s.got, 1)
}
