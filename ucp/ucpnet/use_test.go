package ucpnet

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
)

// pattern returns n bytes.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>9)
	}
	return b
}

// TestConn_ReadAfterPeerClosed: data that was written before a close can be read at both ends after it.
func TestConn_ReadAfterPeerClosed(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.serve(t)
		for _, turned := range []bool{false, true} {
			from, to := p.connect()
			if turned {
				from, to = to, from
			}
			want := pattern(50000)
			n, err := from.Write(want)
			require.NoError(t, err)
			require.Equal(t, len(want), n)
			require.NoError(t, from.Close())
			got, err := io.ReadAll(to)
			require.NoError(t, err)
			require.True(t, bytes.Equal(want, got), "%d bytes of %d", len(got), len(want))
			_, err = to.Write([]byte{1})
			require.ErrorIs(t, err, ucs.ErrPeerClosed)
			require.NoError(t, to.Close())
		}
	})
}

// TestConn_WriteDeadline: a Write that fails at its deadline returns the number of bytes sent, and the peer reads
// exactly these.
func TestConn_WriteDeadline(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.serve(t)
		from, to := p.connect()
		want := pattern(4 << 20) // more than the peer's window
		require.NoError(t, from.SetWriteDeadline(time.Now().Add(20*time.Millisecond)))
		n, err := from.Write(want)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Less(t, n, len(want))
		var timeout net.Error
		require.True(t, errors.As(err, &timeout) && timeout.Timeout())

		require.NoError(t, from.SetWriteDeadline(time.Time{}))
		written := make(chan error, 1)
		go func() {
			_, err := from.Write([]byte("end"))
			written <- err
		}()
		got := make([]byte, n+3)
		_, err = io.ReadFull(to, got)
		require.NoError(t, err)
		require.NoError(t, <-written)
		require.True(t, bytes.Equal(want[:n], got[:n]))
		require.Equal(t, "end", string(got[n:]))
		closeBoth(from, to)
	})
}

// TestConn_Closed: calls of a closed connection or listener fail with net.ErrClosed.
func TestConn_Closed(t *testing.T) {
	p := newPair(t, "sm")
	a, b := p.connect()
	closeBoth(a, b)
	for _, err := range []error{
		a.Close(), a.SetDeadline(time.Time{}), readOne(a), writeOne(a),
	} {
		assert.ErrorIs(t, err, net.ErrClosed)
		var op *net.OpError
		assert.ErrorAs(t, err, &op)
	}
	a, b = p.connect()
	require.NoError(t, p.l.Close())
	require.NoError(t, writeOne(a), "connections outlive the listener")
	require.NoError(t, readOne(b))
	closeBoth(a, b)
	_, err := Dial(t.Context(), p.a, "unix", p.l.Addr().String())
	require.ErrorIs(t, err, ucs.ErrUnreachable)
}

// TestListen_InvalidAddress: Listen on an invalid address fails.
func TestListen_InvalidAddress(t *testing.T) {
	l, err := Listen(t.Context(), newWorker(t, "sm"), "udp", "x")
	require.ErrorIs(t, err, ucs.ErrInvalidParam)
	require.Nil(t, l)
}

// TestListen_Backlog: up to backlog connections wait for Accept; one more is rejected.
func TestListen_Backlog(t *testing.T) {
	a, b := newWorker(t, "sm"), newWorker(t, "sm")
	l, err := Listen(t.Context(), b, "unix", freshName())
	require.NoError(t, err)
	(&pair{a: b}).serve(t)
	waiting := func(n int) {
		b.Do(func(*ucp.Worker) { l.waiting = make([]*Conn, n) })
	}
	waiting(backlog)
	_, err = Dial(t.Context(), a, "unix", l.Addr().String())
	require.Error(t, err)
	waiting(backlog - 1)
	c, err := Dial(t.Context(), a, "unix", l.Addr().String())
	require.NoError(t, err)
	b.Do(func(*ucp.Worker) { l.waiting = l.waiting[backlog-1:] })
	accepted, err := l.Accept()
	require.NoError(t, err)
	closeBoth(c, accepted)
	require.NoError(t, l.Close())
}

