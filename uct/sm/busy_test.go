package sm

import (
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

// roleBusy is a process that does everything on a thread that the kernel kills at the
// first system call.
const roleBusy = "busy"

// quietly are the calls that anything in this package could make, and the runtime does
// not make on a locked thread.
var quietly = []uint32{
	unix.SYS_WRITE, unix.SYS_WRITEV, unix.SYS_READ, unix.SYS_SENDMSG, unix.SYS_SENDTO, unix.SYS_RECVMSG,
	unix.SYS_PPOLL, unix.SYS_MEMBARRIER, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV,
	unix.SYS_EVENTFD2, unix.SYS_IOCTL, unix.SYS_FCNTL, unix.SYS_CLOSE,
}

const busyCount = 2000

// workBusy does many rounds of every operation.
func workBusy(s *station, m meeting) {
	t := failNow{}
	e, key := s.connect(t, m), s.key(t, m)
	fmt.Println("ready")
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and ends with the thread
		if err := forbid(verdictKill, 0, quietly...); err != nil {
			done <- err
			return
		}
		done <- busyRounds(s, e, m, key)
	}()
	require.NoError(t, <-done)
	require.NoError(t, e.Close())
}

func busyRounds(s *station, e *EP, m meeting, key uct.RKey) error {
	k, u, buf, old := &blank{make([]byte, 2000)}, &basin{make([]byte, 4096)}, make([]byte, 64), new(uint64)
	ops := []func() error{
		func() error { return e.AMShort(idSink, 1, buf) },
		func() error { _, err := e.AMBcopy(idSink, k); return err },
		func() error { return e.PutShort(buf, m.Raddr+4096, key) },
		func() error { _, err := e.GetBcopy(u, 4096, m.Raddr+4096, key, nil); return err },
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

// startBusy starts the role and tells when it has ended.
func startBusy(t testing.TB, s *station) (*child, <-chan error) {
	c := start(t, roleBusy, s, "")
	ended := make(chan error, 1)
	go func() { ended <- c.cmd.Wait() }()
	return c, ended
}

// TestBusyPath_NoSystemCall: a peer that polls is never woken.
func TestBusyPath_NoSystemCall(t *testing.T) {
	s := openStation(t, Config{})
	got := &pong{}
	require.NoError(t, s.iface.SetAMHandler(idSink, got))
	c, ended := startBusy(t, s)
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
	require.NoError(t, c.in.Close())
	s.close(t)
}

// TestBusyPath_SleeperIsWoken shows that the other test would notice: for a receiver
// that sleeps there is a system call.
func TestBusyPath_SleeperIsWoken(t *testing.T) {
	s := openStation(t, Config{})
	require.NoError(t, s.iface.Arm(uct.EventRecv))
	c, ended := startBusy(t, s)
	var exit *exec.ExitError
	require.ErrorAs(t, <-ended, &exit)
	assert.Equal(t, syscall.SIGSYS, exit.Sys().(syscall.WaitStatus).Signal())
	require.NoError(t, c.in.Close())
	s.close(t)
}
