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

// childFD is the descriptor at which the child finds its end of the connection.
const childFD = 3

// ExitTimeout bounds how long a child may take to exit after its connection was
// closed; it is killed then. A child that has nothing more to do takes milliseconds,
// or seconds where many compete for processors.
const ExitTimeout = time.Minute

// Child is a running target.
type Child struct {
	// Conn leads to the child. Its user closes it.
	Conn net.Conn

	cmd    *exec.Cmd
	exited chan struct{}
	err    error // why it exited; valid once exited is closed
}

// Start runs this program again with args; the child calls Accept. It is in a
// process group of its own, so that Ctrl-C reaches the parent alone, and so that
// the kernel ends it, even stopped, when the parent is gone (POSIX: a stopped
// process in a newly orphaned group gets SIGHUP and SIGCONT). onExit is called once
// when the child exits, from a goroutine of its own.
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

// socketPair returns both ends of a connection; the child's is inherited by it only.
func socketPair() (parent, child *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	return os.NewFile(uintptr(fds[0]), "oob"), os.NewFile(uintptr(fds[1]), "oob"), nil
}

// ErrExited says that the target process is gone.
var ErrExited = errors.New("peer process exited")

func exitReason(err error) error {
	if err == nil {
		return ErrExited
	}
	return fmt.Errorf("%w: %w", ErrExited, err)
}

// PID is the child's process id.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Exited returns why the child exited, waiting for it at most until ctx ends; nil
// if it is still there then.
func (c *Child) Exited(ctx context.Context) error {
	select {
	case <-c.exited:
		return c.err
	case <-ctx.Done():
		return nil
	}
}

// Freeze stops every thread of the child and returns when they have stopped.
func (c *Child) Freeze() error {
	if err := c.cmd.Process.Signal(unix.SIGSTOP); err != nil {
		return fmt.Errorf("stop peer process: %w", err)
	}
	var info unix.Siginfo
	for {
		// WNOWAIT leaves an exit to be collected by Wait.
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

// Thaw lets the child run again.
func (c *Child) Thaw() error {
	if err := c.cmd.Process.Signal(unix.SIGCONT); err != nil {
		return fmt.Errorf("continue peer process: %w", err)
	}
	return nil
}

// Close waits for the child to exit, which it does when Conn is closed, and kills
// it if it does not. Idempotent.
func (c *Child) Close() error {
	_ = c.Conn.Close()                     // usually closed already
	_ = c.cmd.Process.Signal(unix.SIGCONT) // it may be stopped, or gone
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

// Accept returns the connection to the parent. Call it once, in a process that
// Start has started.
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
