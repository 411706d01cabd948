package kvstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucp/ucprpc"
)

// TestReplicas_Restarts: each server is killed in turn, and restarted. What was written before is there.
func TestReplicas_Restarts(t *testing.T) {
	p := startReplicas(t, Config{Lease: 100 * time.Millisecond})
	cl := dial(t, p[0].cfg.Address, p[1].cfg.Address)
	changes := startWatch(t, cl, "", 100)
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	put := func(i int) { require.NoError(t, cl.Put(ctx, fmt.Sprint(i), fmt.Append(nil, "value", i))) }
	for i := range 2 {
		put(2 * i)
		require.NoError(t, cl.Put(ctx, "removed", nil))
		require.NoError(t, cl.Remove(ctx, "removed"))
		p[i%2].kill()
		for j := 0; j <= 2*i; j++ {
			got, err := cl.Get(ctx, fmt.Sprint(j), nil)
			require.NoError(t, err)
			assert.Equal(t, fmt.Sprint("value", j), string(got))
		}
		_, err := cl.Get(ctx, "removed", nil)
		require.Equal(t, ErrNoKey, err)
		for !(<-changes).Missed { // the client watches at the other server
		}
		put(2*i + 1)
		for (<-changes).Key != fmt.Sprint(2*i+1) {
		}
		p[i%2].start()
		p[i%2].line("serving")
	}
}

// TestReplicas_BackupIsKilled: the primary continues alone, and the backup that comes back gets what it has missed.
func TestReplicas_BackupIsKilled(t *testing.T) {
	p := startReplicas(t, Config{Lease: 100 * time.Millisecond})
	cl := dial(t, p[0].cfg.Address, p[1].cfg.Address)
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	require.NoError(t, cl.Put(ctx, "before", nil))
	p[1].kill()
	require.NoError(t, cl.Put(ctx, "alone", nil))
	require.NoError(t, cl.Remove(ctx, "before"))
	p[1].start()
	p[1].line("serving")
	p[0].kill()
	_, err := cl.Get(ctx, "alone", nil)
	assert.NoError(t, err)
	_, err = cl.Get(ctx, "before", nil)
	assert.Equal(t, ErrNoKey, err)
}

// stopBackup stops the second process, and returns when it does not run any more.
func stopBackup(t *testing.T, p [2]*process) {
	t.Helper()
	require.NoError(t, p[1].cmd.Process.Signal(syscall.SIGSTOP))
	require.NoError(t, unix.Waitid(unix.P_PID, p[1].cmd.Process.Pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil))
}

// TestReplicas_BackupIsStopped: over tcp, where the backup itself writes its log, an update is not acknowledged before the
// backup has it, or has certainly ended.
func TestReplicas_BackupIsStopped(t *testing.T) {
	p := startReplicasOver(t, "tcp", Config{Lease: 100 * time.Millisecond})
	cl := dial(t, p[0].cfg.Address, p[1].cfg.Address)
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	require.NoError(t, cl.Put(ctx, "k", []byte("old")))
	stopBackup(t, p)
	written := make(chan error, 1)
	go func() { written <- cl.Put(ctx, "k", []byte("new")) }()
	for range 100 {
		got, err := cl.Get(ctx, "k", nil)
		require.NoError(t, err)
		require.Equal(t, "old", string(got))
		time.Sleep(time.Millisecond)
	}
	require.NoError(t, p[1].cmd.Process.Signal(syscall.SIGCONT))
	require.NoError(t, <-written)
	got, err := cl.Get(ctx, "k", nil)
	require.NoError(t, err)
	assert.Equal(t, "new", string(got))
}

