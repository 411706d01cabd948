// Package launch runs the target of a measurement as a child process.
package launch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// childFD is the descriptor of the child's side of the connection.
const childFD = 3

// ExitTimeout is the maximum time in which a child must exit after its connection is closed; then
// it is killed. An idle child takes milliseconds, or seconds on an overloaded machine.
const ExitTimeout = time.Minute

// Child is a running target.
type Child struct {
	// Conn is the connection to the child. The caller must close it.
	Conn net.Conn

	cmd    *exec.Cmd
	exited chan struct{}
	err    error // exit status; valid when exited is closed
}

// Start runs this program again with args; the child must call Accept. The child is in a process
// group of its own, so that Ctrl-C reaches only the parent, and so that the kernel ends it, also
// while it is stopped, when the parent has exited (POSIX: a stopped process in a newly orphaned
// group gets SIGHUP and SIGCONT). onExit is called once when the child exits, from a goroutine of
// its own.
func Start(args []string, onExit func(error)) (*Child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	parentEnd, childEnd, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer childEnd.Close()
	conn, err := net.FileConn(parentEnd)
	if err = errors.Join(err, parentEnd.Close()); err != nil {
		return nil, err
	}
	cmd := exec.Command(self, args...)
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{childEnd} // becomes childFD
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start peer process: %w", err), conn.Close())
	}
	c := &Child{Conn: conn, cmd: cmd, exited: make(chan struct{})}
	go func() {
		c.err = exitReason(cmd.Wait())
		close(c.exited)
		onExit(c.err)
	}()
	return c, nil
}

// socketPair returns both sides of a connection; only the child inherits its side.
func socketPair() (parent, child *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	return os.NewFile(uintptr(fds[0]), "oob"), os.NewFile(uintptr(fds[1]), "oob"), nil
}

// ErrExited is the error after the target process has exited.
var ErrExited = errors.New("peer process exited")

func exitReason(err error) error {
	if err == nil {
		return ErrExited
	}
	return fmt.Errorf("%w: %w", ErrExited, err)
}

// PID returns the process id of the child.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Exited returns the exit status of the child. It waits until ctx ends, and then returns nil if the
// child has not exited.
func (c *Child) Exited(ctx context.Context) error {
	select {
	case <-c.exited:
		return c.err
	case <-ctx.Done():
		return nil
	}
}

// Freeze stops all threads of the child, and returns when they have stopped.
func (c *Child) Freeze() error {
	if err := c.cmd.Process.Signal(unix.SIGSTOP); err != nil {
		return fmt.Errorf("stop peer process: %w", err)
	}
	var info unix.Siginfo
	for {
		// With WNOWAIT, Wait still gets the exit status.
		err := unix.Waitid(unix.P_PID, c.PID(), &info, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("stop peer process: %w", os.NewSyscallError("waitid", err))
		}
		if info.Code != cldStopped {
			return fmt.Errorf("stop peer process: %w", ErrExited)
		}
		return nil
	}
}

// cldStopped is CLD_STOPPED of signal.h: a child has stopped.
const cldStopped = 5

// Thaw continues the child.
func (c *Child) Thaw() error {
	if err := c.cmd.Process.Signal(unix.SIGCONT); err != nil {
		return fmt.Errorf("continue peer process: %w", err)
	}
	return nil
}

// Close waits for the child to exit, which it does when Conn is closed, and kills it after
// ExitTimeout. Idempotent.
func (c *Child) Close() error {
	_ = c.Conn.Close()                     // usually already closed
	_ = c.cmd.Process.Signal(unix.SIGCONT) // it may be stopped, or have exited
	timer := time.NewTimer(ExitTimeout)
	defer timer.Stop()
	select {
	case <-c.exited:
	case <-timer.C:
		_ = c.cmd.Process.Kill()
		<-c.exited
		return fmt.Errorf("peer process did not exit within %v and was killed", ExitTimeout)
	}
	return nil
}

// Accept returns the connection to the parent. Call it once, in a process that Start has started.
func Accept() (net.Conn, error) {
	f := os.NewFile(childFD, "oob")
	if f == nil {
		return nil, errors.New("not started by perftest: descriptor 3 is missing")
	}
	conn, err := net.FileConn(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("not started by perftest: %w", err)
	}
	return conn, nil
}
