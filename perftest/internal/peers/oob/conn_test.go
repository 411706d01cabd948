package oob

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gucx/gucx/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair returns both sides of a session over a connection in memory.
func pair(t *testing.T) (initiator, target *Conn) {
	a, b := net.Pipe()
	initiator, target = NewConn(a), NewConn(b)
	t.Cleanup(func() {
		initiator.Close()
		target.Close()
	})
	return initiator, target
}

// reply serves one request with f on a separate goroutine.
func reply(t *testing.T, c *Conn, f func(Request) (Reply, error)) {
	done := make(chan struct{})
	t.Cleanup(func() { <-done })
	go func() {
		defer close(done)
		r, err := c.Receive(0)
		if assert.NoError(t, err) {
			reply, failure := f(r)
			assert.NoError(t, c.Reply(reply, failure))
		}
	}()
}

func TestCall_CarriesEveryField(t *testing.T) {
	initiator, target := pair(t)
	want := Request{Verb: Open, Layer: "uct", Params: &Params{Transport: "rc", Device: "softhca0", Fabric: "shm", MemLen: 4096},
		Address: []byte{1, 2}, Seed: 1 << 63, Len: 7, Value: ^uint64(0)}
	reply(t, target, func(r Request) (Reply, error) {
		assert.Equal(t, want, r)
		return Reply{Address: []byte{9}, Value: 5}, nil
	})
	got, err := initiator.Call(t.Context(), want)
	require.NoError(t, err)
	assert.Equal(t, Reply{Address: []byte{9}, Value: 5}, got)
}

func TestCall_ReportsFailureOfTheTarget(t *testing.T) {
	initiator, target := pair(t)
	reply(t, target, func(Request) (Reply, error) { return Reply{Value: 3}, errors.New("no such device") })
	got, err := initiator.Call(t.Context(), Request{Verb: Close, Layer: "ucp"})
	var remote *RemoteError
	require.ErrorAs(t, err, &remote)
	assert.EqualError(t, err, "target: ucp close: no such device")
	assert.Zero(t, got)
}

func TestCall_ReturnsCauseOfContext(t *testing.T) {
	initiator, target := pair(t)
	why := errors.New("peer process exited")
	ctx, cancel := context.WithCancelCause(t.Context())
	received := make(chan struct{})
	go func() {
		defer close(received)
		_, err := target.Receive(0)
		assert.NoError(t, err)
		cancel(why)
	}()
	_, err := initiator.Call(ctx, Request{Verb: Hello})
	assert.ErrorIs(t, err, why)
	<-received
}

// slowConn needs a second to cancel the calls on a connection.
type slowConn struct{ net.Conn }

func (c slowConn) SetDeadline(t time.Time) error {
	if !t.IsZero() {
		time.Sleep(time.Second)
	}
	return c.Conn.SetDeadline(t)
}

// TestCall_UsableAfterContextEnded: a context that ends when the reply has arrived does not affect the next
// call.
func TestCall_UsableAfterContextEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		initiator, target := NewConn(slowConn{a}), NewConn(b)
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan struct{})
		go func() {
			defer close(served)
			for range 2 {
				_, err := target.Receive(0)
				assert.NoError(t, err)
				cancel()
				synctest.Wait() // the context has begun to cancel the call
				assert.NoError(t, target.Reply(Reply{}, nil))
				time.Sleep(2 * time.Second) // a late cancellation is during the next call
			}
		}()
		_, err := initiator.Call(ctx, Request{Verb: Hello})
		require.NoError(t, err)
		_, err = initiator.Call(t.Context(), Request{Verb: Bye})
		require.NoError(t, err)
		<-served
		require.NoError(t, errors.Join(initiator.Close(), target.Close()))
	})
}

func TestCall_FailsIfPeerIsGone(t *testing.T) {
	initiator, target := pair(t)
	target.Close()
	_, err := initiator.Call(t.Context(), Request{Verb: Hello})
	assert.ErrorIs(t, err, io.ErrClosedPipe)
}

func TestReceive_TimesOutWithoutRequest(t *testing.T) {
	_, target := pair(t)
	_, err := target.Receive(time.Millisecond)
	var timeout net.Error
	require.ErrorAs(t, err, &timeout)
	assert.True(t, timeout.Timeout())
}

