package ucp

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/all"
)

// childEnv makes this test binary a target that only serves.
const childEnv = "GUCX_TEST_UCP_TARGET"

// target is another process whose memory is reached.
type target struct {
	cmd  *exec.Cmd
	in   io.Closer
	addr []byte
	key  []byte
}

// serveAsChild hands out an address and a key, and serves until the parent goes.
func serveAsChild() error {
	c, err := NewContext(Config{}, all.Components()...)
	if err != nil {
		return err
	}
	w, err := c.NewWorker(WorkerConfig{})
	if err != nil {
		return err
	}
	mem, err := c.MemAlloc(memLen)
	if err != nil {
		return err
	}
	fmt.Printf("%x %x\n", w.Address(), mem.Pack())
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends with the parent
		cancel()
	}()
	_ = w.Serve(ctx)
	return nil
}

func startTarget(t *testing.T) *target {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	x := &target{cmd: exec.Command(exe)}
	x.cmd.Env = append(os.Environ(), childEnv+"=1")
	x.cmd.Stderr = os.Stderr
	x.in, err = x.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := x.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, x.cmd.Start())
	t.Cleanup(func() {
		_ = x.cmd.Process.Kill() // it may be dead already
		_ = x.in.Close()
		_ = x.cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	f := strings.Fields(line)
	require.Len(t, f, 2)
	x.addr, err = hex.DecodeString(f[0])
	require.NoError(t, err)
	x.key, err = hex.DecodeString(f[1])
	require.NoError(t, err)
	return x
}

// signal stops or continues the target, and waits until it has.
func (x *target) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	require.NoError(t, x.cmd.Process.Signal(sig))
	if sig != syscall.SIGSTOP {
		return
	}
	var ws syscall.WaitStatus
	_, err := syscall.Wait4(x.cmd.Process.Pid, &ws, syscall.WUNTRACED, nil)
	require.NoError(t, err)
	require.True(t, ws.Stopped())
}

// TestProcesses_TargetStopped: put, get, atomics and flush complete while the target
// process is stopped, and its death fails the EP.
func TestProcesses_TargetStopped(t *testing.T) {
	x := startTarget(t)
	c, err := NewContext(Config{}, all.Components()...)
	require.NoError(t, err)
	w, err := c.NewWorker(WorkerConfig{})
	require.NoError(t, err)
	defer func() {
		assert.NoError(t, w.Close())
		assert.NoError(t, c.Close())
	}()
	ep, err := w.NewEP(x.addr, EPConfig{})
	require.NoError(t, err)
	key, err := ep.Unpack(x.key)
	require.NoError(t, err)
	defer key.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	exercise(ctx, t, ep, key, 1) // connects

	x.signal(t, syscall.SIGSTOP)
	exercise(ctx, t, ep, key, 2)
	x.signal(t, syscall.SIGCONT)
	exercise(ctx, t, ep, key, 3)

	require.NoError(t, x.cmd.Process.Kill())
	for ep.Err() == nil && ctx.Err() == nil {
		_ = ep.PutWait(ctx, []byte{1}, key.Addr(), key, nil) // until the death is seen
		_ = ep.FlushWait(ctx)
	}
	require.ErrorIs(t, ep.Err(), ucs.ErrEPFailed)
	_, err = ep.Put([]byte{1}, key.Addr(), key, nil)
	assert.ErrorIs(t, err, ucs.ErrEPFailed)
	_, err = ep.Flush()
	assert.ErrorIs(t, err, ucs.ErrEPFailed)
}

// exercise does every kind of operation once and checks what they did.
func exercise(ctx context.Context, t *testing.T, ep *EP, key *RKey, seed int) {
	t.Helper()
	for _, n := range []int{8, 1000, 40000} {
		require.NoError(t, ep.PutWait(ctx, pattern(n, seed), key.Addr()+64, key, nil))
		require.NoError(t, ep.FlushWait(ctx))
		got := make([]byte, n)
		require.NoError(t, ep.GetWait(ctx, got, key.Addr()+64, key, nil))
		requireBytes(t, pattern(n, seed), got)
	}
	before, err := ep.AtomicFetchWait(ctx, uct.AtomicAdd, 8, 3, key.Addr(), key)
	require.NoError(t, err)
	require.NoError(t, ep.AtomicPost(uct.AtomicXor, 4, 5, key.Addr(), key)) // emulated
	require.NoError(t, ep.FlushWait(ctx))
	after, err := ep.AtomicCSwapWait(ctx, 8, (before+3)^5, 0, key.Addr(), key)
	require.NoError(t, err)
	require.Equal(t, (before+3)^5, after)
}

// TestProcesses_DeathIsSeenInTime: a peer that dies fails its EP without traffic.
func TestProcesses_DeathIsSeenInTime(t *testing.T) {
	x := startTarget(t)
	c, err := NewContext(Config{}, all.Components()...)
	require.NoError(t, err)
	w, err := c.NewWorker(WorkerConfig{})
	require.NoError(t, err)
	defer func() {
		assert.NoError(t, w.Close())
		assert.NoError(t, c.Close())
	}()
	ep, err := w.NewEP(x.addr, EPConfig{})
	require.NoError(t, err)
	key, err := ep.Unpack(x.key)
	require.NoError(t, err)
	defer key.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	exercise(ctx, t, ep, key, 1)
	start := time.Now()
	require.NoError(t, x.cmd.Process.Kill())
	require.ErrorIs(t, w.until(ctx, func() bool { return ep.Err() != nil }), nil)
	t.Logf("%v after the kill: %v", time.Since(start), ep.Err())
	assert.ErrorIs(t, ep.Err(), ucs.ErrEPFailed)
}
