package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/gucx/gucx"
	"github.com/gucx/gucx/perftest/internal/peers/launch"
	"github.com/gucx/gucx/ucp/ucpgroup"
	"github.com/gucx/gucx/ucp/ucpgroup/pmi"
	"github.com/gucx/gucx/ucs"
)

// startRanks starts n processes of this program with the arguments of cmd, which connect by pmi.FromEnv, and waits for
// them. It prints their output. If a rank has failed, the error wraps its *exec.ExitError. A signal is forwarded to
// rank 0, which prints partial results, and the others end with it.
func startRanks(cmd *cobra.Command, args []string, n int) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	out, errs := &turns{w: cmd.OutOrStdout()}, &turns{w: cmd.ErrOrStderr()}
	// Ranks are not in the foreground of a terminal, which may stop processes that write to it then (stty tostop). They
	// inherit ignored signals.
	signal.Ignore(syscall.SIGTTOU)
	job, err := pmi.Start(n, func(rank int) *exec.Cmd {
		c := exec.Command(self, args...)
		c.Stdout, c.Stderr = out, errs
		if rank == 0 { // it writes to the file itself: width and write errors are those of the file
			c.Stdout, c.Stderr = out.direct(), errs.direct()
		}
		// A process group of its own, so that Ctrl-C reaches this process only. The kernel kills the rank when the
		// thread that started it ends, which is when this process ends: the runtime ends no thread that is not locked.
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
		return c
	})
	if err != nil {
		return err
	}
	ctx, kill := context.WithCancel(context.WithoutCancel(cmd.Context()))
	defer kill()
	stop := context.AfterFunc(cmd.Context(), func() {
		errs.discard() // of ranks that lose another one
		if job.Signal(0, signalOf(cmd.Context())) != nil {
			kill()
			return
		}
		time.AfterFunc(launch.ExitTimeout, kill)
	})
	defer stop()
	if err := job.Wait(ctx); err != nil {
		return errors.Join(context.Cause(cmd.Context()), err)
	}
	return nil
}

// signalOf returns the signal that has canceled a context.
func signalOf(ctx context.Context) os.Signal {
	var sig *signalError
	if errors.As(context.Cause(ctx), &sig) {
		return sig.sig
	}
	return syscall.SIGTERM
}

// managedError is the error of a rank of a process manager.
type managedError struct {
	rank int
	err  error
}

func (e *managedError) Error() string { return fmt.Sprintf("on rank %d: %v", e.rank, e.err) }
func (e *managedError) Unwrap() error { return e.err }

// leaveJob ends a rank that has completed. If another rank has failed meanwhile, the process manager has closed the
// connection; that rank and the process manager report the error.
func leaveJob(boot *pmi.Client) error {
	if err := boot.Close(); !errors.Is(err, ucs.ErrConnReset) {
		return err
	}
	return nil
}

// runTogether runs n ranks as goroutines. The error is that of the first failed rank. Other errors may name it and
// return earlier, so runTogether waits for all.
func runTogether(ctx context.Context, n int, run func(ctx context.Context, b ucpgroup.Bootstrap) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	errs := make([]error, n)
	var wait sync.WaitGroup
	for q, b := range ucpgroup.InProcess(n) {
		wait.Go(func() {
			if err := run(ctx, b); err != nil {
				errs[q] = fmt.Errorf("on rank %d: %w", q, err)
				cancel(errs[q])
			}
		})
	}
	wait.Wait()
	err := context.Cause(ctx)
	var named *ucpgroup.RankError
	if errors.As(err, &named) && errs[named.Rank] != nil {
		return errs[named.Rank]
	}
	return err
}

// checkConfig opens the context of the ranks, so that an error is reported once, before they start.
func checkConfig(c gucx.Config) error {
	_, err := allowed(c.UCP, c.Components())
	return err
}

// turns is a writer for several processes, which write alternately.
type turns struct {
	mu       sync.Mutex
	w        io.Writer
	discards bool
}

// discard drops later writes.
func (t *turns) discard() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.discards = true
}

// direct returns the file of t for one process that writes to it itself; t if there is none.
func (t *turns) direct() io.Writer {
	if f, ok := t.w.(*os.File); ok {
		return f
	}
	return t
}

// Write implements io.Writer.
func (t *turns) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.discards {
		return len(b), nil
	}
	return t.w.Write(b)
}
