package testenv

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// Subprocess is a second process of a test, which communicates with the test by lines on its standard input and output.
// It must end when its input does, so that it does not outlive the test binary.
type Subprocess struct {
	*exec.Cmd
	In  io.WriteCloser
	Out *bufio.Reader
}

// Self returns a command that runs the test binary with settings in its environment, from which TestMain there gets its
// role. Its standard error is that of the test.
func Self(settings ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")                                           // another user may not reach the file itself
	cmd.Env = append(append(os.Environ(), "GORACE=atexit_sleep_ms=0"), settings...) // a race build waits a second at exit by default
	cmd.Stderr = os.Stderr
	return cmd
}

// StartSubprocess starts cmd. When the test ends the process is killed, if it has not ended.
func StartSubprocess(t testing.TB, cmd *exec.Cmd) *Subprocess {
	t.Helper()
	p := LaunchSubprocess(t, cmd)
	t.Cleanup(func() { p.Kill(t) })
	return p
}

// LaunchSubprocess is StartSubprocess for a test that calls End or Kill itself.
func LaunchSubprocess(t testing.TB, cmd *exec.Cmd) *Subprocess {
	t.Helper()
	p := &Subprocess{Cmd: cmd}
	out, err := cmd.StdoutPipe()
	p.needs(t, err)
	p.Out = bufio.NewReader(out)
	p.In, err = cmd.StdinPipe()
	p.needs(t, err)
	p.needs(t, cmd.Start())
	return p
}

func (p *Subprocess) needs(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("second process: %v", err)
	}
}

// Line returns the next line of the process, without its newline.
func (p *Subprocess) Line(t testing.TB) string {
	t.Helper()
	line, err := p.Out.ReadString('\n')
	p.needs(t, err)
	return line[:len(line)-1]
}

// Scan is fmt.Fscanln of the next line.
func (p *Subprocess) Scan(t testing.TB, values ...any) {
	t.Helper()
	_, err := fmt.Fscanln(p.Out, values...)
	p.needs(t, err)
}

// Tell writes a line to the process.
func (p *Subprocess) Tell(t testing.TB, format string, args ...any) {
	t.Helper()
	_, err := fmt.Fprintf(p.In, format+"\n", args...)
	p.needs(t, err)
}

// Stop stops the process, and returns when all of its threads are stopped.
func (p *Subprocess) Stop(t testing.TB) {
	t.Helper()
	p.needs(t, p.Process.Signal(unix.SIGSTOP))
	p.needs(t, unix.Waitid(unix.P_PID, p.Process.Pid, nil, unix.WSTOPPED, nil))
}

// Continue continues a stopped process.
func (p *Subprocess) Continue(t testing.TB) {
	t.Helper()
	p.needs(t, p.Process.Signal(unix.SIGCONT))
}

// End closes the input of the process, stopped or not, and waits until it has ended without error.
func (p *Subprocess) End(t testing.TB) {
	t.Helper()
	p.Continue(t)
	p.needs(t, errors.Join(p.In.Close(), p.Wait()))
}

// Kill kills the process, and waits for it. It does nothing if the process has been waited for. If the process has
// ended before, it logs that, because the test may fail for that reason.
func (p *Subprocess) Kill(t testing.TB) {
	t.Helper()
	if p.ProcessState != nil {
		return
	}
	ended := p.hasEnded()
	p.needs(t, p.Process.Kill())
	_ = p.In.Close()
	_ = p.Wait() // the error is that the process was killed
	if ended {
		t.Logf("the second process, %d, had ended by itself: %v", p.Process.Pid, p.ProcessState)
	}
}

// hasEnded reports whether the process has ended; it has not been waited for.
func (p *Subprocess) hasEnded() bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, p.Process.Pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err == nil && info.Signo != 0
}
