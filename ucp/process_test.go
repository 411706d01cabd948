package ucp_test

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/memtp"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/all"
)

// childEnv makes this test binary a target that only serves. Its value is the transports, in the syntax of GUCX_TLS.
const childEnv = "GUCX_TEST_UCP_TARGET"

// target is another process with memory for the test.
type target struct {
	cmd  *exec.Cmd
	in   io.Closer
	addr []byte
	key  []byte
}

// targetLen is the length of the memory of a target: more than a transport buffers for a peer that does not receive.
const targetLen = 1 << 20

// serveAsChild prints an address and a key, and serves until the parent ends or closes the pipe. Then it closes
// gracefully.
func serveAsChild(tls string) error {
	var cfg ucp.Config
	components := tlsets.Components(all.Config{})
	if rest, turned := strings.CutPrefix(tls, turnedPrefix); turned {
		slices.Reverse(components)
		tls, components = rest, append([]uct.Component{foreign{}}, components...)
	}
	if err := cfg.TLS.UnmarshalText([]byte(tls)); err != nil {
		return err
	}
	c, err := ucp.NewContext(cfg, components...)
	if err != nil {
		return err
	}
	w, err := c.NewWorker(ucp.WorkerConfig{})
	if err != nil {
		return err
	}
	mem, err := c.MemAlloc(targetLen)
	if err != nil {
		return err
	}
	fmt.Printf("%x %x\n", w.Address(), mem.Pack())
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends with the parent
		cancel()
	}()
	if err := w.Serve(ctx); !errors.Is(err, context.Canceled) {
		return fmt.Errorf("serve: %v", err)
	}
	return errors.Join(w.Close(), mem.Close(), c.Close())
}

func startTarget(t *testing.T, tls string) *target {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	x := &target{cmd: exec.Command(exe)}
	x.cmd.Env = append(os.Environ(), childEnv+"="+tls)
	x.cmd.Stderr = os.Stderr
	x.in, err = x.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := x.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, x.cmd.Start())
	t.Cleanup(func() {
		_ = x.cmd.Process.Kill() // it may have ended already
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

// signal stops or continues the target, and waits until the kernel has done it.
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

// initiator is a worker with an EP to a target process.
type initiator struct {
	w   *ucp.Worker
	ep  *ucp.EP
	key *ucp.RKey
	ctx context.Context // ends when the test gives up
	// failures counts calls of OnError.
	failures int
}

// reach connects to a target over the given transports.
func (x *target) reach(t *testing.T, tls string) *initiator {
	t.Helper()
	return x.reachWith(t, ucppair.FromEnv(t, "TLS="+tls))
}

func (x *target) reachWith(t *testing.T, cfg ucp.Config) *initiator {
	t.Helper()
	c, err := ucp.NewContext(cfg, tlsets.Components(all.Config{})...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	in := &initiator{}
	in.w, err = c.NewWorker(ucp.WorkerConfig{})
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, in.w.Close())
		assert.Zero(t, ucp.RequestsInUse(in.w), "requests that were not released")
	})
	in.ep, err = in.w.NewEP(x.addr, ucp.EPConfig{OnError: func(*ucp.EP, error) { in.failures++ }})
	require.NoError(t, err)
	in.key, err = in.ep.Unpack(x.key)
	require.NoError(t, err)
	t.Cleanup(in.key.Close)
	var cancel context.CancelFunc
	in.ctx, cancel = context.WithTimeout(context.Background(), testenv.Watchdog)
	t.Cleanup(cancel)
	return in
}

// oneSided are the transports that need no progress of a connected target.
var oneSided = []string{"sm", `\rc`, "rc_mlx5", "all"}

func TestProcesses(t *testing.T) {
	for _, tls := range tlsets.ProcessSets() {
		t.Run(tls, func(t *testing.T) {
			x := startTarget(t, tls)
			in := x.reach(t, tls)
			for seed := range 3 {
				exercise(in.ctx, t, in.ep, in.key, seed)
			}
			require.NoError(t, in.ep.CloseWait(in.ctx, ucp.CloseFlush))
		})
	}
}

// TestProcesses_TargetStopped: put, get, atomics and flush complete while the target
// process is stopped.
func TestProcesses_TargetStopped(t *testing.T) {
	for _, tls := range oneSided {
		t.Run(tls, func(t *testing.T) {
			x := startTarget(t, tls)
			in := x.reach(t, tls)
			exercise(in.ctx, t, in.ep, in.key, 1) // connects
			x.signal(t, syscall.SIGSTOP)
			exercise(in.ctx, t, in.ep, in.key, 2)
			x.signal(t, syscall.SIGCONT)
			exercise(in.ctx, t, in.ep, in.key, 3)
		})
	}
}

