package sm

import (
	"bufio"
	"fmt"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct"
)

// roleBusy is a process that executes all operations on a thread that the kernel kills at the
// first system call.
const roleBusy = "busy"

// quietly are system calls that this package could make, and that the runtime does
// not make on a locked thread.
var quietly = []uint32{
	unix.SYS_WRITE, unix.SYS_WRITEV, unix.SYS_READ, unix.SYS_SENDMSG, unix.SYS_SENDTO, unix.SYS_RECVMSG,
	unix.SYS_PPOLL, unix.SYS_MEMBARRIER, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV,
	unix.SYS_EVENTFD2, unix.SYS_IOCTL, unix.SYS_FCNTL, unix.SYS_CLOSE,
}

const busyCount = 2000

// workBusy executes many rounds of all operations, after it has read a line.
func workBusy(s *station, m exchangedInfo, in *bufio.Reader) {
	t := failNow{}
	e, key := s.connect(t, m), s.key(t, m)
	fmt.Println("ready")
	_, err := in.ReadString('\n')
	require.NoError(t, err)
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and ends with the thread
		if err := testenv.ForbidSyscalls(testenv.SyscallKill, 0, quietly...); err != nil {
			done <- err
			return
		}
		done <- busyRounds(s, e, m, key)
	}()
	require.NoError(t, <-done)
	require.NoError(t, e.Close())
}

func busyRounds(s *station, e *endpoint, m exchangedInfo, key uct.RKey) error {
	k, got, buf, old := &blank{make([]byte, 2000)}, make([]byte, 4096), make([]byte, 64), new(uint64)
	ops := []func() error{
		func() error { return e.AMShort(idSink, 1, buf) },
		func() error { _, err := e.AMBcopy(idSink, k); return err },
		func() error { return e.PutShort(buf, m.Raddr+4096, key) },
		func() error { _, err := e.GetBcopy(got, m.Raddr+4096, key, nil); return err },
		func() error { return e.AtomicPost(uct.AtomicAdd, 8, 1, m.Raddr+8192, key) },
		func() error { _, err := e.AtomicFetch(uct.AtomicAdd, 8, 1, old, m.Raddr+8192, key, nil); return err },
		func() error { _, err := e.Flush(nil); return err },
	}
	for range busyCount {
		for _, op := range ops {
			err := op()
			for ; err == uct.ErrNoResource; err = op() {
				s.iface.Progress()
				runtime.Gosched()
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// startBusy starts the role, and waits until the iface polls its link.
func startBusy(t testing.TB, s *station) *child {
	t.Helper()
	c := start(t, roleBusy, s, "")
	testenv.ProgressWithin(t, watchdog, func() bool { s.iface.Progress(); return len(s.iface.in) == 1 })
	return c
}

// work starts the rounds, and reports when the process has ended.
func (c *child) work(t testing.TB) <-chan error {
	t.Helper()
	c.Tell(t, "")
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	return ended
}

// TestBusyPath_NoSystemCall: operations with a peer that polls make no system call.
func TestBusyPath_NoSystemCall(t *testing.T) {
	s := openStation(t, Config{})
	got := &pong{}
	require.NoError(t, s.iface.SetAMHandler(idSink, got))
	c := startBusy(t, s)
	ended := c.work(t)
	over := false
	testenv.ProgressWithin(t, watchdog, func() bool {
		s.iface.Progress()
		select {
		case err := <-ended:
			assert.NoError(t, err)
			over = true
		default:
		}
		return over && len(s.iface.in) == 0
	})
	assert.Equal(t, 2*busyCount, got.n)
	s.close(t)
}

// TestBusyPath_WakesSleeper: a message to a receiver that sleeps makes a system call, which
// TestBusyPath_NoSystemCall would detect. The receiver sleeps after the link was connected, because that is an
// event too.
func TestBusyPath_WakesSleeper(t *testing.T) {
	s := openStation(t, Config{})
	c := startBusy(t, s)
	for s.iface.Arm(uct.EventRecv) == uct.ErrBusy {
		s.iface.Progress()
	}
	var exit *exec.ExitError
	require.ErrorAs(t, <-c.work(t), &exit)
	assert.Equal(t, syscall.SIGSYS, exit.Sys().(syscall.WaitStatus).Signal())
	s.close(t)
}
