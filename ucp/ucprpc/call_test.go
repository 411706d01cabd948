package ucprpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
)

var ucpContext = context.Background()

// Methods of the server of the tests.
var (
	methodEcho   = Method{Name: "echo"}
	methodInline = Method{Number: 1}
	methodFail   = Method{Name: "fail"}
	methodWait   = Method{Name: "wait"} // waits until the context of the call ends
	methodLarge  = Method{Name: "large"}
)

func echo(c *Call) error {
	c.Reply = append(c.Reply, c.Data...)
	return nil
}

// testServer is the configuration of the server of the tests.
func testServer() ServerConfig {
	var cfg ServerConfig
	cfg.Handlers.Handle(methodEcho, HandlerConfig{}, echo)
	cfg.Handlers.Handle(methodInline, HandlerConfig{Inline: true}, echo)
	cfg.Handlers.Handle(methodFail, HandlerConfig{}, func(c *Call) error {
		if len(c.Data) > 0 {
			return errors.New(string(c.Data))
		}
		return &Error{Code: CodeUser + 7, Text: "seven"}
	})
	cfg.Handlers.Handle(methodWait, HandlerConfig{}, func(c *Call) error {
		<-c.Context().Done()
		return context.Cause(c.Context())
	})
	cfg.Handlers.Handle(methodLarge, HandlerConfig{OnDemand: true}, func(c *Call) error {
		buf := make([]byte, c.Length)
		if err := c.Recv(c.Context(), buf); err != nil {
			return err
		}
		c.ReplyWith(buf)
		return nil
	})
	return cfg
}

// TestCall: requests and replies of many lengths, by handlers of each type.
func TestCall(t *testing.T) {
	overAll(t, func(t *testing.T, tls string) {
		_, cl := newPair(t, tls, testServer())
		buf := make([]byte, 0, 100)
		for _, m := range []Method{methodEcho, methodInline, methodLarge} {
			for _, n := range []int{0, 1, 64, 100, 101, 300, 5000, 70_000, 3 << 20} {
				want := testenv.Pattern(n, n)
				got, err := cl.Call(t.Context(), m, want, buf)
				require.NoError(t, err, "%v %d", m, n)
				require.True(t, bytes.Equal(want, got), "%v %d", m, n)
				if n > 0 && n <= cap(buf) {
					require.Same(t, &buf[:1][0], &got[0])
				}
			}
		}
	})
}

// TestCall_Errors: the code and the text of a handler's error arrive.
func TestCall_Errors(t *testing.T) {
	_, cl := newPair(t, "sm", testServer())
	var e *Error
	_, err := cl.Call(t.Context(), methodFail, nil, nil)
	require.ErrorAs(t, err, &e)
	assert.Equal(t, Error{Code: CodeUser + 7, Text: "seven"}, *e)
	assert.EqualError(t, err, "ucprpc: code 263: seven")
	_, err = cl.Call(t.Context(), methodFail, []byte("why"), nil)
	assert.EqualError(t, err, "ucprpc: failed: why")
	_, err = cl.Call(t.Context(), Method{Name: "none"}, nil, nil)
	assert.Equal(t, CodeNoMethod, CodeOf(err))
	_, err = cl.Call(t.Context(), methodEcho, make([]byte, 17<<20), nil)
	assert.ErrorIs(t, err, ucs.ErrTooLong)
}

// TestCall_Many: several goroutines use one client.
func TestCall_Many(t *testing.T) {
	overAll(t, func(t *testing.T, tls string) {
		_, cl := newPair(t, tls, testServer())
		var callers sync.WaitGroup
		for i := range 16 {
			callers.Go(func() {
				for k := range 100 {
					m := []Method{methodEcho, methodInline}[k%2]
					want := []byte(fmt.Sprint(i, k))
					got, err := cl.Call(t.Context(), m, want, nil)
					if !assert.NoError(t, err) || !assert.Equal(t, string(want), string(got)) {
						return
					}
				}
			})
		}
		callers.Wait()
	})
}

// TestCall_Canceled: a canceled call returns at once, and the context of its handler ends.
func TestCall_Canceled(t *testing.T) {
	overAll(t, func(t *testing.T, tls string) {
		s, cl := newPair(t, tls, testServer())
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, err := cl.Call(ctx, methodWait, nil, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(10*time.Millisecond, cancel)
		_, err = cl.Call(ctx, methodWait, nil, nil)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, CodeCanceled, CodeOf(err))
		eventually(t, func() bool { // no handler waits any more
			n := -1
			s.loops[0].runOnLoop(func() { n = s.loops[0].inFlight })
			return n == 0
		})
		got, err := cl.Call(t.Context(), methodEcho, []byte("x"), nil)
		require.NoError(t, err)
		require.Equal(t, "x", string(got))
	})
}

// TestCall_NoAllocs: a call allocates nothing in either process.
func TestCall_NoAllocs(t *testing.T) {
	_, cl := newPair(t, "sm", testServer())
	request, buf := make([]byte, 64), make([]byte, 64)
	ctx := context.Background()
	for _, m := range []Method{methodInline, methodEcho} {
		testenv.NoAllocs(t, fmt.Sprint(m), func() {
			if _, err := cl.Call(ctx, m, request, buf); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestCall_ErrorWithoutCode: an Error of a handler without a code is no success.
func TestCall_ErrorWithoutCode(t *testing.T) {
	var cfg ServerConfig
	cfg.Handlers.Handle(methodFail, HandlerConfig{}, func(*Call) error { return &Error{Text: "no code"} })
	_, cl := newPair(t, "sm", cfg)
	_, err := cl.Call(t.Context(), methodFail, nil, nil)
	assert.EqualError(t, err, "ucprpc: failed: no code")
}
