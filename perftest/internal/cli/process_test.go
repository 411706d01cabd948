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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"

	"github.com/gucx/gucx/perftest/internal/peers/session"
)

// rerun prepares perftest as a process, which the kernel kills with this one, as the time limit of go test may end this
// one.
func rerun(stderr io.Writer, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), asPerftest+"=1")
	cmd.Stderr = stderr
	// Pdeathsig follows the thread that forks. The runtime ends a thread only with a goroutine that is locked to it,
	// and the goroutines here unlock first.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// running is a perftest process.
type running struct {
	*exec.Cmd
	stderr *bufio.Reader
	target int // pid of its child, if it has one
}

// start starts perftest. It is killed when the test ends.
func start(t *testing.T, args ...string) *running {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { r.Close() })
	p := newRunning(rerun(w, args...), r)
	p.begin(t, w)
	return p
}

// newRunning prepares a perftest process with the given standard error.
func newRunning(cmd *exec.Cmd, stderr io.Reader) *running {
	return &running{Cmd: cmd, stderr: bufio.NewReader(stderr)}
}

// begin starts p with w as its standard error. It is killed when the test ends.
func (p *running) begin(t *testing.T, w *os.File) {
	require.NoError(t, p.Start())
	require.NoError(t, w.Close())
	t.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.Wait() // most tests have waited before
	})
}

// line waits for a line that contains text, and returns it.
func (p *running) line(t *testing.T, text string) string {
	for {
		line, err := p.stderr.ReadString('\n')
		require.NoError(t, err, "perftest ended: %s", line)
		if strings.Contains(line, text) {
			return line
		}
	}
}

// hours are flags of a measurement that takes longer than any test, in rounds of a thousand operations.
var hours = []string{"--layers", "uct", "-n", "1000000000", "--rounds", "1000000", "-w", "1", "-W", "8", "-s", "8"}

// endless starts a measurement of puts and returns when it measures.
func endless(t *testing.T, args ...string) *running {
	return endlessTest(t, "put_lat", args...)
}

// endlessTest starts a measurement and returns when it measures.
func endlessTest(t *testing.T, test string, args ...string) *running {
	p := measuring(t, test, args...)
	p.target = onlyChild(t, p.Process.Pid)
	return p
}

// measuring starts a measurement with the subcommand of args, and returns when it measures.
func measuring(t *testing.T, test string, args ...string) *running {
	p := start(t, append(with(args, hours...), "-t", test)...)
	p.line(t, test)
	return p
}

// serving starts a server and returns it with its address.
func serving(t *testing.T, args ...string) (p *running, addr string) {
	p = start(t, append([]string{"server", "-p", "0"}, args...)...)
	words := strings.Fields(p.line(t, "waiting for clients"))
	return p, words[len(words)-1]
}

// onlyChild finds the child of a process.
func onlyChild(t *testing.T, pid int) int { return allChildren(t, pid, 1)[0] }

// allChildren finds the n children of a process. One call may miss a child whose thread exits meanwhile: it then becomes
// the child of another thread, which may have been listed before. It skips the test if the kernel does not list children.
func allChildren(t *testing.T, pid, n int) (list []int) {
	if _, err := os.ReadFile("/proc/thread-self/children"); err != nil {
		t.Skipf("needs a kernel with CONFIG_PROC_CHILDREN: %v", err)
	}
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
		list = childrenOf(t, pid)
		return len(list) == n
	})
	return list
}

// childrenOf returns the child processes of a process.
func childrenOf(t *testing.T, pid int) (list []int) {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	require.NoError(t, err)
	for _, e := range threads {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, e.Name()))
		if err != nil {
			continue // the thread has exited
		}
		for _, word := range strings.Fields(string(text)) {
			child, err := strconv.Atoi(word)
			require.NoError(t, err)
			list = append(list, child)
		}
	}
	return list
}

// wait waits for the exit and returns the code and the output.
func (p *running) wait(t *testing.T) (code int, stderr string) {
	text, err := io.ReadAll(p.stderr)
	require.NoError(t, err)
	_ = p.Wait() // the exit code has the result
	return p.ProcessState.ExitCode(), string(text)
}

// requireGone waits until a process that is not a zombie child of this process has disappeared.
func requireGone(t *testing.T, pid int) {
	fd, err := pidfdOpen(pid)
	switch err {
	case syscall.ESRCH:
		return
	case syscall.ENOSYS, syscall.EPERM: // before Linux 5.3, or in a sandbox that does not support it
		t.Skipf("needs pidfd_open: %v", err)
	}
	require.NoError(t, err)
	f := os.NewFile(uintptr(fd), "pidfd")
	defer f.Close()
	require.NoError(t, waitReadable(fd))
}

