package ucpnet

import (
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestAccept_Once: a server that accepts one connection, and then makes no progress, does not hold
// up the Dial of its client.
func TestAccept_Once(t *testing.T) {
	for _, tls := range sets[1:] { // a worker that dials itself makes progress for both
		t.Run(tls, func(t *testing.T) {
			client, server := newWorker(t, tls), newWorker(t, tls)
			l, err := Listen(t.Context(), server, "unix", freshName())
			require.NoError(t, err)
			dialed := make(chan error, 1)
			var a *Conn
			go func() {
				var err error
				a, err = Dial(t.Context(), client, "unix", l.Addr().String())
				dialed <- err
			}()
			b, err := l.Accept()
			require.NoError(t, err)
			require.NoError(t, <-dialed, "without progress of the server")
			(&pair{a: client}).serve(t)
			require.NoError(t, writeOne(a))
			require.NoError(t, readOne(b))
			closeBoth(a, b)
			require.NoError(t, l.Close())
		})
	}
}

// TestListen_OnePort: a client that reaches the port of the listener only, by an address that is not the
// server's, works.
func TestListen_OnePort(t *testing.T) {
	client, server := newWorker(t, "tcp"), newWorker(t, "tcp")
	l, err := Listen(t.Context(), server, "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	near, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer near.Close()
	var passed atomic.Int64
	go func() {
		for {
			from, err := near.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				_ = from.Close()
				return
			}
			passed.Add(1)
			for _, way := range [][2]net.Conn{{from, to}, {to, from}} {
				go func() {
					_, _ = io.Copy(struct{ io.Writer }{way[0]}, struct{ io.Reader }{way[1]}) // without splice, whose pipes stay open
					_, _ = way[0].Close(), way[1].Close()
				}()
			}
		}
	}()
	dialed := make(chan error, 1)
	var a *Conn
	go func() {
		var err error
		a, err = Dial(t.Context(), client, "tcp", near.Addr().String())
		dialed <- err
	}()
	b, err := l.Accept()
	require.NoError(t, err)
	require.NoError(t, <-dialed)
	(&pair{a: client}).serve(t)
	require.NoError(t, writeOne(a))
	require.NoError(t, readOne(b))
	assert.EqualValues(t, 2, passed.Load())
	closeBoth(a, b)
	require.NoError(t, l.Close())
}
