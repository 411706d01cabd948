package ucpnet

import (
	"bytes"
	"io"
	"net"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
)

// TestAccept_DialNeedsNoFurtherProgress: Dial returns although the server makes no progress after Accept has returned.
func TestAccept_DialNeedsNoFurtherProgress(t *testing.T) {
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

// TestAccept_WrittenDataArrivesWithoutCalls: a client receives data that a server has written although the server makes no
// calls after Write. The server later reads the data that the client has written in the meantime.
func TestAccept_WrittenDataArrivesWithoutCalls(t *testing.T) {
	for _, tls := range sets[1:] {
		t.Run(tls, func(t *testing.T) {
			client, server := newWorker(t, tls), newWorker(t, tls)
			(&pair{a: client}).serve(t)
			l, err := Listen(t.Context(), server, "unix", freshName())
			require.NoError(t, err)
			for _, n := range []int{1, 5000, 70000, 1 << 20} {
				want := pattern(n)
				written := make(chan error, 1)
				var b net.Conn
				go func() {
					var err error
					if b, err = l.Accept(); err == nil {
						_, err = b.Write(want)
					}
					written <- err
				}()
				a, err := Dial(t.Context(), client, "unix", l.Addr().String())
				require.NoError(t, err)
				got := make([]byte, n)
				require.NoError(t, a.SetDeadline(time.Now().Add(testenv.Watchdog)))
				_, err = io.ReadFull(a, got)
				require.NoError(t, err)
				require.True(t, bytes.Equal(want, got))
				require.NoError(t, <-written)
				unread := want[:min(n, 10000)] // less than the first window
				_, err = a.Write(unread)
				require.NoError(t, err, "without progress of the server")
				closed := make(chan error, 1)
				go func() { closed <- a.Close() }()
				got, err = io.ReadAll(b)
				require.NoError(t, err)
				require.True(t, bytes.Equal(unread, got))
				require.NoError(t, <-closed)
				require.NoError(t, b.Close())
			}
			require.NoError(t, l.Close())
		})
	}
}

// TestListenOn_WrongType: a socket of another type is rejected, and is not closed.
func TestListenOn_WrongType(t *testing.T) {
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l, err := ListenOn(newWorker(t, "sm"), struct{ net.Listener }{socket})
	require.ErrorIs(t, err, ucs.ErrInvalidParam)
	require.Nil(t, l)
	require.NoError(t, socket.Close())
}

// TestListener_Drain: Drain returns when Accept has returned the connections that had reached the listener. Another
// listener can use the socket.
func TestListener_Drain(t *testing.T) {
	client, server := newWorker(t, "sm"), newWorker(t, "sm")
	l, err := Listen(t.Context(), server, "unix", filepath.Join(testenv.SocketDir(t), "s"))
	require.NoError(t, err)
	(&pair{a: server}).serve(t)
	dial := func() *Conn {
		c, err := Dial(t.Context(), client, "unix", l.Addr().String())
		require.NoError(t, err)
		return c
	}
	a := dial()
	f, err := l.Detach()
	require.NoError(t, err)
	drained := make(chan error, 1)
	go func() { drained <- l.Drain(t.Context()) }()
	select {
	case err := <-drained:
		t.Errorf("drained with a connection that nobody has accepted: %v", err)
	case <-time.After(20 * time.Millisecond): // nothing shows that Drain waits
	}
	b, err := l.Accept()
	require.NoError(t, err)
	require.NoError(t, <-drained)
	require.NoError(t, l.Close())
	next, err := listenOnFile(server, f)
	require.NoError(t, err)
	c := dial()
	d, err := next.Accept()
	require.NoError(t, err)
	for _, x := range [][2]net.Conn{{a, b}, {c, d}} {
		require.NoError(t, writeOne(x[0]))
		require.NoError(t, readOne(x[1]))
		closeBoth(x[0], x[1])
	}
	require.NoError(t, next.Close())
}

// TestListener_ClosesAllAtOnce: Close closes all connections that Accept has not returned before it waits for the first,
// whose peer makes no calls.
func TestListener_ClosesAllAtOnce(t *testing.T) {
	client, server := newWorker(t, "tcp"), newWorker(t, "tcp")
	l, err := Listen(t.Context(), server, "unix", freshName())
	require.NoError(t, err)
	(&pair{a: server}).serve(t)
	var dialed []net.Conn
	for range 3 {
		c, err := Dial(t.Context(), client, "unix", l.Addr().String())
		require.NoError(t, err)
		dialed = append(dialed, c)
	}
	var waiting []*Conn
	server.Do(func(*ucp.Worker) { waiting = slices.Clone(l.waiting) })
	require.Len(t, waiting, len(dialed))
	over := make(chan error, 1)
	go func() { over <- l.Close() }()
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
		open := 0
		server.Do(func(*ucp.Worker) {
			for _, c := range waiting {
				if c.open.Err() == nil {
					open++
				}
			}
		})
		require.Contains(t, []int{0, len(dialed)}, open, "open connections")
		return open == 0
	})
	(&pair{a: client}).serve(t)
	require.NoError(t, <-over)
	for _, c := range dialed {
		require.Equal(t, io.EOF, readOne(c))
		require.NoError(t, c.Close())
	}
}

// TestListen_OnePort: a client can connect that reaches only the port of the listener, through an address that is not
// the server's.
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
