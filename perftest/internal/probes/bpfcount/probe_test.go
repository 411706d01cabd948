package bpfcount

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/testenv"
)

// childEnv makes this test binary the counted process.
const childEnv = "GUCX_BPFCOUNT_TEST_CHILD"

func TestMain(m *testing.M) {
	if !testenv.ServeChild(childEnv, callGetppid) {
		testenv.Main(m)
	}
}

// childCalls is the number of getppid calls of the child for each piece of work.
const childCalls = 777

func callGetppid() {
	for range childCalls {
		unix.Getppid()
	}
}

// open opens a probe; without the permission for it the test is skipped.
func open(t *testing.T) *Probe {
	t.Helper()
	p, err := Open()
	if errors.Is(err, os.ErrPermission) || errors.Is(err, errors.ErrUnsupported) {
		t.Skipf("no eBPF here: %v", err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, p.Close()) })
	return p
}

// counted returns the counts of p while f runs on a separate thread.
func counted(t *testing.T, p *Probe, w Watch, f func()) [Groups]Counts {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := p.Read()
	require.NoError(t, err)
	if w.Thread < 0 {
		w.Thread = unix.Gettid()
	}
	p.Start(w)
	f()
	p.Stop()
	after, err := p.Read()
	require.NoError(t, err)
	for g := range after {
		for i := range stride {
			*after[g].at(i) -= *before[g].at(i)
		}
	}
	return after
}

// ownThread represents the thread of the test.
const ownThread = -1

// pipePairs writes a byte to a pipe and reads it back, n times.
func pipePairs(t *testing.T, n int) func() {
	var fds [2]int
	require.NoError(t, unix.Pipe2(fds[:], unix.O_CLOEXEC))
	t.Cleanup(func() { _, _ = unix.Close(fds[0]), unix.Close(fds[1]) })
	b := make([]byte, 1)
	return func() {
		for range n {
			if _, err := unix.Write(fds[1], b); err != nil {
				panic(err)
			}
			if _, err := unix.Read(fds[0], b); err != nil {
				panic(err)
			}
		}
	}
}

// scheduling are the system calls of the runtime when it preempts a goroutine.
var scheduling = []int{unix.SYS_RT_SIGRETURN, unix.SYS_RT_SIGPROCMASK, unix.SYS_FUTEX, unix.SYS_TGKILL,
	unix.SYS_NANOSLEEP, unix.SYS_SCHED_YIELD, unix.SYS_EPOLL_PWAIT, unix.SYS_MADVISE}

// calls returns the counted system calls, by number, without those of scheduling.
func (c *Counts) calls() map[int]uint64 {
	made := map[int]uint64{}
	for n, v := range c.Calls {
		if v != 0 && !slices.Contains(scheduling, n) {
			made[n] = v
		}
	}
	return made
}

func TestProbe_CountsSystemCallsExactly(t *testing.T) {
	p := open(t)
	const n = 1000
	all := counted(t, p, Watch{Thread: ownThread, Process: os.Getpid()}, pipePairs(t, n))
	assert.Equal(t, map[int]uint64{unix.SYS_READ: n, unix.SYS_WRITE: n}, all[Caller].calls())
	assert.Zero(t, all[Peer])
}

func TestProbe_CountsNothingWithoutEvents(t *testing.T) {
	p := open(t)
	sum := 0
	all := counted(t, p, Watch{Thread: ownThread}, func() {
		for i := range 10_000 {
			sum += i
		}
	})
	assert.Empty(t, all[Caller].calls())
	assert.Zero(t, all[Rest], "events of threads that were not watched")
	assert.Zero(t, all[Peer])
}

