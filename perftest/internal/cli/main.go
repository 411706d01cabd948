// Package cli is the command line of perftest.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gucx/gucx"
	"github.com/gucx/gucx/perftest/internal/layers"
	"github.com/gucx/gucx/perftest/internal/measure/bench"
	"github.com/gucx/gucx/perftest/internal/measure/machine"
	"github.com/gucx/gucx/perftest/internal/measure/result"
	"github.com/gucx/gucx/perftest/internal/probes/instr"
	"github.com/gucx/gucx/perftest/internal/show/change"
	"github.com/gucx/gucx/perftest/internal/studies/compare"
	"github.com/gucx/gucx/perftest/internal/studies/interop"
	"github.com/gucx/gucx/perftest/internal/studies/kernel"
	"github.com/gucx/gucx/perftest/internal/studies/kv"
	"github.com/gucx/gucx/perftest/internal/studies/msgrate"
	"github.com/gucx/gucx/perftest/internal/studies/ranks"
	"github.com/gucx/gucx/perftest/internal/studies/sp"
	"github.com/gucx/gucx/perftest/internal/studies/threads"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/ucpgroup"
)

// Exit codes.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
	exitData    = 3   // wrong data
	exitSlower  = 4   // compare: an operation takes longer than before
	exitSkipped = 77  // the skip status of automake
	exitSignal  = 128 // plus the signal
)

// Program is perftest, optionally with more transports. The zero value is perftest itself.
type Program struct {
	// Name in help and messages; "" means perftest.
	Name string
	Own  gucx.Own
}

// defaultName is the name of the program in help texts.
const defaultName = "perftest"

// Run runs the program with its arguments and returns the exit code.
func (p Program) Run(args []string, stdout, stderr io.Writer) int {
	p.Name = cmp.Or(p.Name, defaultName)
	ctx, release := withSignals(context.Background())
	defer release()
	logged, err := startLog(os.Environ())
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", p.Name, err)
		return exitCode(err)
	}
	defer logged.Close()
	root := p.newRoot(args)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	var help helpPrinter
	help.bind(root)
	cmd, err := root.ExecuteContextC(ctx)
	if err = cmp.Or(err, help.err); err == nil {
		return exitOK
	}
	managed := new(managedError)
	rank := errors.As(err, &managed)
	err = reason(ctx, err)
	code := exitCode(err)
	if rank && code > exitSignal {
		return code // the process manager reports it
	}
	fmt.Fprintf(stderr, "%s: %s\n", p.Name, oneLine(err))
	if code == exitUsage {
		fmt.Fprintf(stderr, "%s: see %s --help\n", p.Name, cmd.CommandPath())
	}
	return code
}

// reason returns the reason why a run has ended. After a signal other errors are its consequences, except wrong data.
func reason(ctx context.Context, err error) error {
	var sig *signalError
	if errors.As(context.Cause(ctx), &sig) && exitCode(err) != exitData {
		return sig
	}
	return err
}

// oneLine returns the text of an error in one line.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// partial returns the mark for results that err has made incomplete; empty for nil.
func partial(ctx context.Context, err error) (p result.Partial) {
	if err != nil {
		p.Incomplete = oneLine(reason(ctx, err))
	}
	return p
}

// signalError is the end of a run by a signal.
type signalError struct{ sig syscall.Signal }

func (e *signalError) Error() string { return e.sig.String() }

// usageError is an error of the command line.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func exitCode(err error) int {
	var sig *signalError
	var usage *usageError
	var rank *ucpgroup.RankError
	var exit *exec.ExitError
	var skip *skipError
	var slower *change.SlowerError
	switch {
	case errors.As(err, &sig):
		return exitSignal + int(sig.sig)
	case errors.As(err, &usage):
		return exitUsage
	case errors.Is(err, bench.ErrData), errors.Is(err, msgrate.ErrData), errors.Is(err, sp.ErrVerify), errors.Is(err, ranks.ErrData), errors.Is(err, kernel.ErrResult), errors.Is(err, threads.ErrData), errors.Is(err, interop.ErrData), errors.Is(err, kv.ErrData):
		return exitData
	case errors.As(err, &rank) && errors.As(rank, &exit) && exit.ExitCode() > 0:
		return exit.ExitCode() // a rank has the exit code of this program
	case errors.As(err, &slower):
		return exitSlower
	case errors.Is(err, compare.ErrMissing), errors.Is(err, interop.ErrNoUCX), errors.As(err, &skip):
		return exitSkipped
	}
	return exitFailure
}

