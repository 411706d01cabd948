package ucpnet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/uct/all"
)

// secretWorker returns a worker over tcp with a certificate of the given authority.
func secretWorker(t *testing.T, a *testenv.Authority) *ucp.SharedWorker {
	t.Helper()
	var cfg all.Config
	cfg.TCP.TLS = a.Config(a.Issue("worker", time.Hour))
	return newWorkerOver(t, "tcp", cfg.Components())
}

// TestDial_TLS: connections use the TLS of the transport, and a client without TLS is rejected.
func TestDial_TLS(t *testing.T) {
	authority := testenv.NewAuthority(t)
	client, server, plain := secretWorker(t, authority), secretWorker(t, authority), newWorker(t, "tcp")
	l, err := Listen(t.Context(), server, "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	(&pair{a: server}).serve(t)
	_, err = Dial(t.Context(), plain, "tcp", l.Addr().String())
	assert.ErrorIs(t, err, ucp.ErrUnauthenticated)
	(&pair{a: client}).serve(t)
	a, err := Dial(t.Context(), client, "tcp", l.Addr().String())
	require.NoError(t, err)
	b, err := l.Accept()
	require.NoError(t, err)
	for _, c := range []*Conn{a, b.(*Conn)} {
		assert.Equal(t, "worker", c.PeerIdentity().Name)
	}
	require.NoError(t, writeOne(a))
	require.NoError(t, readOne(b))
	closeBoth(a, b)
}
