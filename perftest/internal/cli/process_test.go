package cli

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// patience bounds what must happen soon: a hang is a failure.
const patience = time.Minute

// rerun prepares perftest as a process of its own, which is killed when the test
// ends or hangs.
func rerun(t *testing.T, stderr io.Writer, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), asPerftest+"=1")
	cmd.Stderr = stderr
	killer := time.AfterFunc(patience, func() {
		if cmd.Process != nil {
			_ = cmd.Process.Kill()
		}
	})
	t.Cleanup(func() { killer.Stop() })
	return cmd
}

// running is a perftest that measures for longer than any test takes.
type running struct {
	*exec.Cmd
	stderr *bufio.Reader
	target int // pid of its child
}

// endless starts a measurement of a put and returns once the clock runs.
func endless(t *testing.T, args ...string) *running {
	return endlessTest(t, "put_lat", args...)
}

// endlessTest starts a measurement and returns once the clock runs.
func endlessTest(t *testing.T, test string, args ...string) *running {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { r.Close() })
	cmd := rerun(t, w, append([]string{"-n", "200000000", "--rounds", "20000000", "-w", "1", "-W", "8", "-s", "8", "-t", test}, args...)...)
	require.NoError(t, cmd.Start())
	require.NoError(t, w.Close())
	p := &running{Cmd: cmd, stderr: bufio.NewReader(r)}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // already collected by most tests
	})
	for {
		line, err := p.stderr.ReadString('\n')
		require.NoError(t, err, "perftest ended: %s", line)
		if strings.Contains(line, test) {
			break
		}
	}
	p.target = onlyChild(t, cmd.Process.Pid)
	return p
}

// onlyChild finds the child of a process.
func onlyChild(t *testing.T, pid int) int {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	require.NoError(t, err)
	for _, e := range threads {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, e.Name()))
		if err == nil && len(text) > 0 {
			child, err := strconv.Atoi(strings.Fields(string(text))[0])
			require.NoError(t, err)
			return child
		}
	}
	t.Fatal("perftest has no child process")
	return 0
}

// end waits for the exit and returns the code and what was written.
func (p *running) end(t *testing.T) (code int, stderr string) {
	text, err := io.ReadAll(p.stderr)
	require.NoError(t, err)
	_ = p.Wait() // the code tells
	return p.ProcessState.ExitCode(), string(text)
}

// gone waits until a process that is nobody's zombie of ours has disappeared.
func gone(t *testing.T, pid int) {
	fd, err := pidfdOpen(pid)
	if err == syscall.ESRCH {
		return
	}
	require.NoError(t, err)
	f := os.NewFile(uintptr(fd), "pidfd")
	defer f.Close()
	require.NoError(t, waitReadable(fd, patience))
}

func TestProcess_KilledTargetEndsTheRunWithTheReason(t *testing.T) {
	p := endless(t)
	require.NoError(t, syscall.Kill(p.target, syscall.SIGKILL))
	start := time.Now()
	code, stderr := p.end(t)
	assert.Equal(t, exitFailure, code, stderr)
	assert.Contains(t, stderr, "peer process exited: signal: killed")
	assert.Less(t, time.Since(start), patience/2)
}

func TestProcess_KilledTargetEndsEveryKindOfTest(t *testing.T) {
	for _, c := range []struct{ transport, test string }{
		{"sm", "am_lat"}, {"sm", "put_lat"}, {"tcp", "put_bw"}, {"tcp", "put_pp"}, {"rc", "am_bw"},
	} {
		t.Run(c.transport+"/"+c.test, func(t *testing.T) {
			p := endlessTest(t, c.test, "-x", c.transport)
			require.NoError(t, syscall.Kill(p.target, syscall.SIGKILL))
			start := time.Now()
			code, stderr := p.end(t)
			assert.Equal(t, exitFailure, code, stderr)
			assert.Contains(t, stderr, "peer process exited: signal: killed")
			assert.Less(t, time.Since(start), patience/2)
		})
	}
}

func TestProcess_InterruptEndsBoth(t *testing.T) {
	p := endless(t)
	require.NoError(t, p.Process.Signal(os.Interrupt))
	code, stderr := p.end(t)
	assert.Equal(t, 130, code, stderr)
	assert.Contains(t, stderr, "interrupt")
	gone(t, p.target)
}

func TestProcess_InterruptWithTheTargetStopped(t *testing.T) {
	p := endless(t, "--stop-peer")
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	code, stderr := p.end(t)
	assert.Equal(t, 143, code, stderr)
	gone(t, p.target)
}

func TestProcess_KilledInitiatorLeavesNoTarget(t *testing.T) {
	for _, args := range [][]string{nil, {"--stop-peer"}} {
		p := endless(t, args...)
		require.NoError(t, p.Process.Kill())
		p.end(t)
		gone(t, p.target)
	}
}

func TestProcess_ServerAndClient(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	server := rerun(t, w, "server", "-p", "0")
	require.NoError(t, server.Start())
	require.NoError(t, w.Close())
	lines := bufio.NewReader(r)
	line, err := lines.ReadString('\n')
	require.NoError(t, err)
	addr := strings.TrimSpace(line[strings.LastIndexByte(strings.TrimSpace(line), ' ')+1:])

	for range 2 { // one client after the other
		code, out, errs := perftest(t, append([]string{"client", addr, "-o", "json"}, quick...)...)
		require.Equal(t, exitOK, code, errs)
		_, recs := records(t, out)
		assert.Len(t, recs, 3*2*3)
	}

	require.NoError(t, server.Process.Signal(syscall.SIGTERM))
	rest, err := io.ReadAll(lines)
	require.NoError(t, err)
	_ = server.Wait() // the code tells
	assert.Equal(t, 143, server.ProcessState.ExitCode(), string(rest))

	code, _, errs := perftest(t, append([]string{"client", addr}, quick...)...)
	assert.Equal(t, exitFailure, code)
	assert.Contains(t, errs, "is perftest server running there?")
}

func TestProcess_ServerSurvivesStrangers(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	server := rerun(t, w, "server", "-p", "0")
	require.NoError(t, server.Start())
	require.NoError(t, w.Close())
	lines := bufio.NewReader(r)
	line, err := lines.ReadString('\n')
	require.NoError(t, err)
	addr := strings.TrimSpace(line[strings.LastIndexByte(strings.TrimSpace(line), ' ')+1:])

	sendBytes(t, addr, "GET / HTTP/1.1\r\n\r\n")
	line, err = lines.ReadString('\n')
	require.NoError(t, err)
	assert.Contains(t, line, "not a perftest message")

	code, _, errs := perftest(t, append([]string{"client", addr, "-t", "put_lat"}, quick...)...)
	assert.Equal(t, exitOK, code, errs)
	require.NoError(t, server.Process.Kill())
	_ = server.Wait() // killed
}