func TestProbe_SeparatesCallerFromRest(t *testing.T) {
	p := open(t)
	ask, answer := make(chan bool), make(chan bool)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for range ask {
			for range 300 {
				unix.Getppid()
			}
			answer <- true
		}
		close(answer)
	}()
	all := counted(t, p, Watch{Thread: ownThread, Process: os.Getpid()}, func() {
		ask <- true
		<-answer
		unix.Getppid()
	})
	close(ask)
	<-answer
	assert.Equal(t, uint64(1), all[Caller].Calls[unix.SYS_GETPPID])
	assert.Equal(t, uint64(300), all[Rest].Calls[unix.SYS_GETPPID])
}

func TestProbe_DoesNotCountOtherProcesses(t *testing.T) {
	p := open(t)
	c := testenv.StartChild(t, childEnv)
	all := counted(t, p, Watch{Thread: ownThread, Process: os.Getpid()}, func() { c.Work(t) })
	for g := range all {
		assert.Zero(t, all[g].Calls[unix.SYS_GETPPID], "group %d", g)
	}
	all = counted(t, p, Watch{Thread: ownThread, Peer: c.Process.Pid}, func() { c.Work(t) })
	assert.Zero(t, all[Caller].Calls[unix.SYS_GETPPID])
	assert.Equal(t, uint64(childCalls), all[Peer].Calls[unix.SYS_GETPPID])
	assert.Equal(t, uint64(1), all[Peer].Calls[unix.SYS_WRITE], "the reply")
}

func TestProbe_ContextSwitches(t *testing.T) {
	p := open(t)
	all := counted(t, p, Watch{Thread: ownThread}, func() {
		for range 5 {
			_, _ = unix.Poll(nil, 1) // the kernel puts the thread to sleep for 1 ms
		}
	})
	assert.Positive(t, all[Caller].Events[Switches])
	assert.Zero(t, all[Rest], "the idle task belongs to no group")
	assert.Zero(t, all[Peer], "the idle task belongs to no group")
}

func TestProbe_PageFaults(t *testing.T) {
	p := open(t)
	if !p.Has(Faults) {
		t.Skip("the kernel has no tracepoint of page faults")
	}
	const pages = 64
	mem, err := unix.Mmap(-1, 0, pages*os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	defer func() { assert.NoError(t, unix.Munmap(mem)) }()
	require.NoError(t, unix.Madvise(mem, unix.MADV_NOHUGEPAGE))
	touch := func() {
		for i := 0; i < len(mem); i += os.Getpagesize() {
			mem[i]++
		}
	}
	all := counted(t, p, Watch{Thread: ownThread}, touch)
	assert.GreaterOrEqual(t, all[Caller].Events[Faults], uint64(pages))
}

func TestProbe_Packets(t *testing.T) {
	p := open(t)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	require.NoError(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	self, err := unix.Getsockname(fd)
	require.NoError(t, err)
	const n = 100
	var failed error
	all := counted(t, p, Watch{Thread: ownThread}, func() {
		for range n {
			failed = errors.Join(failed, unix.Sendto(fd, []byte("x"), 0, self))
		}
	})
	require.NoError(t, failed)
	assert.Equal(t, uint64(n), all[Caller].Calls[unix.SYS_SENDTO])
	assert.GreaterOrEqual(t, all[Caller].Events[Transmits], uint64(n))
}

// TestProbe_CloseReleasesEverything checks descriptors and mappings: programs and maps are not pinned, so nothing
// else holds them.
func TestProbe_CloseReleasesEverything(t *testing.T) {
	p := open(t)
	require.NotEmpty(t, bpfObjects(t), "bpfObjects must find the objects of an open probe")
	p.Start(Watch{Process: os.Getpid()})
	require.NoError(t, p.Close())
	require.NoError(t, p.Close(), "Close must be idempotent")
	assert.Empty(t, bpfObjects(t))
}

// bpfObjects lists the BPF objects of the process.
func bpfObjects(t *testing.T) (found []string) {
	fds, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, e := range fds {
		if what, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.Contains(what, "bpf-") {
			found = append(found, what)
		}
	}
	maps, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, "bpf-") {
			found = append(found, line)
		}
	}
	return found
}
