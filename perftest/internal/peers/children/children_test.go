package children

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/cleanup"
)

// pipes starts members served by f, and counts the closed ones.
func pipes(f func(*Line), closed *int) Start {
	return func() (net.Conn, io.Closer, error) {
		here, there := net.Pipe()
		done := make(chan struct{})
		go func() {
			defer close(done)
			f(NewLine(there))
		}()
		return here, closer(func() error {
			err := here.Close()
			<-done
			*closed++
			return err
		}), nil
	}
}

type closer func() error

func (c closer) Close() error { return c() }

// twice replies to a number with its double, and to 0 with an error.
func twice(l *Line) {
	var n int
	for l.Receive(&n) == nil {
		var err error
		if n == 0 {
			err = errors.New("nothing to double")
		}
		if l.Reply(2*n, err) != nil {
			return
		}
	}
}

func TestQuery_ReturnsReplies(t *testing.T) {
	var undo cleanup.Stack
	closed := 0
	c, err := Launch(t.Context(), 3, pipes(twice, &closed), &undo)
	require.NoError(t, err)
	got, err := Query[int](c, func(i int) any { return i + 1 })
	require.NoError(t, err)
	assert.Equal(t, []int{2, 4, 6}, got)
	_, err = Query[int](c, func(i int) any { return 1 - i })
	require.EqualError(t, err, "process 1: nothing to double")
	_, err = Query[int](c, func(i int) any { return i })
	require.ErrorIs(t, err, ErrGone)
	require.NoError(t, undo.Run())
	assert.Equal(t, 3, closed)
}

// When a process dies, the query does not wait for processes that wait for it.
func TestQuery_ProcessDies(t *testing.T) {
	var undo cleanup.Stack
	closed, n := 0, 0
	c, err := Launch(t.Context(), 3, func() (net.Conn, io.Closer, error) {
		i := n
		n++
		return pipes(func(l *Line) {
			ctx := l.Follow(context.Background())
			var v int
			if l.Receive(&struct{}{}) != nil || i == 2 {
				_ = l.conn.Close()
				return
			}
			<-ctx.Done()
			assert.Equal(t, ErrGone, context.Cause(ctx))
			assert.Equal(t, ErrGone, l.Receive(&v))
		}, &closed)()
	}, &undo)
	require.NoError(t, err)
	_, err = Query[int](c, Go)
	require.ErrorContains(t, err, "process 2: ")
	require.ErrorIs(t, err, ErrGone)
	require.NoError(t, undo.Run())
	assert.Equal(t, 3, closed)
}

// A wait for a process that does not reply ends with the context.
func TestLaunch_ContextEndsWaits(t *testing.T) {
	var undo cleanup.Stack
	ctx, cancel := context.WithCancel(t.Context())
	closed := 0
	c, err := Launch(ctx, 1, pipes(func(l *Line) {
		var n int
		_ = l.Receive(&n)
		cancel()
		_ = l.Receive(&n) // until the other side closes
	}, &closed), &undo)
	require.NoError(t, err)
	_, err = Query[int](c, func(int) any { return 1 })
	require.Error(t, err)
	require.NoError(t, undo.Run())
	assert.Equal(t, 1, closed)
}

func TestLaunch_NoProcess(t *testing.T) {
	var undo cleanup.Stack
	closed := 0
	gone := errors.New("gone")
	begin := pipes(twice, &closed)
	n := 0
	_, err := Launch(t.Context(), 3, func() (net.Conn, io.Closer, error) {
		if n++; n == 3 {
			return nil, nil, gone
		}
		return begin()
	}, &undo)
	require.ErrorIs(t, err, gone)
	require.NoError(t, undo.Run())
	assert.Equal(t, 2, closed)
}
