package counters

import (
	"errors"
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/perftest/internal/measure/result"
	"github.com/gucx/gucx/perftest/internal/probes/bpfcount"
)

// childEnv makes this test binary the counted target.
const childEnv = "GUCX_COUNTERS_TEST_CHILD"

func TestMain(m *testing.M) {
	if !testenv.ServeChild(childEnv, work) {
		testenv.Main(m)
	}
}

// The events of work.
const (
	workCalls  = 1000 // getppid
	workFaults = 64   // first accesses to a page, at least
	workSleeps = 5    // a signal may end some of them at once
)

func work() {
	for range workCalls {
		unix.Getppid()
	}
	for range workSleeps {
		_, _ = unix.Poll(nil, 1)
	}
	mem, err := unix.Mmap(-1, 0, workFaults*os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		panic(err)
	}
	_ = unix.Madvise(mem, unix.MADV_NOHUGEPAGE) // fails on kernels without huge pages
	for i := 0; i < len(mem); i += os.Getpagesize() {
		mem[i] = 1
	}
	if err := unix.Munmap(mem); err != nil {
		panic(err)
	}
}

// open opens a source; without the permission for it the test is skipped. rusage needs none.
func open(t *testing.T, name string, peer int) *Counter {
	c, err := Open(name, peer)
	if name != "rusage" && (errors.Is(err, os.ErrPermission) || errors.Is(err, errors.ErrUnsupported)) {
		t.Skipf("no %s here: %v", name, err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	assert.Equal(t, name, c.Source().Name)
	assert.Empty(t, c.Source().Refused)
	return c
}

// count returns the events while f runs, per piece of work.
func count(t *testing.T, c *Counter, ops int, f func()) *result.Counters {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	require.NoError(t, c.Start())
	for range ops {
		f()
	}
	r, err := c.Stop(ops)
	require.NoError(t, err)
	assert.Equal(t, ops, r.Ops)
	return r
}

// assertFaults checks the page faults of a piece of work; some architectures have no tracepoint for them.
func assertFaults(t *testing.T, source string, u result.Usage) {
	t.Helper()
	faults, counted := u.Events[result.Faults]
	if source == "bpf" && !counted {
		return
	}
	assert.GreaterOrEqual(t, faults, float64(workFaults))
}

func TestCounter_CountsCallingThread(t *testing.T) {
	for _, s := range sources {
		t.Run(s.name, func(t *testing.T) {
			c := open(t, s.name, 0)
			for range 2 { // the counter can be started again
				r := count(t, c, 4, work)
				assertFaults(t, s.name, r.Caller)
				assert.Positive(t, r.Caller.Events[result.Switches])
				assert.Nil(t, r.Target, "there is no target")
				if s.name == "bpf" {
					assert.Equal(t, float64(workCalls), r.Caller.Calls["getppid"])
					assert.GreaterOrEqual(t, r.Caller.Events[result.Syscalls], float64(workCalls+workSleeps+3))
				} else {
					assert.Nil(t, r.Caller.Calls)
					assert.NotContains(t, r.Caller.Events, result.Syscalls, "rusage does not count system calls")
				}
				if s.name == "perf" {
					assert.Positive(t, r.Caller.Events[result.CPUTime])
				}
			}
		})
	}
}

func TestCounter_CountsTarget(t *testing.T) {
	for _, name := range []string{"bpf", "perf"} {
		t.Run(name, func(t *testing.T) {
			peer := testenv.StartChild(t, childEnv)
			r := count(t, open(t, name, peer.Process.Pid), 2, func() { peer.Work(t) })
			require.NotNil(t, r.Target)
			assertFaults(t, name, *r.Target)
			assert.Positive(t, r.Target.Events[result.Switches])
			if name == "bpf" {
				assert.Equal(t, float64(workCalls), r.Target.Calls["getppid"])
				assert.NotContains(t, r.Caller.Calls, "getppid")
				assert.NotContains(t, r.Rest.Calls, "getppid")
			}
		})
	}
}

func TestCounter_RusageDoesNotCountTarget(t *testing.T) {
	peer := testenv.StartChild(t, childEnv)
	r := count(t, open(t, "rusage", peer.Process.Pid), 1, func() { peer.Work(t) })
	assert.Equal(t, &result.Usage{}, r.Target)
}

func TestCounter_CountsRestOfProcess(t *testing.T) {
	ask, answer := make(chan bool), make(chan bool)
	go func() {
		defer close(answer)
		runtime.LockOSThread() // the goroutine has a separate thread until it ends
		for range ask {
			work()
			answer <- true
		}
	}()
	ask <- true // wait for the thread
	<-answer
	for _, s := range sources {
		t.Run(s.name, func(t *testing.T) {
			r := count(t, open(t, s.name, 0), 1, func() { ask <- true; <-answer })
			assertFaults(t, s.name, r.Rest)
			assert.Less(t, r.Caller.Events[result.Faults], float64(workFaults))
		})
	}
	close(ask)
	<-answer
}

func TestOpen_FallsBackWithReason(t *testing.T) {
	saved := sources
	defer func() { sources = saved }()
	sources = append(sources[:0:0], saved...)
	refuse := func(err error) func() (source, error) { return func() (source, error) { return nil, err } }

	sources[0].open = refuse(unix.EPERM)
	sources[1].open = func() (source, error) { return &rusageSource{}, nil }
	c, err := Open(Auto, 0)
	require.NoError(t, err)
	assert.Equal(t, result.CounterSource{Name: "perf", Refused: []string{"bpf: operation not permitted"}}, c.Source())

	sources[1].open = refuse(unix.EACCES)
	c, err = Open(Auto, 0)
	require.NoError(t, err)
	assert.Equal(t, result.CounterSource{Name: "rusage", Refused: []string{"bpf: operation not permitted", "perf: permission denied"}}, c.Source())

	_, err = Open("bpf", 0)
	assert.ErrorIs(t, err, os.ErrPermission, "a named source must not be replaced")
	_, err = Open("dtrace", 0)
	assert.ErrorContains(t, err, "auto, bpf, perf, rusage")
}

func TestPerf_MissingThread(t *testing.T) {
	const none = 1 << 22 // the maximum of pid_max
	_, err := threadsOf(none)
	assert.ErrorIs(t, err, os.ErrNotExist)
	s := &perfSource{}
	assert.Error(t, s.start(bpfcount.Watch{Peer: none}))
	assert.Empty(t, s.counters)
}

func TestCallName(t *testing.T) {
	assert.Equal(t, "read", callName(unix.SYS_READ))
	assert.Equal(t, "syscall 511", callName(511))
}
