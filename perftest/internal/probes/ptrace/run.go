package ptrace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// DefaultMaxSteps is the maximum length of a window if Program.MaxSteps is 0: some 20 seconds of
// stepping.
const DefaultMaxSteps = 1 << 20

// ErrForbidden is the error if this process may not trace a child. It is wrapped with the error of
// the kernel.
var ErrForbidden = errors.New("ptrace is forbidden here (in a container allow it with " +
	"--cap-add=SYS_PTRACE or a seccomp profile that has ptrace; " +
	"sysctl kernel.yama.ptrace_scope must be 0 or 1)")

// Program is the program that Run starts.
type Program struct {
	// Path is the executable: SelfPath, so that the symbols of the child are those of this program.
	Path string
	Args []string   // with Args[0]
	Env  []string   // complete
	Dir  string     // "" is the current one
	File []*os.File // descriptors 0, 1, 2, ...; nil: closed
	// MaxSteps is the maximum number of instructions of one window; 0 means DefaultMaxSteps.
	MaxSteps int
	// Over reports whether pc, an address of this process, is the first instruction of a function
	// of which only that instruction is recorded. The thread runs at full speed until the function
	// returns, with the other threads. nil selects no function.
	Over func(pc uint64) bool
}

// SelfPath is the executable of this process. It is valid also after its file was replaced.
const SelfPath = "/proc/self/exe"

// Window is the execution of a thread between Begin and End: from the instruction after the first
// trap, which is in the marks of this package, to the second trap.
type Window struct {
	Tag uint64 // the argument of Begin
	// Steps are the instructions in the order of execution. A repeated string instruction (REP on
	// amd64) counts once. Valid until the callback returns.
	Steps []Step
	// Syscalls is the number of instructions among them that entered the kernel.
	Syscalls int
}

// Step is one instruction before its execution.
type Step struct {
	PC uint64 // its address in this process
	SP uint64 // stack pointer
}

// ExitError is the exit status of a child that did not exit with 0.
type ExitError struct{ Status unix.WaitStatus }

// Error returns the exit code or the signal.
func (e *ExitError) Error() string {
	if e.Status.Signaled() {
		return "traced child: killed by " + unix.SignalName(e.Status.Signal())
	}
	return fmt.Sprintf("traced child: exit code %d", e.Status.ExitStatus())
}

// Run starts p and calls f with each window, while the child is stopped. It returns when the child
// has exited: nil, *ExitError, ErrForbidden, the error of f or of ctx. The last two kill the child,
// and so does the death of this process. The window in which ctx ends is the last one.
// errors.ErrUnsupported on an architecture without marks. Run blocks, and occupies one thread and
// one CPU.
func Run(ctx context.Context, p Program, f func(Window) error) (err error) {
	if !supported {
		return fmt.Errorf("ptrace on %s: %w", runtime.GOARCH, errors.ErrUnsupported)
	}
	runtime.LockOSThread() // the tracer is a thread, not a process
	defer runtime.UnlockOSThread()
	restore, err := pinThread()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, restore()) }()

	t, err := start(p)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, t.kill)
	defer stop()
	window := func(w Window) error { return cmp.Or(f(w), context.Cause(ctx)) }
	if err = t.run(window); err != nil && t.alive() {
		t.kill()
		t.reap()
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// start forks the program, traced, and continues it from its first instruction.
func start(p Program) (*tracer, error) {
	proc, err := os.StartProcess(p.Path, p.Args, &os.ProcAttr{
		Dir: p.Dir, Env: p.Env, Files: p.File,
		// A process group of its own, so that a wait for its threads returns no other child of this
		// process.
		Sys: &syscall.SysProcAttr{Ptrace: true, Setpgid: true},
	})
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return nil, fmt.Errorf("%w: %w", ErrForbidden, err)
	}
	if err != nil {
		return nil, err
	}
	t := newTracer(proc.Pid, p)
	err = t.attach()
	if rerr := proc.Release(); err == nil && rerr != nil {
		err = rerr
	}
	if err != nil {
		t.kill()
		t.reap()
		return nil, err
	}
	return t, nil
}
