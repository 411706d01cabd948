package ptrace

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/bulk"
)

// childEnv selects the scenario that this test binary runs as a traced child.
const childEnv = "GUCX_PTRACE_TEST_CHILD"

// scenarios are the functions of the traced child.
var scenarios = map[string]func(){
	"empty": func() { marked(5, 0, func() {}) },
	"known": func() { marked(5, 0, Known) },
	"work":  func() { marked(20, 3, func() { sink = triangle(17) }) },
	"calls": func() { go chatter(); marked(20, 0, func() { sink = triangle(17) + triangle(170); Known() }) },
	"two callers": func() {
		started := make(chan bool)
		go func() {
			runtime.LockOSThread()
			for close(started); ; {
				callNap()
			}
		}()
		<-started
		marked(50, 0, func() {
			unix.Getppid() // the other thread runs from here on
			callNap()
		})
	},
	"no return": func() { marked(1, 0, leave) },
	"threads":   func() { go chatter(); marked(20, 0, func() { sink = triangle(17) }) },
	"long":      func() { marked(4, 0, func() { sink = triangle(500) }) },
	"copy":      func() { marked(2, 0, func() { bulk.Copy(copied[:copyLen], copied[copyLen:]) }) },
	"syscall":   func() { marked(3, 0, func() { unix.Getppid() }) },
	"wait":      waitForThread,
	"spawn":     spawnInWindow,
	"signal":    signalInWindow,
	"drop":      func() { Begin(1); Drop(); marked(2, 7, Known) },
	"fault":     func() { marked(1, 0, func() { sink = *nilPointer }) },
	"exit":      func() { os.Exit(3) },
	"loose end": func() { marked(1, 0, func() {}); End() },
	"nested":    func() { marked(1, 0, func() { Begin(1) }) },
	"work hard": func() { marked(1, 0, func() { sink = triangle(1 << 40) }) },
	"endless": func() {
		marked(1, 0, func() {
			for !never {
				sink++
			}
		})
	},
	"hang":    func() { time.Sleep(time.Hour) },
	"stopped": func() { marked(1, 0, func() { os.Exit(4) }) },
}

var (
	sink       int
	shared     int64
	nilPointer *int
	never      bool
)

// copyLen is the number of bytes that the scenario copies, with one instruction on amd64: bulk.Copy uses it on each CPU for this length.
const copyLen = 1 << 20

var copied = make([]byte, 2*copyLen)

func TestMain(m *testing.M) {
	name := os.Getenv(childEnv)
	if name == "" {
		// The race detector sleeps a second at exit, and a test starts many children.
		if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
			panic(err)
		}
		os.Exit(m.Run())
	}
	if !Traced() {
		fmt.Fprintln(os.Stderr, "the child is not traced")
		os.Exit(2)
	}
	runtime.LockOSThread()
	scenarios[name]()
}

// marked runs op n times between marks.
func marked(n int, tag uint64, op func()) {
	for range n {
		Begin(tag)
		op()
		End()
	}
}

//go:noinline
func triangle(n int) (sum int) {
	for i := range n {
		sum += i
	}
	return sum
}

// callNap calls nap from one place, so that all threads return to the same address.
//
//go:noinline
func callNap() {
	nap()
	atomic.AddInt64(&shared, 1)
}

// nap sleeps, so that the other thread returns from it meanwhile.
//
//go:noinline
func nap() {
	for range 10 {
		_ = unix.Nanosleep(&unix.Timespec{Nsec: 10_000}, nil)
	}
}

// leave ends the window before it returns.
//
//go:noinline
func leave() {
	End()
	os.Exit(0)
}

// chatter keeps the scheduler and other threads busy.
func chatter() {
	c := make(chan int)
	go func() {
		runtime.LockOSThread()
		for range c {
		}
	}()
	for i := 0; ; i++ {
		c <- i
	}
}

// waitForThread blocks in a window until a goroutine on another thread replies.
func waitForThread() {
	ask, answer := make(chan int), make(chan int)
	go func() {
		runtime.LockOSThread()
		for v := range ask {
			answer <- v + 1
		}
	}()
	ask <- 1 // the other goroutine has its thread
	<-answer
	marked(2, 0, func() { ask <- 1; sink = <-answer })
}

// spawnInWindow creates a new thread within the window.
func spawnInWindow() {
	marked(2, 0, func() {
		done := make(chan bool)
		go func() {
			runtime.LockOSThread() // not unlocked, so that the thread exits with the goroutine
			close(done)
		}()
		<-done
	})
}

// signalInWindow sends this process a signal whose handler must not be counted.
func signalInWindow() {
	got := make(chan os.Signal, 16)
	signal.Notify(got, unix.SIGUSR1)
	marked(3, 0, func() {
		_ = unix.Tgkill(unix.Getpid(), unix.Gettid(), unix.SIGUSR1)
		sink = triangle(17)
	})
	<-got // each signal must be delivered, or the test of the parent reaches its deadline
}