// TestReplicas_LogIsFull: over shared memory the primary writes into the log of a backup that does not run, as long as that has
// room. The backup has all that was acknowledged.
func TestReplicas_LogIsFull(t *testing.T) {
	const (
		keys    = 100
		value   = 4000
		updates = 3 * logLen / value
	)
	p := startReplicasOver(t, "sm", Config{Lease: 100 * time.Millisecond, Keys: keys, Value: value})
	cl := dial(t, p[0].cfg.Address, p[1].cfg.Address)
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	var acknowledged atomic.Int64
	written := make(chan error, 1)
	text := func(i int) []byte { return fmt.Appendf(nil, "%*d", value, i) }
	stopBackup(t, p)
	go func() {
		var err error
		for i := 0; i < updates && err == nil; i++ {
			if err = cl.Put(ctx, fmt.Sprint(i%keys), text(i)); err == nil {
				acknowledged.Add(1)
			}
		}
		written <- err
	}()
	require.Eventually(t, func() bool { return acknowledged.Load() > logLen/value/2 }, hang, time.Millisecond)
	require.LessOrEqual(t, acknowledged.Load(), int64(logLen/value))
	require.NoError(t, p[1].cmd.Process.Signal(syscall.SIGCONT))
	require.NoError(t, <-written)
	p[1].kill() // it may not have applied the latest updates: the log of the next backup has room for all of the following ones
	p[1].start()
	p[1].line("serving")
	stopBackup(t, p)
	for i := range keys / 2 {
		require.NoError(t, cl.Put(ctx, fmt.Sprint(i), text(-i)))
	}
	p[0].kill()
	require.NoError(t, p[1].cmd.Process.Signal(syscall.SIGCONT))
	for i := range keys {
		want := text(-i)
		if i >= keys/2 {
			want = text((updates-1-i)/keys*keys + i)
		}
		got, err := cl.Get(ctx, fmt.Sprint(i), nil)
		require.NoError(t, err)
		require.Equal(t, string(want), string(got))
	}
}

// TestReplicas_SyncUnderLoad: a backup that reads the table while it changes has all of it.
func TestReplicas_SyncUnderLoad(t *testing.T) {
	p := startReplicas(t, Config{Keys: 100, Lease: 100 * time.Millisecond})
	cl := dial(t, p[0].cfg.Address, p[1].cfg.Address)
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	want := map[string]string{}
	write := func(rounds int) {
		for i := range rounds {
			key, value := fmt.Sprint(rand.N(100)), fmt.Sprint("value", i)
			if _, found := want[key]; found && rand.N(2) == 0 {
				require.NoError(t, cl.Remove(ctx, key))
				delete(want, key)
			} else {
				require.NoError(t, cl.Put(ctx, key, []byte(value)))
				want[key] = value
			}
		}
	}
	write(200)
	p[1].kill()
	p[1].start()
	write(400)
	p[1].line("serving")
	write(50)
	p[0].kill()
	for i := range 100 {
		key := fmt.Sprint(i)
		value, found := want[key]
		got, err := cl.Get(ctx, key, nil)
		if !found {
			assert.Equal(t, ErrNoKey, err)
			continue
		}
		require.NoError(t, err)
		assert.Equal(t, value, string(got))
	}
}

// TestServer_Config: what cannot work is refused.
func TestServer_Config(t *testing.T) {
	c := newContext(t)
	for _, cfg := range []Config{{Keys: -1}, {Key: MaxKey + 1}, {Value: MaxValue + 1}, {Lease: time.Nanosecond}, {Network: "pigeon"}, {Other: "localhost:7000"}} {
		_, err := Listen(t.Context(), c, cfg)
		assert.Error(t, err, "%+v", cfg)
	}
	_, err := Dial(t.Context(), c, ClientConfig{})
	assert.Error(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = Dial(ctx, c, ClientConfig{Network: "unix", Addresses: []string{freshName()}})
	assert.ErrorIs(t, err, context.DeadlineExceeded)
}

// fake is another replica that says what it is, and refuses a server that joins.
func fake(t *testing.T, says info) (address string, stop func() error) {
	t.Helper()
	var cfg ucprpc.ServerConfig
	cfg.Handlers.Handle(methodInfo, ucprpc.HandlerConfig{Inline: true}, func(c *ucprpc.Call) (err error) {
		c.Reply, err = json.Marshal(says)
		return err
	})
	address = freshName()
	s, err := ucprpc.Listen(t.Context(), newContext(t), "unix", address, cfg)
	require.NoError(t, err)
	return address, s.Close
}

// TestReplicas_NewHasFollowed: a server with New does not begin with an empty table when it has seen a primary.
func TestReplicas_NewHasFollowed(t *testing.T) {
	other, stop := fake(t, info{ID: "other", Role: primary})
	s := listen(t, Config{Other: other, New: true})
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.followed == "other"
	}, hang, time.Millisecond)
	require.NoError(t, stop())
	require.Eventually(t, func() bool { err := s.Serving(); return err == nil || errors.Is(err, errNotListening) }, hang, time.Millisecond)
	assert.ErrorIs(t, s.Serving(), errNotListening)
}

