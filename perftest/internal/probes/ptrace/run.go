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

// DefaultMaxSteps bounds a window unless Program.MaxSteps says otherwise: some 20
// seconds of stepping.
const DefaultMaxSteps = 1 << 20

// ErrForbidden says that this process may not trace a child. It is wrapped with
// what the kernel said.
var ErrForbidden = errors.New("ptrace is forbidden here (in a container allow it with " +
	"--cap-add=SYS_PTRACE or a seccomp profile that has ptrace; " +
	"sysctl kernel.yama.ptrace_scope must be 0 or 1)")

// Program is what Run starts.
type Program struct {
	// Path is the executable: SelfPath, so that this program's symbols are
	// those of the child.
	Path string
	Args []string   // with Args[0]
	Env  []string   // complete
	Dir  string     // "" is the current one
	File []*os.File // descriptors 0, 1, 2, ...; nil leaves one closed
	// MaxSteps bounds the instructions of one window; 0 means DefaultMaxSteps.
	MaxSteps int
	// Over reports whether pc, an address of this process, is the first instruction of a function
	// of which only that instruction is recorded. The thread runs at full speed until the function
	// returns, with the other threads. nil selects no function.
	Over func(pc uint64) bool
}

// SelfPath is the executable of this process, also when its file was replaced.
const SelfPath = "/proc/self/exe"

// Window is what a thread executed between Begin and End: from the instruction
// behind the first trap, which is in the marks of this package, up to the second.
type Window struct {
	Tag uint64 // the argument of Begin
	// Steps are the instructions in the order of execution. A repeated string
	// instruction (REP on amd64) counts once. Lent until the callback returns.
	Steps []Step
	// Syscalls counts the instructions among them that entered the kernel.
	Syscalls int
}

// Step is one instruction, about to be executed.
type Step struct {
	PC uint64 // its address, as this process would have it
	SP uint64 // the stack pointer: how deep the call is
}

// ExitError is how a child ended that did not exit with 0.
type ExitError struct{ Status unix.WaitStatus }

// Error says the exit code or the signal.
func (e *ExitError) Error() string {
	if e.Status.Signaled() {
		return "traced child: killed by " + unix.SignalName(e.Status.Signal())
	}
	return fmt.Sprintf("traced child: exit code %d", e.Status.ExitStatus())
}

// Run starts p and calls f with each window, while the child stands still. It
// returns when the child has exited: nil, *ExitError, ErrForbidden, the error of f
// or of ctx; the child is killed by the latter two, and when this process dies. A
// window in which ctx ends is the last one.
// errors.ErrUnsupported on an architecture without marks. It blocks, and occupies
// one thread and one CPU.
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

// start forks the program, traced, and lets it run from its first instruction.
func start(p Program) (*tracer, error) {
	proc, err := os.StartProcess(p.Path, p.Args, &os.ProcAttr{
		Dir: p.Dir, Env: p.Env, Files: p.File,
		// A process group of its own, so that waiting for its threads takes
		// no other child of this process.
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
