package compare

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// killDelay is the time in which a process must exit after it was asked to; then it is killed.
const killDelay = time.Second

// process is a child whose output is stored.
type process struct {
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
}

// newProcess prepares a child that is ended when ctx ends, and by the kernel when this process
// ends. It is in a process group of its own: Ctrl-C reaches only this process, which then ends its
// children gracefully.
func newProcess(ctx context.Context, path string, args ...string) *process {
	p := &process{cmd: exec.CommandContext(ctx, path, args...)}
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	// Pdeathsig refers to the thread that forks. The runtime ends a thread only with a goroutine
	// that is locked to it, and the goroutines here unlock first.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(unix.SIGTERM) }
	p.cmd.WaitDelay = killDelay
	return p
}

// start starts the child.
func (p *process) start(ctx context.Context) error {
	err := p.cmd.Start()
	if err != nil && ctx.Err() != nil {
		return p.exitError(ctx)
	}
	return err
}

// wait waits for a started child. The error contains the end of its output, or the cause of the end
// of the context.
func (p *process) wait(ctx context.Context) error {
	err := p.cmd.Wait()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return p.exitError(ctx)
	}
	// UCX writes its errors to the standard output.
	if said := tail(p.stderr.String() + p.stdout.String()); said != "" {
		return fmt.Errorf("%s: %w: %s", p.name(), err, said)
	}
	return fmt.Errorf("%s: %w", p.name(), err)
}

// run starts a child and waits for it.
func (p *process) run(ctx context.Context) error {
	if err := p.start(ctx); err != nil {
		return err
	}
	return p.wait(ctx)
}

func (p *process) exitError(ctx context.Context) error {
	return fmt.Errorf("%s: %w", p.name(), context.Cause(ctx))
}

func (p *process) name() string { return strings.Join(p.cmd.Args, " ") }

// tailLen is the maximum length of error output in an error.
const tailLen = 400

// tail returns the end of a text on one line.
func tail(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > tailLen {
		return "..." + text[len(text)-tailLen:]
	}
	return text
}

// slowError is the error of a run that exceeds its time limit.
type slowError struct{ limit time.Duration }

func (e *slowError) Error() string { return fmt.Sprintf("no result after %v", e.limit) }

// limited sets the time limit of a run.
func limited(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, &slowError{limit})
}