// TestListener_RemovesClosedConns: the listener does not refer to closed connections.
func TestListener_RemovesClosedConns(t *testing.T) {
	p := newPair(t, "sm")
	for range 3 {
		a, b := p.connect()
		require.NoError(t, b.Close()) // the accepted end first
		_ = a.Close()                 // the peer is gone
	}
	p.b.Do(func(*ucp.Worker) { assert.Empty(t, p.l.conns) })
}

// TestDeadline_OldTimer: a deadline that was replaced or cleared has no effect, even if its timer
// has elapsed already.
func TestDeadline_OldTimer(t *testing.T) {
	var d deadline
	d.init(t.Context())
	defer d.stop()
	for _, later := range []time.Time{time.Now().Add(time.Hour), {}} {
		d.at(time.Now().Add(time.Hour))
		old := d.set
		d.at(later)
		d.passed(old)
		assert.NoError(t, d.context().Err())
	}
	d.passed(d.set)
	assert.ErrorIs(t, context.Cause(d.context()), os.ErrDeadlineExceeded)
}

// TestDeadline_AfterClose: a deadline that is set while the connection closes starts no timer, which would refer to the
// connection until it elapses.
func TestDeadline_AfterClose(t *testing.T) {
	ctx, end := context.WithCancelCause(t.Context())
	var d deadline
	d.init(ctx)
	end(net.ErrClosed)
	d.stop()
	d.at(time.Now().Add(time.Hour))
	assert.Nil(t, d.timer)
	assert.ErrorIs(t, d.cause(d.context()), net.ErrClosed)
}

// TestConn_ReadZeroBytes: a Read with an empty buffer fails if the connection is closed or the deadline
// has passed.
func TestConn_ReadZeroBytes(t *testing.T) {
	p := newPair(t, "sm")
	a, b := p.connect()
	n, err := a.Read(nil)
	require.NoError(t, err)
	require.Zero(t, n)
	require.NoError(t, a.SetReadDeadline(time.Unix(1, 0)))
	_, err = a.Read(nil)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	closeBoth(a, b)
	_, err = a.Read(nil)
	require.ErrorIs(t, err, net.ErrClosed)
}

func readOne(c net.Conn) error {
	_, err := c.Read(make([]byte, 1))
	return err
}

func writeOne(c net.Conn) error {
	_, err := c.Write([]byte{1})
	return err
}

// TestConn_HTTP: net/http works over net.Listener and net.Conn of this package.
func TestConn_HTTP(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.serve(t)
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			assert.NoError(t, err)
			_, err = w.Write(body)
			assert.NoError(t, err)
		})}
		a, b := p.connect()
		served := make(chan error, 1)
		one := &oneConn{c: make(chan net.Conn, 1), addr: p.l.Addr()}
		one.c <- b
		go func() { served <- server.Serve(one) }()
		client := &http.Client{Transport: &http.Transport{
			DialContext: func(context.Context, string, string) (net.Conn, error) { return a, nil },
		}}
		for _, n := range []int{0, 10, 300000} {
			body := string(pattern(n))
			res, err := client.Post("http://gucx/", "application/octet-stream", strings.NewReader(body))
			require.NoError(t, err)
			got, err := io.ReadAll(res.Body)
			require.NoError(t, err)
			require.NoError(t, res.Body.Close())
			require.True(t, string(got) == body, "%d bytes of %d", len(got), n)
		}
		client.CloseIdleConnections()
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-served, http.ErrServerClosed)
	})
}

// oneConn is a listener that accepts one connection.
type oneConn struct {
	c    chan net.Conn
	addr net.Addr
}

func (l *oneConn) Accept() (net.Conn, error) {
	if c, ok := <-l.c; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (l *oneConn) Close() error   { close(l.c); return nil }
func (l *oneConn) Addr() net.Addr { return l.addr }
