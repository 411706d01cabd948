package interop

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"

	"github.com/gucx/gucx/internal/ucxwire"
	"github.com/gucx/gucx/perftest/internal/measure/affinity"
)

// Program is a program that can be a side of a measurement.
type Program struct {
	// Name in the table.
	Name string
	// Command is its path and arguments.
	Command []string
	// Env is added to the environment.
	Env []string
}

// UCX returns the program at path, restricted to the features of a worker of ucxpeer.
func UCX(path string) Program {
	return Program{Name: "UCX", Command: []string{path}, Env: []string{
		"UCX_TLS=tcp", "UCX_NET_DEVICES=lo", "UCX_LOG_LEVEL=error", "UCX_LOG_FILE=stderr", "UCX_WARN_UNUSED_ENV_VARS=n"}}
}

// process is a running program.
type process struct {
	name    string
	version string
	cmd     *exec.Cmd
	in      io.WriteCloser
	lines   chan string // closed when it has exited
	exitErr error       // valid once lines is closed
}

// errExited is the error if a program has exited.
var errExited = errors.New("the process has exited")

// start runs a program on a CPU; a negative number means any. The caller's goroutine must be locked to its thread until
// the process exits, because the process ends with that thread.
func (p Program) start(ctx context.Context, cpu int) (_ *process, err error) {
	cmd := exec.Command(p.Command[0], p.Command[1:]...)
	cmd.Env = append(os.Environ(), p.Env...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true} // Ctrl-C reaches only the parent
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if cpu >= 0 {
		undo, err := affinity.Thread(cpu)
		if err != nil {
			return nil, err
		}
		defer undo()
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.Name, err)
	}
	s := &process{name: p.Name, cmd: cmd, in: in, lines: make(chan string)}
	go s.read(out)
	if s.version, err = s.result(ctx); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// read passes the lines of the program on until it exits.
func (s *process) read(out io.Reader) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		s.lines <- lines.Text()
	}
	s.exitErr = s.cmd.Wait()
	close(s.lines)
}

// sendCommand sends a command.
func (s *process) sendCommand(format string, args ...any) error {
	_, err := fmt.Fprintf(s.in, format+"\n", args...)
	if errors.Is(err, syscall.EPIPE) {
		return nil // the result contains the reason
	}
	return err
}

// result waits for the result of a command.
func (s *process) result(ctx context.Context) (string, error) {
	select {
	case line, open := <-s.lines:
		rest, ok := strings.CutPrefix(line, "ok")
		switch {
		case !open:
			return "", fmt.Errorf("%s: %w: %w", s.name, errExited, s.exitErr)
		case !ok:
			return "", s.failure(line)
		}
		return strings.TrimSpace(rest), nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// failure returns the error of a line that is no result. It is ErrData only if the program has compared the data.
func (s *process) failure(line string) error {
	if line == "failed: "+ErrData.Error() {
		return fmt.Errorf("%s: %w", s.name, ErrData)
	}
	return fmt.Errorf("%s: %s", s.name, line)
}

// do sends a command and waits for its result.
func (s *process) do(ctx context.Context, format string, args ...any) (string, error) {
	if err := s.sendCommand(format, args...); err != nil {
		return "", err
	}
	return s.result(ctx)
}

// close ends the process.
func (s *process) close() error {
	err := errors.Join(s.in.Close(), s.cmd.Process.Kill())
	for range s.lines {
	}
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// Version runs the program and returns its name and version.
func (p Program) Version(ctx context.Context) (string, error) {
	unlock := lockThread()
	defer unlock()
	s, err := p.start(ctx, -1)
	if err != nil {
		return "", err
	}
	return s.version, s.close()
}

// Narrow reports that the release uses the narrow form of loopback addresses.
func Narrow(version string) bool {
	major, minor := 0, 0
	if _, err := fmt.Sscanf(version, "UCX %d.%d", &major, &minor); err != nil {
		return false
	}
	for _, r := range ucxwire.Releases {
		if r.First <= minor && minor <= r.Last {
			return !r.WideNamespace
		}
	}
	return false
}

// pair is two connected programs.
type pair struct {
	name              string
	initiator, target *process
}

// newPair starts two programs and connects them.
func newPair(ctx context.Context, initiator, target Program, s *Study) (_ *pair, err error) {
	p := &pair{name: initiator.Name + "-" + target.Name}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", p.name, errors.Join(err, p.close()))
		}
	}()
	cpus := slices.Concat(s.CPUs, []int{-1, -1})
	if p.initiator, err = initiator.start(ctx, cpus[0]); err != nil {
		return nil, err
	}
	if p.target, err = target.start(ctx, cpus[1]); err != nil {
		return nil, err
	}
	for _, step := range []struct{ ask, tell string }{{"address", "connect"}, {fmt.Sprintf("memory %d %d", slices.Max(s.Sizes), s.Window), "key"}} {
		for _, side := range [][2]*process{{p.initiator, p.target}, {p.target, p.initiator}} {
			what, err := side[0].do(ctx, "%s", step.ask)
			if err != nil {
				return nil, err
			}
			if _, err := side[1].do(ctx, "%s %s", step.tell, what); err != nil {
				return nil, err
			}
		}
	}
	return p, nil
}

func (p *pair) close() (err error) {
	for _, s := range []*process{p.initiator, p.target} {
		if s != nil {
			err = errors.Join(err, s.close())
		}
	}
	return err
}

// run measures n operations after a warm-up, and returns the nanoseconds per operation.
func (p *pair) run(ctx context.Context, t Test, size, warm, count, width int) (ns float64, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	both := []*process{p.initiator, p.target}
	for _, s := range both {
		if _, err := s.do(ctx, "prepare %s %d", t.Name, size); err != nil {
			return 0, err
		}
	}
	var text string
	for _, n := range []int{warm, count} {
		if n == 0 {
			continue
		}
		if err := p.target.sendCommand("serve %s %d %d %d", t.Name, size, n, width); err != nil {
			return 0, err
		}
		if err := p.initiator.sendCommand("run %s %d %d %d", t.Name, size, n, width); err != nil {
			return 0, err
		}
		served := make(chan struct{})
		go func() { // the first failure ends the wait for the other
			defer close(served)
			if _, err := p.target.result(ctx); err != nil {
				cancel(err)
			}
		}()
		text, err = p.initiator.result(ctx)
		if err != nil {
			cancel(err)
		}
		<-served
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
	}
	for i, s := range both {
		if i == 0 && !t.PingPong && !t.FromTarget || i == 1 && t.FromTarget {
			continue // no data arrives there
		}
		if _, err := s.do(ctx, "check %s %d", t.Name, size); err != nil {
			return 0, err
		}
	}
	total := 0.0
	if _, err := fmt.Sscan(text, &total); err != nil {
		return 0, fmt.Errorf("%s: %q is no time: %w", p.initiator.name, text, err)
	}
	return max(total, 1) / float64(count*t.hops()), nil
}