// kinds are tests whose target is in a poll loop of the test, in a poll loop of the transport, or in a read.
var kinds = []struct{ transport, test string }{
	{"sm", "am_lat"}, {"sm", "put_lat"}, {"tcp", "put_bw"}, {"tcp", "put_pp"}, {"rc", "am_bw"}, {"rc", "put_lat"},
}

func TestProcess_KilledTargetFailsEveryKindOfTest(t *testing.T) {
	for _, c := range kinds {
		t.Run(c.transport+"/"+c.test, func(t *testing.T) {
			switch {
			case c.transport == "rc":
				testenv.SkipSweep(t, "as over sm")
			case c != kinds[0]:
				testenv.SkipShort(t, furtherRun)
			}
			t.Parallel()
			p := endlessTest(t, c.test, "-x", c.transport)
			require.NoError(t, syscall.Kill(p.target, syscall.SIGKILL))
			code, stderr := p.wait(t)
			assert.Equal(t, exitFailure, code, stderr)
			assert.Contains(t, stderr, "peer process exited: signal: killed")
		})
	}
}

func TestProcess_KilledServerFailsEveryKindOfTest(t *testing.T) {
	for _, c := range kinds {
		t.Run(c.transport+"/"+c.test, func(t *testing.T) {
			switch {
			case c.transport == "rc":
				testenv.SkipSweep(t, "as over sm")
			case c != kinds[0]:
				testenv.SkipShort(t, furtherRun)
			}
			t.Parallel()
			server, addr := serving(t)
			client := measuring(t, c.test, "client", addr, "-x", c.transport)
			require.NoError(t, server.Process.Kill())
			code, stderr := client.wait(t)
			assert.Equal(t, exitFailure, code, stderr)
			assert.Contains(t, stderr, session.ErrEnded.Error())
		})
	}
}

func TestProcess_InterruptStopsBothProcesses(t *testing.T) {
	t.Parallel()
	p := endless(t)
	require.NoError(t, p.Process.Signal(os.Interrupt))
	code, stderr := p.wait(t)
	assert.Equal(t, 130, code, stderr)
	assert.Contains(t, stderr, "interrupt")
	requireGone(t, p.target)
}

func TestProcess_InterruptWithTheTargetStopped(t *testing.T) {
	testenv.SkipShort(t, furtherRun)
	t.Parallel()
	p := endless(t, "--stop-peer")
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	code, stderr := p.wait(t)
	assert.Equal(t, 143, code, stderr)
	requireGone(t, p.target)
}

func TestProcess_TargetExitsAfterInitiatorIsKilled(t *testing.T) {
	for name, args := range map[string][]string{"running": nil, "stopped": {"--stop-peer"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := endless(t, args...)
			require.NoError(t, p.Process.Kill())
			_, stderr := p.wait(t)
			assert.NotContains(t, stderr, "perftest: ", "error of the target")
			requireGone(t, p.target)
		})
	}
}

func TestProcess_ServerAndClient(t *testing.T) {
	server, addr := serving(t)
	for range 2 { // one client after the other
		code, out, errs := perftest(t, append([]string{"client", addr, "-o", "json"}, quick...)...)
		require.Equal(t, exitOK, code, errs)
		_, recs := records(t, out)
		assert.Len(t, recs, 3*2*3)
	}

	require.NoError(t, server.Process.Signal(syscall.SIGTERM))
	code, stderr := server.wait(t)
	assert.Equal(t, 143, code, stderr)

	code, _, errs := perftest(t, append([]string{"client", addr}, quick...)...)
	assert.Equal(t, exitFailure, code)
	assert.Contains(t, errs, "is perftest server running there?")
}

func TestProcess_ServerOnAPortInUse(t *testing.T) {
	_, addr := serving(t)
	code, _, errs := perftest(t, "server", addr)
	assert.Equal(t, exitFailure, code)
	assert.Contains(t, errs, "address already in use; choose another port with -p")
}

// TestProcess_SecondClientWaits: a client that waits for a server prints a message.
func TestProcess_SecondClientWaits(t *testing.T) {
	testenv.SkipShort(t, furtherRun)
	server, addr := serving(t)
	first := measuring(t, "put_lat", "client", addr, "-x", "sm")
	second := start(t, append([]string{"client", addr, "-t", "put_lat", "-x", "sm"}, quick[1:]...)...)
	assert.Contains(t, second.line(t, "waiting for the server"), addr+", which has one client at a time")
	require.NoError(t, first.Process.Kill())
	code, stderr := second.wait(t)
	assert.Equal(t, exitOK, code, stderr)
	server.line(t, "client ") // the first one has disconnected
}

func TestProcess_ServerSurvivesUntrustedPeers(t *testing.T) {
	server, addr := serving(t)
	sendBytes(t, addr, "GET / HTTP/1.1\r\n\r\n")
	server.line(t, "not a perftest message")

	code, _, errs := perftest(t, append([]string{"client", addr, "-t", "put_lat"}, quick...)...)
	assert.Equal(t, exitOK, code, errs)
}