// turnedPrefix before the transports of a target reverses the order of its components, after a foreign one.
const turnedPrefix = "turned:"

// foreign is a component of another implementation that allocates memory too.
type foreign struct{}

func (foreign) Name() string                   { return "foreign" }
func (foreign) MDs() ([]uct.MDResource, error) { return []uct.MDResource{{Name: "mem0"}}, nil }
func (foreign) OpenMD(string) (uct.MD, error)  { return memtp.NewWorld().OpenMD() }

// TestProcesses_OrderOfComponents: the memory that a target allocates is accessible without its progress, for any order
// of its components.
func TestProcesses_OrderOfComponents(t *testing.T) {
	x := startTarget(t, turnedPrefix+"all")
	in := x.reach(t, "sm")
	exercise(in.ctx, t, in.ep, in.key, 1) // connects
	x.signal(t, syscall.SIGSTOP)
	exercise(in.ctx, t, in.ep, in.key, 2)
	x.signal(t, syscall.SIGCONT)
}

// TestProcesses_StoppedBeforeTheHandshake: a target exists, and its device accepts the message, but it never replies.
// The waiter sleeps meanwhile.
func TestProcesses_StoppedBeforeTheHandshake(t *testing.T) {
	for _, tls := range []string{`\rc`, "rc_mlx5"} {
		t.Run(tls, func(t *testing.T) {
			x := startTarget(t, tls)
			x.signal(t, syscall.SIGSTOP)
			cfg := ucppair.FromEnv(t, "TLS="+tls)
			cfg.WireupTimeout = 50 * time.Millisecond
			in := x.reachWith(t, cfg)
			in.w.Engine().ParkLimit = time.Hour // the alarm must wake it
			err := in.ep.PutWait(in.ctx, testenv.Pattern(8, 1), in.key.Addr(), in.key, nil)
			assert.ErrorIs(t, err, ucs.ErrTimedOut)
			assert.ErrorContains(t, in.ep.Err(), "no reply to the handshake")
			in.refused(t)
			require.NoError(t, in.ep.CloseWait(in.ctx, ucp.CloseFlush))
		})
	}
}

// TestProcesses_TargetStoppedAndServing: if the transport needs the target, operations wait for it and then complete.
func TestProcesses_TargetStoppedAndServing(t *testing.T) {
	x := startTarget(t, "tcp")
	in := x.reach(t, "tcp")
	exercise(in.ctx, t, in.ep, in.key, 1)
	x.signal(t, syscall.SIGSTOP)
	got := make([]byte, 1000)
	r, err := in.ep.Get(got, in.key.Addr()+64, in.key, nil)
	require.NoError(t, err)
	for range 1000 {
		in.w.Progress()
	}
	require.False(t, r.Done())
	x.signal(t, syscall.SIGCONT)
	require.NoError(t, r.Wait(in.ctx))
	exercise(in.ctx, t, in.ep, in.key, 2)
}

// TestProcesses_TargetKilled: operations that are in flight or waiting when the target is killed complete exactly once:
// they succeed, or fail with the reason of the EP or of its lane.
func TestProcesses_TargetKilled(t *testing.T) {
	for _, tls := range tlsets.ProcessSets() {
		t.Run(tls, func(t *testing.T) {
			x := startTarget(t, tls)
			in := x.reach(t, tls)
			exercise(in.ctx, t, in.ep, in.key, 1)
			x.signal(t, syscall.SIGSTOP)
			reqs := in.flood(t, 40)
			require.NoError(t, x.cmd.Process.Kill())
			require.NoError(t, in.w.Engine().Until(in.ctx, func() bool { return in.ep.Err() != nil }))
			reasons := in.ended(t)
			require.NoError(t, in.until(func() bool { // the transports release them, and OnError is called
				return in.failures > 0 && !slices.ContainsFunc(reqs, func(r *ucp.Request) bool { return !r.Done() })
			}))
			for _, r := range reqs {
				if r.Status() != ucs.StatusOK {
					assert.Contains(t, reasons, r.Status())
				}
				r.Release()
			}
			in.refused(t)
			assert.Equal(t, 1, in.failures)
		})
	}
}

