package kvstore

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucp/ucprpc"
)

func TestClient(t *testing.T) {
	p := startProcess(t, Config{Network: "unix", Address: freshName(), Keys: 100, Lease: time.Hour})
	cl := dial(t, p.cfg.Address)
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	get := func(key string) string {
		value, err := cl.Get(ctx, key, nil)
		if err != nil {
			return err.Error()
		}
		return string(value)
	}
	assert.Equal(t, ErrNoKey.Error(), get("colour"))
	assert.Equal(t, ErrNoKey, cl.Remove(ctx, "colour"))
	require.NoError(t, cl.Put(ctx, "colour", []byte("blue")))
	require.NoError(t, cl.Put(ctx, "empty", nil))
	assert.Equal(t, "blue", get("colour"))
	assert.Equal(t, "", get("empty"))
	require.NoError(t, cl.Remove(ctx, "colour"))
	assert.Equal(t, ErrNoKey.Error(), get("colour"))
	for _, key := range []string{"", long[:65], long[:MaxKey+1], long} {
		assert.Equal(t, ErrTooLong, cl.Put(ctx, key, nil))
		assert.Equal(t, ErrTooLong.Error(), get(key))
	}
	for _, value := range []string{long[:257], long} {
		assert.Equal(t, ErrTooLong, cl.Put(ctx, "k", []byte(value)))
	}
	garbage := "\x00\xff\n=\x00"
	require.NoError(t, cl.Put(ctx, garbage, []byte(garbage)))
	assert.Equal(t, garbage, get(garbage))
	assert.Zero(t, cl.Stats().Called.Load())

	// Requests that no client sends.
	rpc := cl.session.Load().rpc
	for _, request := range []string{"", "\x01", "\x02\x00k", "\x00\x00value", "\xff\xffk", "\x01\x00k" + long} {
		_, err := rpc.Call(ctx, methodPut, []byte(request), nil)
		assert.Equal(t, ErrTooLong, decodeError(err), "%.10q", request)
	}
	_, err := rpc.Call(ctx, methodPut, make([]byte, maxRequest+1), nil)
	assert.Equal(t, ucprpc.CodeTooLong, ucprpc.CodeOf(err))
	for _, key := range []string{"", long, "k"} {
		_, err := rpc.Call(ctx, methodGet, []byte(key), nil)
		assert.Equal(t, ErrNoKey, decodeError(err), "%.10q", key)
	}
	_, err = rpc.Call(ctx, ucprpc.Method{Number: 99}, nil, nil)
	assert.Equal(t, ucprpc.CodeNoMethod, ucprpc.CodeOf(err))
	assert.Equal(t, garbage, get(garbage))
}

// TestClient_TableIsFull: further keys are rejected, those that are there can be written, and one that is removed has
// left room.
func TestClient_TableIsFull(t *testing.T) {
	p := startProcess(t, Config{Network: "unix", Address: freshName(), Keys: 100})
	cl := dial(t, p.cfg.Address)
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	n := 0
	var err error
	for ; err == nil; n++ {
		err = cl.Put(ctx, fmt.Sprint(n), []byte("value"))
	}
	require.Equal(t, ErrFull, err)
	assert.Greater(t, n, 100)
	assert.NoError(t, cl.Put(ctx, "7", []byte("other")))
	require.NoError(t, cl.Remove(ctx, "8"))
	assert.NoError(t, cl.Put(ctx, "new", []byte("other")))
	for i := range n - 1 {
		if _, err := cl.Get(ctx, fmt.Sprint(i), nil); i == 8 {
			assert.Equal(t, ErrNoKey, err)
		} else {
			require.NoError(t, err, i)
		}
	}
}

// TestClient_ReadsWhileWritten: a value that one client reads while another one writes it is always one that was
// written, and a key that is always there is found while keys before it are removed and added.
func TestClient_ReadsWhileWritten(t *testing.T) {
	const keys = 8
	p := startProcess(t, Config{Network: "unix", Address: freshName(), Keys: keys, Value: 4096})
	reader, writer := dial(t, p.cfg.Address), dial(t, p.cfg.Address)
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	value := func(i int) []byte { return []byte(strings.Repeat(string(rune('a'+i%26)), 1+i%7*600)) }
	require.NoError(t, writer.Put(ctx, "stays", value(0)))

	written := make(chan error, 1)
	const writes = 200
	write := func(i int) error {
		if err := writer.Put(ctx, "stays", value(i)); err != nil {
			return err
		}
		key := fmt.Sprint(i % (keys - 1))
		if err := writer.Put(ctx, key, value(i)); err != nil || i%2 == 0 {
			return err
		}
		return writer.Remove(ctx, key)
	}
	go func() {
		var err error
		for i := 0; i < writes && err == nil; i++ {
			err = write(i)
		}
		written <- err
	}()
	var buf []byte
	for done := false; !done; {
		select {
		case err := <-written:
			require.NoError(t, err)
			done = true
		default:
		}
		got, err := reader.Get(ctx, "stays", buf)
		require.NoError(t, err)
		require.Equal(t, strings.Repeat(string(got[:1]), len(got)), string(got))
		buf = got
	}
	got, err := reader.Get(ctx, "stays", nil)
	require.NoError(t, err)
	assert.Equal(t, value(writes-1), got)
}

// TestClient_ContextEndsDuringConnectOfAnother: a caller does not wait for another one that connects.
func TestClient_ContextEndsDuringConnectOfAnother(t *testing.T) {
	p := startProcess(t, Config{Network: "unix", Address: freshName()})
	cl := dial(t, p.cfg.Address)
	p.kill()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := cl.Get(ctx, "k", nil)
		for err == ErrNoKey { // the memory of a process that was killed is readable until the client learns of its end
			_, err = cl.Get(ctx, "k", nil)
		}
		ended <- err
	}()
	require.Eventually(t, func() bool { return len(cl.connecting) == 1 }, hang, time.Millisecond)
	short, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer stop()
	_, err := cl.Get(short, "k", nil)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	assert.Empty(t, ended)
	cancel()
	assert.ErrorIs(t, <-ended, context.Canceled)
}
