package testenv

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/offheap"
)

func TestMain(m *testing.M) { Main(m) }

// outcome is a testing.TB that keeps what was said instead of failing the test.
type outcome struct {
	testing.TB
	failed, skipped bool
	text            string
}

func (v *outcome) Helper() {}
func (v *outcome) Errorf(format string, args ...any) {
	v.failed, v.text = true, fmt.Sprintf(format, args...)
}
func (v *outcome) Fatalf(format string, args ...any) {
	v.Errorf(format, args...)
	runtime.Goexit()
}
func (v *outcome) Skipf(format string, args ...any) {
	v.skipped, v.text = true, fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// outcomeOf runs fn on a goroutine of its own, as Fatalf and Skipf end it.
func outcomeOf(t *testing.T, fn func(tb testing.TB)) *outcome {
	v := &outcome{TB: t}
	var wg sync.WaitGroup
	wg.Go(func() { fn(v) })
	wg.Wait()
	return v
}

func TestProgressWithin_YieldsToPeers(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	done := make(chan struct{})
	go func() { close(done) }()
	ProgressWithin(t, time.Minute, func() bool {
		select {
		case <-done:
			return true
		default:
			return false
		}
	})
}

func TestProgressWithin(t *testing.T) {
	calls := 0
	ProgressWithin(t, time.Minute, func() bool { calls++; return calls == 500 })
	assert.Equal(t, 500, calls)
	v := outcomeOf(t, func(tb testing.TB) {
		ProgressWithin(tb, time.Nanosecond, func() bool { return false })
	})
	assert.True(t, v.failed)
}

func TestProgressOr_FailureShowsTheState(t *testing.T) {
	v := outcomeOf(t, func(tb testing.TB) {
		ProgressOr(tb, time.Nanosecond, func() bool { return false }, func() string { return "what it waits for" })
	})
	assert.True(t, v.failed)
	assert.Contains(t, v.text, "what it waits for")
	ProgressOr(t, time.Minute, func() bool { return true }, func() string { panic("called without a failure") })
}

func TestRounds(t *testing.T) {
	t.Setenv(soakEnv, "")
	ordinary := 50
	if testing.Short() {
		ordinary = 10
	}
	assert.Equal(t, ordinary, Rounds(50, 1000))
	assert.Positive(t, Rounds(1, 10))
	t.Setenv(soakEnv, "1")
	assert.Equal(t, 1000, Rounds(50, 1000))
}

var sink []byte

func TestNoAllocs(t *testing.T) {
	if RaceEnabled {
		t.Skip("nothing is asserted under the race detector")
	}
	clean := outcomeOf(t, func(tb testing.TB) { NoAllocs(tb, "nothing", func() {}) })
	assert.False(t, clean.failed)
	dirty := outcomeOf(t, func(tb testing.TB) { NoAllocs(tb, "make", func() { sink = make([]byte, 100) }) })
	assert.True(t, dirty.failed)
	assert.Equal(t, "make: 1 allocations per operation, want 0", dirty.text)
}

func TestRDMA(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(requireRDMA, "")
	assert.True(t, outcomeOf(t, func(tb testing.TB) { rdmaDevices(tb, dir) }).skipped)
	t.Setenv(requireRDMA, "1")
	assert.True(t, outcomeOf(t, func(tb testing.TB) { rdmaDevices(tb, dir+"/none") }).failed)
	require.NoError(t, os.Mkdir(dir+"/mlx5_0", 0o700))
	assert.Equal(t, []string{"mlx5_0"}, rdmaDevices(t, dir))
}

func TestCommand(t *testing.T) {
	assert.True(t, outcomeOf(t, func(tb testing.TB) { Command(tb, "no-such-program-anywhere") }).skipped)
	assert.NotEmpty(t, Command(t, "sh"))
}

func TestChecksPointers(t *testing.T) {
	flags := func(value string) []debug.BuildSetting {
		return []debug.BuildSetting{{Key: "-compiler", Value: "gc"}, {Key: "-gcflags", Value: value}}
	}
	assert.True(t, checksPointers(flags("all=-d=checkptr")))
	assert.False(t, checksPointers(flags("-m")))
	assert.False(t, checksPointers(nil))
}

func TestInventory_FindsDescriptors(t *testing.T) {
	before := readInventory()
	f, err := os.Open(os.DevNull)
	require.NoError(t, err)
	leaks := readInventory().since(before)
	require.NoError(t, f.Close())
	require.Len(t, leaks, 1)
	assert.Contains(t, leaks[0], "/dev/null")
	assert.Empty(t, readInventory().since(before))
}

func TestInventory_FindsMappings(t *testing.T) {
	before := readInventory()
	fd, err := unix.MemfdCreate("leak", unix.MFD_CLOEXEC)
	require.NoError(t, err)
	require.NoError(t, unix.Ftruncate(fd, 4096))
	mem, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	require.NoError(t, err)
	require.NoError(t, unix.Close(fd))
	leaks := readInventory().since(before)
	require.NoError(t, unix.Munmap(mem))
	require.Len(t, leaks, 1)
	assert.Contains(t, leaks[0], "/memfd:leak")
	assert.Empty(t, readInventory().since(before))
}

func TestInventory_FindsBlocks(t *testing.T) {
	before := readInventory()
	b, err := offheap.Alloc(100)
	require.NoError(t, err)
	assert.Equal(t, []string{"off-heap memory: 100 bytes"}, readInventory().since(before))
	require.NoError(t, b.Free())
	assert.Empty(t, readInventory().since(before))
}

func TestParseMapping(t *testing.T) {
	for _, tt := range []struct {
		name, line, at, what string
		ok                   bool
	}{
		{"heap", "c000000000-c000400000 rw-p 00000000 00:00 0", "", "", false},
		{"text", "00400000-00500000 r-xp 00000000 08:01 99 /bin/x", "", "", false},
		{"shared memfd", "7f00-7f10 rw-s 00000000 00:01 7 /memfd:table (deleted)", "7f00-7f10", "/memfd:table (deleted)", true},
		{"private memfd", "7f00-7f10 rw-p 00000000 00:01 7 /memfd:x (deleted)", "7f00-7f10", "/memfd:x (deleted)", true},
		{"shared without a name", "7f00-7f10 rw-s 00000000 00:01 7", "7f00-7f10", "anonymous shared memory", true},
		{"cut", "7f00-7f10", "", "", false},
		{"empty", "", "", "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			at, what, ok := parseMapping(tt.line)
			assert.Equal(t, tt.at, at)
			assert.Equal(t, tt.ok, ok)
			if ok {
				assert.Equal(t, tt.what, what)
			}
		})
	}
}