func TestReceive_RejectsMalformedBytes(t *testing.T) {
	frame := func(change func([]byte)) []byte {
		b, err := appendFrame(nil, kindRequest, []byte(`{"verb":"hello"}`))
		require.NoError(t, err)
		change(b)
		return b
	}
	for _, c := range []struct {
		name string
		in   []byte
		want error
	}{
		{"nothing", nil, io.EOF},
		{"half a header", frame(func([]byte) {})[:5], io.ErrUnexpectedEOF},
		{"half a payload", frame(func([]byte) {})[:headerLen+3], io.ErrUnexpectedEOF},
		{"magic", frame(func(b []byte) { b[headMagic]++ }), ErrMagic},
		{"http", []byte("GET / HTTP/1.1\r\n\r\n"), ErrMagic},
		{"version", frame(func(b []byte) { b[headVersion]++ }), ErrVersion},
		{"a reply", frame(func(b []byte) { b[headKind] = byte(kindReply) }), ErrFrame},
		{"reserved", frame(func(b []byte) { b[headZero+1] = 1 }), ErrFrame},
		{"length", frame(func(b []byte) { b[headLen] = 1 }), ErrTooLong},
		{"not json", frame(func(b []byte) { b[headerLen] = 'x' }), ErrFrame},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := net.Pipe()
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, _ = a.Write(c.in) // fails when the reader has rejected the input
				a.Close()
			}()
			_, err := NewConn(b).Receive(testenv.Watchdog)
			assert.ErrorIs(t, err, c.want)
			b.Close()
			<-done
		})
	}
}

func TestSend_RejectsInvalidRequests(t *testing.T) {
	initiator, _ := pair(t)
	_, err := initiator.Call(t.Context(), Request{Verb: Connect, Layer: "ucp", Address: make([]byte, MaxPayload)})
	assert.ErrorIs(t, err, ErrTooLong)
}

func TestRequest_Check(t *testing.T) {
	params := func(n int) *Params { return &Params{MemLen: n} }
	for _, c := range []struct {
		name string
		in   Request
		ok   bool
	}{
		{"hello", Request{Verb: Hello}, true},
		{"open", Request{Verb: Open, Layer: "uct", Params: params(1)}, true},
		{"largest memory", Request{Verb: Open, Layer: "uct", Params: params(MaxMemLen)}, true},
		{"check", Request{Verb: Check, Layer: "uct", Len: MaxMemLen}, true},
		{"empty", Request{}, false},
		{"unknown verb", Request{Verb: "exec", Layer: "uct"}, false},
		{"hello with layer", Request{Verb: Hello, Layer: "uct"}, false},
		{"fill without layer", Request{Verb: Fill}, false},
		{"open without params", Request{Verb: Open, Layer: "uct"}, false},
		{"params in another request", Request{Verb: Fill, Layer: "uct", Params: params(1)}, false},
		{"no memory", Request{Verb: Open, Layer: "uct", Params: params(0)}, false},
		{"too much memory", Request{Verb: Open, Layer: "uct", Params: params(MaxMemLen + 1)}, false},
		{"negative length", Request{Verb: Fill, Layer: "uct", Len: -1}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.in.check()
			assert.Equal(t, c.ok, err == nil, "%v", err)
			if !c.ok {
				assert.ErrorIs(t, err, ErrFrame)
			}
		})
	}
}

// TestCallWithin_DropsLateReply: the target replies after the limit, and the connection remains usable.
func TestCallWithin_DropsLateReply(t *testing.T) {
	a, b, err := Pipe()
	require.NoError(t, err)
	initiator, target := NewConn(a), NewConn(b)
	defer initiator.Close()
	defer target.Close()
	for range 2 {
		_, err = initiator.CallWithin(t.Context(), Request{Verb: State, Layer: "ucp"}, time.Nanosecond)
		require.Equal(t, ErrNoReply, err)
	}
	done := make(chan struct{})
	defer func() { <-done }()
	go func() {
		defer close(done)
		for i := range 4 {
			_, err := target.Receive(0)
			if !assert.NoError(t, err) || !assert.NoError(t, target.Reply(Reply{Value: uint64(i)}, nil)) {
				return
			}
		}
	}()
	reply, err := initiator.Call(t.Context(), Request{Verb: Rest})
	require.NoError(t, err)
	assert.Equal(t, uint64(2), reply.Value)
	reply, err = initiator.CallWithin(t.Context(), Request{Verb: State, Layer: "ucp"}, testenv.Watchdog)
	require.NoError(t, err)
	assert.Equal(t, uint64(3), reply.Value)
}
