// Package cli is the command line of perftest.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/gucx/gucx/perftest/internal/bench"
	"github.com/gucx/gucx/perftest/internal/compare"
	"github.com/gucx/gucx/perftest/internal/instr"
	"github.com/gucx/gucx/perftest/internal/msgrate"
)

// Exit codes.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
	exitData    = 3   // an operation did not do what it should have
	exitSkipped = 77  // the skip status of automake
	exitSignal  = 128 // plus the signal
)

// Main runs the program with its arguments and returns the exit code.
func Main(args []string, stdout, stderr io.Writer) int {
	ctx, release := withSignals(context.Background())
	defer release()
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	fmt.Fprintf(stderr, "perftest: %v\n", err)
	code := exitCode(err)
	if code == exitUsage {
		fmt.Fprintf(stderr, "perftest: see %s --help\n", cmd.CommandPath())
	}
	return code
}

// signalError is the end of a run by a signal.
type signalError struct{ sig syscall.Signal }

func (e *signalError) Error() string { return e.sig.String() }

// usageError is a mistake on the command line.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func exitCode(err error) int {
	var sig *signalError
	var usage *usageError
	switch {
	case errors.As(err, &sig):
		return exitSignal + int(sig.sig)
	case errors.As(err, &usage):
		return exitUsage
	case errors.Is(err, bench.ErrData), errors.Is(err, msgrate.ErrData):
		return exitData
	case errors.Is(err, compare.ErrMissing):
		return exitSkipped
	}
	return exitFailure
}

// withSignals ends the context with a *signalError at the first SIGINT or SIGTERM.
// The second one ends the process.
func withSignals(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		select {
		case s := <-signals:
			signal.Stop(signals)
			sig, _ := s.(syscall.Signal)
			cancel(&signalError{sig})
		case <-done:
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		cancel(nil)
	}
}

// newRoot makes the command tree; without a subcommand it does the main job.
func newRoot() *cobra.Command {
	var s settings
	root := &cobra.Command{
		Use:           "perftest",
		Short:         "Measure what each layer of gucx costs",
		Long:          longHelp,
		Example:       examples,
		Args:          usage(cobra.NoArgs),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return s.runLocal(cmd) },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })
	s.bind(root.Flags())
	s.bindLocal(root.Flags())
	root.AddCommand(newSharing()...)
	root.AddCommand(newServer(), newClient(), newPeer(), newInfo(), instr.Command(), compare.Command())
	return root
}

// usage makes errors of an argument check usage errors.
func usage(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return &usageError{err}
		}
		return nil
	}
}
