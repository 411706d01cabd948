package ucpnet

import (
	"bytes"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestConn_CloseWrite: one side sends a request and ends its stream; the other reads to io.EOF, replies, and closes.
func TestConn_CloseWrite(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.serve(t)
		for _, turned := range []bool{false, true} {
			from, to := p.connect()
			if turned {
				from, to = to, from
			}
			ask, reply := pattern(300000), pattern(70000)
			asked := make(chan error, 1)
			go func() {
				_, err := from.Write(ask)
				if err == nil {
					err = from.(*Conn).CloseWrite()
				}
				asked <- err
			}()
			got, err := io.ReadAll(to)
			require.NoError(t, err)
			require.True(t, bytes.Equal(ask, got), "%d bytes of %d", len(got), len(ask))
			require.NoError(t, <-asked)
			require.NoError(t, from.SetWriteDeadline(time.Now().Add(time.Hour)))
			require.ErrorIs(t, writeOne(from), syscall.EPIPE)
			require.NoError(t, from.(*Conn).CloseWrite(), "again")
			require.Equal(t, io.EOF, readOne(to), "again")

			go func() {
				_, err := to.Write(reply)
				if err == nil {
					err = to.Close()
				}
				asked <- err
			}()
			got, err = io.ReadAll(from)
			require.NoError(t, err)
			require.True(t, bytes.Equal(reply, got), "%d bytes of %d", len(got), len(reply))
			require.NoError(t, <-asked)
			require.NoError(t, from.Close())
			require.ErrorIs(t, from.(*Conn).CloseWrite(), net.ErrClosed)
		}
	})
}

// TestConn_CloseWriteUnderWrite: a blocked Write fails when another goroutine calls CloseWrite, and the peer reads as
// many bytes as the Write has returned.
func TestConn_CloseWriteUnderWrite(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.serve(t)
		from, to := p.connect()
		want := pattern(4 << 20) // more than the peer's window
		type result struct {
			n   int
			err error
		}
		written := make(chan result, 1)
		go func() {
			n, err := from.Write(want)
			written <- result{n, err}
		}()
		first := make([]byte, 1)
		_, err := io.ReadFull(to, first)
		require.NoError(t, err)
		require.NoError(t, from.(*Conn).CloseWrite())
		got, err := io.ReadAll(to)
		require.NoError(t, err)
		r := <-written
		require.ErrorIs(t, r.err, syscall.EPIPE)
		require.True(t, bytes.Equal(want[:r.n], append(first, got...)), "%d bytes of %d", len(got)+1, r.n)
		closeBoth(from, to)
	})
}

// TestConn_Addrs: addresses are as those of connections of package net.
func TestConn_Addrs(t *testing.T) {
	for network, address := range map[string]func() string{
		"tcp":  func() string { return "127.0.0.1:0" },
		"unix": freshName,
	} {
		t.Run(network, func(t *testing.T) {
			client, server := newWorker(t, "sm"), newWorker(t, "sm")
			l, err := Listen(t.Context(), server, network, address())
			require.NoError(t, err)
			(&pair{a: server}).serve(t)
			a, err := Dial(t.Context(), client, network, l.Addr().String())
			require.NoError(t, err)
			b, err := l.Accept()
			require.NoError(t, err)
			plain, err := net.Listen(network, address())
			require.NoError(t, err)
			defer plain.Close()
			c, err := net.Dial(network, plain.Addr().String())
			require.NoError(t, err)
			defer c.Close()
			d, err := plain.Accept()
			require.NoError(t, err)
			defer d.Close()
			want := []net.Addr{c.LocalAddr(), c.RemoteAddr(), d.LocalAddr(), d.RemoteAddr()}
			for i, got := range []net.Addr{a.LocalAddr(), a.RemoteAddr(), b.LocalAddr(), b.RemoteAddr()} {
				assert.IsType(t, want[i], got)
				assert.Equal(t, want[i].Network(), got.Network())
				_, _, wantErr := net.SplitHostPort(want[i].String())
				_, _, err := net.SplitHostPort(got.String())
				assert.Equal(t, wantErr == nil, err == nil, "%v", got)
			}
			assert.Equal(t, l.Addr().String(), a.RemoteAddr().String())
			assert.Equal(t, l.Addr().String(), b.LocalAddr().String())
			assert.Equal(t, a.LocalAddr().String(), b.RemoteAddr().String())
			closeBoth(a, b)
			require.NoError(t, l.Close())
		})
	}
}

// TestConn_PeerKilled: the errors of a connection whose peer was killed match those of package net.
func TestConn_PeerKilled(t *testing.T) {
	for _, tls := range []string{"sm", "tcp"} {
		t.Run(tls, func(t *testing.T) {
			w := newWorker(t, tls)
			l, err := Listen(t.Context(), w, "unix", freshName())
			require.NoError(t, err)
			peer := startChild(t, nil, "peer", tls, "unix", l.Addr().String())
			c, err := l.Accept()
			require.NoError(t, err)
			require.NoError(t, readOne(c))
			peer.Kill(t)
			for range 2 {
				require.ErrorIs(t, readOne(c), syscall.ECONNRESET)
			}
			err = writeOne(c)
			require.ErrorIs(t, err, syscall.ECONNRESET)
			require.False(t, err.(net.Error).Timeout())
			require.NoError(t, c.Close())
			require.NoError(t, l.Close())
		})
	}
}

// TestConn_WorkerClosed: blocked and later calls fail with net.ErrClosed when the worker was closed.
func TestConn_WorkerClosed(t *testing.T) {
	p := newPair(t, "sm")
	a, b := p.connect()
	read := make(chan error, 1)
	go func() { read <- readOne(b) }()
	l, err := Listen(t.Context(), p.b, "unix", freshName())
	require.NoError(t, err)
	go func() {
		_, err := l.Accept()
		read <- err
	}()
	require.NoError(t, p.b.Close())
	require.ErrorIs(t, <-read, net.ErrClosed)
	require.ErrorIs(t, <-read, net.ErrClosed)
	require.ErrorIs(t, writeOne(b), net.ErrClosed)
	require.ErrorIs(t, readOne(b), net.ErrClosed)
	require.Equal(t, io.EOF, readOne(a))
	require.ErrorIs(t, writeOne(a), syscall.EPIPE)
	closeBoth(a, b)
}

// TestDial_NoListener: the error matches that of package net.
func TestDial_NoListener(t *testing.T) {
	_, err := Dial(t.Context(), newWorker(t, "sm"), "unix", freshName())
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
}