// withSignals cancels the context with a *signalError at the first SIGINT or SIGTERM. A signal more than sameSignal
// later ends the process.
func withSignals(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	done := make(chan struct{})
	go followSignals(signals, done, func(s syscall.Signal) { cancel(&signalError{s}) }, func() { signal.Stop(signals) })
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		cancel(nil)
	}
}

// sameSignal is the time in which further signals count as the first one: timeout(1) sends it to the process and to its
// process group.
const sameSignal = 500 * time.Millisecond

// followSignals calls end at the first signal. Then it calls leave, after which the next signal ends the process. It
// returns at the latest when done is closed.
func followSignals(signals <-chan os.Signal, done <-chan struct{}, end func(syscall.Signal), leave func()) {
	select {
	case s := <-signals:
		sig, _ := s.(syscall.Signal)
		end(sig)
	case <-done:
		return
	}
	t := time.NewTimer(sameSignal)
	defer t.Stop()
	select {
	case <-t.C:
		leave()
	case <-done:
	}
}

// newRoot makes the command tree for the arguments. Root without a subcommand runs the comparison.
func (p Program) newRoot(args []string) *cobra.Command {
	s := settings{own: p.Own}
	var version bool
	root := &cobra.Command{
		Use:           p.Name,
		Short:         "Measure the cost of each layer of gucx",
		Long:          longHelp,
		Example:       overview,
		Args:          usage(noCommand),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if version {
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s of gucx %s, commit %s\n", p.Name, ucp.Version, machine.Commit(cmd.Context()))
				return err
			}
			return s.runLocal(cmd)
		},
	}
	root.SetFlagErrorFunc(flagError)
	s.bind(root.Flags())
	s.bindLocal(root.Flags())
	root.Flags().BoolVarP(&version, "version", "v", false, "print the version, and measure nothing")
	s.complete(root)
	completeLocal(root)
	root.AddCommand(newSharing()...)
	root.AddCommand(p.newSP(args), p.newRanks(args), p.newCrossover(), p.newThreadTarget(), p.newThreadInitiator(), newUCXSide(), p.newServer(), p.newClient(), p.newPeer(), p.newInfo(), newHardwareCheck(), checked(instr.Command()), checked(compare.Command()), newCompare())
	root.AddCommand(newPaper(), newFootprint(), p.newSU3(args), p.newLJ(args))
	p.addCompletion(root)
	addHelp(root)
	root.SetUsageTemplate(wrapFlags.Replace(root.UsageTemplate()))
	addTopics(root)
	p.rename(root)
	return root
}

// addCompletion adds cobra's command for shells. cobra itself prints help for an unknown shell, and exits with 0.
func (p Program) addCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() != "completion" {
			continue
		}
		c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		c.Args = usage(c.Args)
		for _, shell := range c.Commands() {
			shell.Args = usage(shell.Args)
		}
	}
}

// addHelp adds cobra's help command. cobra itself prints the help of root for an unknown command, and exits with 0.
func addHelp(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	help, _, err := root.Find([]string{"help"})
	if err != nil {
		return
	}
	help.Run = nil
	help.RunE = func(_ *cobra.Command, args []string) error {
		cmd, rest, err := root.Find(args)
		if err != nil || len(rest) > 0 {
			return &usageError{fmt.Errorf("unknown command %q for %q", strings.Join(args, " "), root.Name())}
		}
		cmd.InitDefaultHelpFlag() // help lists it
		return cmd.Help()
	}
}

// nameInText matches the name as a word: neither a file name nor ucx_perftest.
var nameInText = regexp.MustCompile(`(?m)\b` + defaultName + `( |$)`)

// rename sets the name of the program in the help texts of cmd and of the commands below it.
func (p Program) rename(cmd *cobra.Command) {
	if p.Name == defaultName {
		return
	}
	change := func(text *string) { *text = nameInText.ReplaceAllString(*text, p.Name+"$1") }
	change(&cmd.Short)
	change(&cmd.Long)
	change(&cmd.Example)
	cmd.Flags().VisitAll(func(f *pflag.Flag) { change(&f.Usage) })
	for _, c := range cmd.Commands() {
		p.rename(c)
	}
}

// config returns the configuration of the environment.
func (p Program) config() (layers.Config, error) { return layers.FromEnv(os.Environ(), p.Own) }

// usage makes errors of an argument check usage errors.
func usage(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return &usageError{err}
		}
		return nil
	}
}

// checked makes errors of the checks of a command usage errors.
func checked(cmd *cobra.Command) *cobra.Command {
	cmd.Args, cmd.PreRunE = usage(cmd.Args), usage(cmd.PreRunE)
	return cmd
}