// asleep reports whether a thread of this process waits in the kernel: proc(5), stat.
func asleep(thread int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/stat", thread))
	_, state, _ := strings.Cut(string(stat), ") ")
	return err != nil || strings.HasPrefix(state, "S")
}

// TestReadable_Signals: signals do not end the wait.
func TestReadable_Signals(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer func() { require.NoError(t, errors.Join(r.Close(), w.Close())) }()
	assert.False(t, Readable(t, int(r.Fd()), 0))
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	thread, done := unix.Gettid(), make(chan struct{})
	go func() {
		defer close(done)
		for range 10 {
			for !asleep(thread) {
				runtime.Gosched()
			}
			assert.NoError(t, unix.Tgkill(unix.Getpid(), thread, unix.SIGURG))
		}
		_, err := w.Write([]byte{1})
		assert.NoError(t, err)
	}()
	assert.True(t, Readable(t, int(r.Fd()), Watchdog))
	<-done
}

func TestReportLeaks(t *testing.T) {
	before := readInventory()
	var out strings.Builder
	assert.False(t, reportLeaks(&out, before), out.String())
	b, err := offheap.Alloc(64)
	require.NoError(t, err)
	assert.True(t, reportLeaks(&out, before))
	assert.Contains(t, out.String(), "leaked off-heap memory: 64 bytes")
	require.NoError(t, b.Free())
}

// TestSocketDir: where a directory has a long name, or is none, another one is taken.
func TestSocketDir(t *testing.T) {
	assert.LessOrEqual(t, len(SocketDir(t)), socketDirLen)
	short, long := SocketDir(t), t.TempDir()+"/"+strings.Repeat("d", socketDirLen)
	require.NoError(t, os.Mkdir(long, 0o700))
	assert.Equal(t, short, filepath.Dir(socketDir(t, long, short)))
	assert.Equal(t, short, filepath.Dir(socketDir(t, short+"/none", short)))
	assert.True(t, outcomeOf(t, func(tb testing.TB) { socketDir(tb, long) }).skipped)
}

// TestNeedProcAttr: what cannot be given to a process skips the test.
func TestNeedProcAttr(t *testing.T) {
	for skips, uid := range map[bool]int{false: os.Geteuid(), true: -1} { // no user has the number -1
		id := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(os.Getegid()), NoSetGroups: true}}
		assert.Equal(t, skips, outcomeOf(t, func(tb testing.TB) { NeedProcAttr(tb, id, "needs it") }).skipped)
	}
}

func TestWaits(t *testing.T) {
	released := make(chan struct{})
	Waits(t, func() { <-released }, func() { close(released) })

	calls := 0
	v := outcomeOf(t, func(tb testing.TB) { Waits(tb, func() {}, func() { calls++ }) })
	assert.True(t, v.failed, "a wait that does not wait")
	assert.Contains(t, v.text, "returned before")
	assert.Equal(t, 1, calls, "released all the same")
}
