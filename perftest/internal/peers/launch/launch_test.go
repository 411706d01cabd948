package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// roleVar makes the test binary run as a child.
const roleVar = "LAUNCH_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVar) {
	case "echo":
		echo()
	case "fail":
		os.Exit(7)
	}
	goleak.VerifyTestMain(m)
}

// echo returns the bytes that it receives until the parent closes the connection.
func echo() {
	conn, err := Accept()
	if err != nil {
		os.Exit(1)
	}
	if _, err := io.Copy(conn, conn); err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// start runs a child in a role; exits receives the reason of its exit.
func start(t *testing.T, role string) (c *Child, exits chan error) {
	t.Setenv(roleVar, role)
	exits = make(chan error, 1)
	c, err := Start([]string{"-test.run=^$"}, func(err error) { exits <- err })
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c, exits
}

func roundTrip(t *testing.T, c *Child, text string) {
	_, err := io.WriteString(c.Conn, text)
	require.NoError(t, err)
	got := make([]byte, len(text))
	_, err = io.ReadFull(c.Conn, got)
	require.NoError(t, err)
	assert.Equal(t, text, string(got))
}

func TestChild_RepliesAndExitsOnHangUp(t *testing.T) {
	c, exits := start(t, "echo")
	roundTrip(t, c, "hello")
	assert.NotEqual(t, os.Getpid(), c.PID())
	require.NoError(t, c.Close())
	assert.ErrorIs(t, <-exits, ErrExited)
	assert.NoError(t, c.Close(), "idempotent")
}

func TestChild_FreezeStopsAndThawContinues(t *testing.T) {
	c, _ := start(t, "echo")
	roundTrip(t, c, "before")
	require.NoError(t, c.Freeze())
	assert.Equal(t, "T", processState(t, c.PID()))

	_, err := io.WriteString(c.Conn, "x")
	require.NoError(t, err)
	require.NoError(t, c.Conn.SetReadDeadline(time.Now().Add(20*time.Millisecond)))
	_, err = c.Conn.Read(make([]byte, 1))
	assert.ErrorIs(t, err, os.ErrDeadlineExceeded, "a stopped process must not reply")

	require.NoError(t, c.Thaw())
	require.NoError(t, c.Conn.SetReadDeadline(time.Time{}))
	_, err = io.ReadFull(c.Conn, make([]byte, 1))
	assert.NoError(t, err)
}

// processState returns the state letter of /proc/PID/stat, behind the name in parentheses.
func processState(t *testing.T, pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(t, err)
	for i := len(stat) - 1; i >= 0; i-- {
		if stat[i] == ')' {
			return string(stat[i+2])
		}
	}
	t.Fatalf("no state in %q", stat)
	return ""
}

func TestChild_CloseKillsFrozenChild(t *testing.T) {
	c, exits := start(t, "echo")
	roundTrip(t, c, "up")
	require.NoError(t, c.Freeze())
	require.NoError(t, c.Close())
	assert.ErrorIs(t, <-exits, ErrExited)
}

func TestChild_KilledIsReported(t *testing.T) {
	c, exits := start(t, "echo")
	require.NoError(t, syscall.Kill(c.PID(), syscall.SIGKILL))
	err := <-exits
	require.ErrorIs(t, err, ErrExited)
	assert.ErrorContains(t, err, "killed")
	assert.Equal(t, err, c.Exited(t.Context()))
	assert.Error(t, c.Freeze(), "freeze of a dead process")
}

func TestChild_FailureIsReported(t *testing.T) {
	_, exits := start(t, "fail")
	assert.ErrorContains(t, <-exits, "exit status 7")
}

func TestExited_NilWhileRunning(t *testing.T) {
	c, _ := start(t, "echo")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.NoError(t, c.Exited(ctx))
}

func TestExitReason(t *testing.T) {
	assert.Equal(t, ErrExited, exitReason(nil))
	why := errors.New("signal: killed")
	assert.ErrorIs(t, exitReason(why), why)
}

func TestSocketPair_IsNotInheritedByOthers(t *testing.T) {
	a, b, err := socketPair()
	require.NoError(t, err)
	defer a.Close()
	defer b.Close()
	for _, f := range []*os.File{a, b} {
		flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0)
		require.NoError(t, err)
		assert.NotZero(t, flags&unix.FD_CLOEXEC)
	}
}
