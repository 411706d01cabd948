package tcp

import (
	"crypto/tls"
	"io"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// relay returns a listener with a valid certificate. It terminates TLS on both sides and copies
// bytes between its clients and e.
func relay(t *testing.T, a *testenv.Authority, e *end) net.Listener {
	t.Helper()
	cfg := a.Good()
	cfg.NextProtos, cfg.ServerName, cfg.ClientAuth = []string{tlsProtocol}, "127.0.0.1", tls.RequireAndVerifyClientCert
	l, err := tls.Listen("tcp4", "127.0.0.1:0", cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	at := net.JoinHostPort("127.0.0.1", strconv.Itoa(int(e.it.addr.port4)))
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := tls.Dial("tcp4", at, cfg)
			if err != nil {
				_ = in.Close()
				return
			}
			go func() { _, _ = io.Copy(in, out); _ = in.Close() }()
			go func() { _, _ = io.Copy(out, in); _ = out.Close() }()
		}
	}()
	return l
}

// TestTLS_RejectsRelay: a process with a valid certificate cannot relay the handshake of two ifaces
// to read their data, because a proof is valid for one TLS session only.
func TestTLS_RejectsRelay(t *testing.T) {
	a := testenv.NewAuthority(t)
	d, s := newEnd(t, trusting(a)), newEnd(t, trusting(a))
	l := relay(t, a, s)
	ep, err := d.it.NewEP(uct.EPParams{DeviceAddr: s.it.DeviceAddr(nil), IfaceAddr: s.atPort(l)})
	require.NoError(t, err)
	d.eps = append(d.eps, ep.(*endpoint))
	require.NoError(t, ep.(*endpoint).AMShort(msgID, 0, []byte("secret")))
	until(t, func() bool { return len(d.errs) == 1 || len(s.got) > 0 }, d, s)
	require.Empty(t, s.got, "the relay has passed the message on")
	assert.ErrorIs(t, d.errs[0], ucs.ErrRejected)
	assert.ErrorIs(t, s.it.refused.last, errUnproven)
}

// TestTLS_FailsEPWithOtherPeerName: an EP fails if the certificate at its address is for another
// identity than EPParams.Peer, whether the connection is open or not. Other EPs can use the
// connection.
func TestTLS_FailsEPWithOtherPeerName(t *testing.T) {
	a := testenv.NewAuthority(t)
	s := newEnd(t, trusting(a))
	d := newEnd(t, Config{TLS: a.Config(a.Issue("client", time.Hour))})
	params := func(name string) uct.EPParams {
		return uct.EPParams{DeviceAddr: s.it.DeviceAddr(nil), IfaceAddr: s.it.IfaceAddr(nil), Peer: uct.PeerIdentity{Name: name}}
	}
	var eps []*endpoint
	for _, name := range []string{"guest", "worker", ""} {
		ep, err := d.it.NewEP(params(name))
		require.NoError(t, err)
		d.eps, eps = append(d.eps, ep.(*endpoint)), append(eps, ep.(*endpoint))
	}
	send(t, eps[1], 1, 64, d, s)
	flush(t, eps[1], d, s)
	require.Len(t, d.errs, 1)
	assert.Same(t, uct.EP(eps[0]), d.failed[0])
	assert.ErrorIs(t, d.errs[0], ucs.ErrRejected)
	assert.ErrorContains(t, d.errs[0], `the certificate of this address is for "worker", and that of the worker for "guest"`)
	assert.Equal(t, "client", s.it.table[d.it.addr.key].certName)

	_, err := d.it.NewEP(params("guest"))
	assert.ErrorIs(t, err, ucs.ErrRejected)
	ep, err := d.it.NewEP(params("worker"))
	require.NoError(t, err)
	require.NoError(t, ep.Close())
	assert.Len(t, s.got, 1)
}

// TestTLS_ReplacesOnlySameName: only a connection with a certificate for the same identity can
// replace a connection. Two ifaces of one identity have one connection each.
func TestTLS_ReplacesOnlySameName(t *testing.T) {
	a := testenv.NewAuthority(t)
	s, d, other := newEnd(t, trusting(a)), newEnd(t, trusting(a)), newEnd(t, trusting(a))
	for _, e := range []*end{d, other} {
		ep := e.to(s)
		send(t, ep, 1, 64, e, s)
		flush(t, ep, e, s)
	}
	assert.Len(t, s.got, 2)
	c := s.it.table[d.it.addr.key]
	h := hello{from: d.it.addr.key, other: c.id, seg: s.it.addr.seg, replies: maxReplies}
	_, answer, why := s.it.evaluate(&h, "guest")
	assert.Equal(t, codeRefused, answer.code)
	assert.ErrorIs(t, why, errOtherCert)
	assert.Equal(t, connOpen, c.state)
	_, answer, why = s.it.evaluate(&h, "worker")
	assert.Equal(t, codeOK, answer.code)
	assert.NoError(t, why)
	assert.NotEqual(t, connOpen, c.state)
}