// flood starts many operations of each class and returns those that have not completed.
func (in *initiator) flood(t *testing.T, n int) (reqs []*ucp.Request) {
	t.Helper()
	keep := func(r *ucp.Request, err error) {
		require.NoError(t, err)
		if r != nil {
			reqs = append(reqs, r)
		}
	}
	for i := range n {
		keep(in.ep.Put(testenv.Pattern(20000, i), in.key.Addr()+64, in.key, nil))
		keep(in.ep.Get(make([]byte, 9000), in.key.Addr()+64, in.key, nil))
		keep(in.ep.PutList([]ucp.Transfer{{testenv.Pattern(700, i), in.key.Addr() + 64, in.key}, {testenv.Pattern(20000, i), in.key.Addr() + 64, in.key}}, nil))
		keep(in.ep.GetList([]ucp.Transfer{{make([]byte, 700), in.key.Addr() + 64, in.key}, {make([]byte, 20000), in.key.Addr() + 64, in.key}}, nil))
		keep(in.ep.AtomicFetch(uct.AtomicOr, 4, 1, new(uint64), in.key.Addr(), in.key))
		keep(nil, in.ep.GetImplicit(make([]byte, 700), in.key.Addr()+64, in.key, nil))
		keep(nil, in.ep.AtomicFetchImplicit(uct.AtomicAdd, 8, 1, new(uint64), in.key.Addr(), in.key))
		keep(nil, in.ep.AtomicPost(uct.AtomicAdd, 8, 1, in.key.Addr(), in.key))
		keep(nil, in.ep.Fence())
	}
	keep(in.ep.Flush())
	keep(in.w.Flush())
	return reqs
}

// ended checks that the EP of a dead peer has failed for that reason, and returns the permitted errors of its requests.
func (in *initiator) ended(t *testing.T) []ucs.Status {
	t.Helper()
	err := in.ep.Err()
	require.ErrorIs(t, err, ucs.ErrEPFailed)
	require.ErrorIs(t, err, ucs.ErrConnReset)
	return []ucs.Status{ucs.StatusConnReset}
}

// refused checks that a failed EP accepts no more operations.
func (in *initiator) refused(t *testing.T) {
	t.Helper()
	requireOneLine(t, in.ep.Err(), "endpoint to worker 0x")
	_, err := in.ep.Put([]byte{1}, in.key.Addr(), in.key, nil)
	assert.ErrorIs(t, err, ucs.ErrEPFailed)
	requireOneLine(t, err, "put 1 byte to worker 0x")
	_, err = in.ep.Get([]byte{1}, in.key.Addr(), in.key, nil)
	assert.ErrorIs(t, err, ucs.ErrEPFailed)
	assert.ErrorIs(t, in.ep.AtomicPost(uct.AtomicAdd, 8, 1, in.key.Addr(), in.key), ucs.ErrEPFailed)
	_, err = in.ep.Flush()
	assert.ErrorIs(t, err, ucs.ErrEPFailed)
}

// exercise does one operation of each class and checks its effects.
func exercise(ctx context.Context, t *testing.T, ep *ucp.EP, key *ucp.RKey, seed int) {
	t.Helper()
	for _, n := range []int{8, 1000, 40000} {
		require.NoError(t, ep.PutWait(ctx, testenv.Pattern(n, seed), key.Addr()+64, key, nil))
		require.NoError(t, ep.FlushWait(ctx))
		got := make([]byte, n)
		require.NoError(t, ep.GetWait(ctx, got, key.Addr()+64, key, nil))
		testenv.RequireBytes(t, testenv.Pattern(n, seed), got)
	}
	before, err := ep.AtomicFetchWait(ctx, uct.AtomicAdd, 8, 3, key.Addr(), key)
	require.NoError(t, err)
	require.NoError(t, ep.AtomicPost(uct.AtomicXor, 4, 5, key.Addr(), key)) // emulated
	require.NoError(t, ep.FlushWait(ctx))
	after, err := ep.AtomicCSwapWait(ctx, 8, (before+3)^5, 0, key.Addr(), key)
	require.NoError(t, err)
	require.Equal(t, (before+3)^5, after)
}

// TestProcesses_DeathIsDetected: the EP of a peer that dies fails without traffic, also while the worker sleeps.
func TestProcesses_DeathIsDetected(t *testing.T) {
	for _, tls := range tlsets.ProcessSets() {
		t.Run(tls, func(t *testing.T) {
			x := startTarget(t, tls)
			in := x.reach(t, tls)
			exercise(in.ctx, t, in.ep, in.key, 1)
			start := time.Now()
			require.NoError(t, x.cmd.Process.Kill())
			require.NoError(t, in.w.Engine().Until(in.ctx, func() bool { return in.ep.Err() != nil }))
			t.Logf("%v after the kill: %v", time.Since(start), in.ep.Err())
			assert.ErrorIs(t, in.ep.Err(), ucs.ErrConnReset)
		})
	}
}
