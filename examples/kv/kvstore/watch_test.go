package kvstore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucp/ucprpc"
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

// next returns the next change that is one, and with missed the next Missed.
func next(t *testing.T, changes <-chan Change, missed bool) Change {
	t.Helper()
	for limit := time.After(hang); ; {
		select {
		case c := <-changes:
			if c.Missed == missed {
				return c
			}
		case <-limit:
			require.Fail(t, "no change arrives")
		}
	}
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
		assert.Equal(t, want, next(t, all, false))
		if want.Key != "shape" {
			assert.Equal(t, want, next(t, colours, false))
		}
	}
	assert.Equal(t, ErrTooLong, cl.Watch(ctx, long, nil))

	p.kill()
	p.start()
	assert.Equal(t, Change{Missed: true}, next(t, all, true))
	assert.Equal(t, Change{Missed: true}, next(t, colours, true))
	require.NoError(t, cl.Put(ctx, "colour2", []byte("green")))
	assert.Equal(t, Change{Key: "colour2"}, next(t, all, false))
	assert.Equal(t, Change{Key: "colour2"}, next(t, colours, false))
}

// TestWatch_ClientThatDoesNotReceive: it delays no other client, and learns that it has missed changes.
func TestWatch_ClientThatDoesNotReceive(t *testing.T) {
	s := listen(t, Config{})
	slow, other := dial(t, s.cfg.Address), dial(t, s.cfg.Address)
	changes := startWatch(t, slow, "", 1)
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	hasMissed := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for w := range s.watches {
			return w.missed
		}
		return false
	}
	key := func(i int) string { return fmt.Sprintf("%060d", i%100) }
	puts := 0
	for ; !hasMissed(); puts++ {
		require.NoError(t, other.Put(ctx, key(puts), []byte("value")))
	}
	n := 0
	for c := range changes {
		if c.Missed {
			break
		}
		require.Equal(t, key(n), c.Key)
		n++
	}
	assert.Less(t, n, puts)
	require.NoError(t, other.Put(ctx, "last", nil))
	for next(t, changes, false).Key != "last" {
	}
}

// TestWatch_Limit: a client has a limited number of watches; a further one begins when one of them has ended.
func TestWatch_Limit(t *testing.T) {
	s := listen(t, Config{})
	cl := dial(t, s.cfg.Address)
	first, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	began := make(chan struct{}, 100)
	go func() { ended <- cl.Watch(first, "", func(Change) { began <- struct{}{} }) }()
	<-began
	for range maxPeerWatches - 1 {
		startWatch(t, cl, "", 1)
	}
	_, err := cl.session.Load().rpc.Call(t.Context(), methodWatch, make([]byte, watchHead), nil)
	assert.Equal(t, ucprpc.CodeBusy, ucprpc.CodeOf(err))
	startWatch(t, dial(t, s.cfg.Address), "", 1)
	time.AfterFunc(10*time.Millisecond, end)
	startWatch(t, cl, "", 1)
	assert.ErrorIs(t, <-ended, context.Canceled)
}