// TestReplicas_CloseWhileWaiting: a backup that is closed while it waits for a lease does not become the primary.
func TestReplicas_CloseWhileWaiting(t *testing.T) {
	other, stop := fake(t, info{ID: "restarted", Role: syncing})
	defer func() { assert.NoError(t, stop()) }()
	s := listen(t, Config{Other: other, Lease: time.Hour})
	s.mu.Lock()
	s.role, s.followed = backup, "other"
	s.mu.Unlock()
	time.Sleep(50 * time.Millisecond) // usually it waits by now
	require.NoError(t, s.Close())
	assert.Equal(t, backup, s.info().Role)
}

// TestReplicas_Refused: a primary refuses a third server, and keeps its backup.
func TestReplicas_Refused(t *testing.T) {
	p := startReplicas(t, Config{Lease: 100 * time.Millisecond})
	third := listen(t, Config{Other: p[0].cfg.Address, Lease: 100 * time.Millisecond})
	require.Eventually(t, func() bool {
		err := third.Serving()
		return err == nil || strings.Contains(err.Error(), errOther.Error())
	},
		hang, time.Millisecond)
	assert.Error(t, third.Serving())
	cl := dial(t, p[0].cfg.Address, p[1].cfg.Address)
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	require.NoError(t, cl.Put(ctx, "k", []byte("value")))
	p[0].kill()
	got, err := cl.Get(ctx, "k", nil)
	require.NoError(t, err)
	assert.Equal(t, "value", string(got))
}

// TestReplicas_OtherLease: a primary refuses a backup with another lease.
func TestReplicas_OtherLease(t *testing.T) {
	address := freshName()
	second := Config{Network: "unix", Address: address, Lease: time.Second}
	first := listen(t, Config{Other: address, New: true, Lease: 2 * time.Second})
	require.Eventually(t, func() bool { return first.Serving() == nil }, hang, time.Millisecond)
	second.Other = first.cfg.Address
	s, err := Listen(t.Context(), newContext(t), second)
	require.NoError(t, err)
	defer func() { assert.NoError(t, s.Close()) }()
	require.Eventually(t, func() bool { err := s.Serving(); return err == nil || strings.Contains(err.Error(), "a lease of 1s") },
		hang, time.Millisecond)
	assert.Error(t, s.Serving())
}

// TestReplicas_BothNew: of two servers with New that start at once one is the primary, and the other one its backup.
func TestReplicas_BothNew(t *testing.T) {
	for range testenv.Rounds(10, 500) {
		first, second := freshName(), freshName()
		c := newContext(t)
		var servers [2]*Server
		var starting sync.WaitGroup
		for i, at := range [][2]string{{first, second}, {second, first}} {
			starting.Go(func() {
				var err error
				servers[i], err = Listen(t.Context(), c, Config{Network: "unix", Address: at[0], Other: at[1], New: true, Lease: 10 * time.Second})
				assert.NoError(t, err)
			})
		}
		starting.Wait()
		for _, s := range servers {
			require.NotNil(t, s)
		}
		require.Eventually(t, func() bool {
			a, b := servers[0].info().Role, servers[1].info().Role
			return a == primary && b == backup || a == backup && b == primary
		}, hang, time.Millisecond)
		for _, s := range servers {
			require.NoError(t, s.Close())
		}
	}
}

// TestReplicas_NewServerCalled: a server with New that found no other one does not become the primary when the other
// one has asked meanwhile: that may be the primary by now.
func TestReplicas_NewServerCalled(t *testing.T) {
	s := &Server{role: syncing, watches: map[*watch]bool{}}
	s.open, s.shut = context.WithCancel(t.Context())
	defer s.shut()
	ask := func(r role, new bool) {
		request, err := json.Marshal(info{ID: "other", Role: r, New: new})
		require.NoError(t, err)
		require.NoError(t, s.handleInfo(&ucprpc.Call{Data: request}))
	}
	before := s.syncingCalls
	ask(syncing, false)
	assert.Equal(t, before, s.syncingCalls, "a server without New does not become the primary by itself")
	ask(syncing, true)
	assert.False(t, s.leadUnlessCalled(before))
	assert.Equal(t, syncing, s.role)
	s.id = "a"
	assert.True(t, s.precedes(info{ID: "b", Role: syncing, New: true}))
	assert.False(t, s.precedes(info{ID: "A", Role: syncing, New: true}))
	assert.True(t, s.precedes(info{ID: "A", Role: syncing}))
	assert.False(t, s.precedes(info{ID: "b", Role: primary, New: true}))
}
