package kvstore

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// startWatch watches in a goroutine until the test ends, and returns the changes after the first one.
func startWatch(t *testing.T, cl *Client, prefix string, room int) <-chan Change {
	t.Helper()
	changes := make(chan Change, room)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- cl.Watch(ctx, prefix, func(c Change) {
			select {
			case changes <- c:
			case <-ctx.Done():
			}
		})
	}()
	t.Cleanup(func() {
		stop()
		assert.ErrorIs(t, <-ended, context.Canceled)
	})
	assert.Equal(t, Change{Missed: true}, <-changes)
	return changes
}

func TestWatch(t *testing.T) {
	p := startProcess(t, Config{Network: "unix", Address: freshName()})
	cl := dial(t, p.cfg.Address)
	all, colours := startWatch(t, cl, "", 10), startWatch(t, cl, "colour", 10)
	ctx := t.Context()
	require.NoError(t, cl.Put(ctx, "colour1", []byte("blue")))
	require.NoError(t, cl.Put(ctx, "shape", []byte("round")))
	require.NoError(t, cl.Remove(ctx, "colour1"))
	for _, want := range []Change{{Key: "colour1"}, {Key: "shape"}, {Key: "colour1", Removed: true}} {
		assert.Equal(t, want, <-all)
		if want.Key != "shape" {
			assert.Equal(t, want, <-colours)
		}
	}
	assert.Equal(t, ErrTooLong, cl.Watch(ctx, long, nil))

	p.kill()
	p.start()
	assert.Equal(t, Change{Missed: true}, <-all)
	assert.Equal(t, Change{Missed: true}, <-colours)
	require.NoError(t, cl.Put(ctx, "colour2", []byte("green")))
	assert.Equal(t, Change{Key: "colour2"}, <-all)
	assert.Equal(t, Change{Key: "colour2"}, <-colours)
}

// TestWatch_ClientThatDoesNotReceive: it delays nobody, and learns that it has missed changes.
func TestWatch_ClientThatDoesNotReceive(t *testing.T) {
	p := startProcess(t, Config{Network: "unix", Address: freshName()})
	slow, other := dial(t, p.cfg.Address), dial(t, p.cfg.Address)
	changes := startWatch(t, slow, "", 1)
	const puts = 5000 // several times what a window has room for
	key := func(i int) string { return fmt.Sprintf("%060d", i%100) }
	for i := range puts {
		require.NoError(t, other.Put(t.Context(), key(i), []byte("value")))
	}
	n, missed := 0, 0
	for missed == 0 {
		c := <-changes
		if c.Missed {
			missed++
			continue
		}
		require.Equal(t, key(n), c.Key)
		n++
	}
	assert.Less(t, n, puts)
	require.NoError(t, other.Put(t.Context(), "last", nil))
	for c := range changes {
		if c.Key == "last" {
			break
		}
	}
}
