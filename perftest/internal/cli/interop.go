package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gucx/gucx/perftest/internal/measure/affinity"
	"github.com/gucx/gucx/perftest/internal/measure/machine"
	"github.com/gucx/gucx/perftest/internal/measure/result"
	"github.com/gucx/gucx/perftest/internal/show/meter"
	"github.com/gucx/gucx/perftest/internal/show/sheet"
	"github.com/gucx/gucx/perftest/internal/studies/interop"
	"github.com/gucx/gucx/ucp"
)

// peerUCX is the value of --peer.
const peerUCX = "ucx"

// ucxSideName is the hidden command for gucx's side of --peer ucx.
const ucxSideName = "ucx-side"

// flagsWithUCX are the flags that can be used with --peer.
var flagsWithUCX = []string{"peer", "test", "size", "full", "iters", "warmup", "rounds", "window", "cpus", "output", "quiet"}

// Defaults with --peer.
const (
	ucxSizes      = "8,4k,64k,1m"
	ucxIterations = 20_000
	ucxWarmup     = 200
)

// newUCXSide makes the command for gucx's side of --peer ucx.
func newUCXSide() *cobra.Command {
	narrow := false
	cmd := &cobra.Command{Use: ucxSideName, Hidden: true, Args: usage(cobra.NoArgs), RunE: func(cmd *cobra.Command, _ []string) error {
		return interop.Serve(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), ucp.Version, narrow)
	}}
	cmd.Flags().BoolVar(&narrow, "narrow", false, "use the narrow form of loopback addresses")
	return cmd
}

// ucxStudy returns the study of the flags. Errors are usage errors.
func (s *settings) ucxStudy(f *pflag.FlagSet) (study interop.Study, err error) {
	f.Visit(func(given *pflag.Flag) {
		if err == nil && !slices.Contains(flagsWithUCX, given.Name) {
			err = fmt.Errorf("--peer: --%s cannot be used with it", given.Name)
		}
	})
	if err != nil {
		return study, err
	}
	if name, _, _ := strings.Cut(s.peer, "="); name != peerUCX {
		return study, fmt.Errorf("--peer %s: there is %s", s.peer, peerUCX)
	}
	study = interop.Study{Iterations: s.iterations, Warmup: s.warmup, Window: s.window}
	if !f.Changed("iters") {
		study.Iterations = ucxIterations
	}
	if !f.Changed("warmup") {
		study.Warmup = ucxWarmup
	}
	study.Rounds = min(s.rounds, max(study.Iterations, 1))
	if !s.full && s.sizes == "" {
		study.Sizes, err = parseSizes(ucxSizes)
	} else {
		study.Sizes, err = s.chosenSizes()
	}
	if err != nil {
		return study, err
	}
	if study.CPUs, err = affinity.Pair(s.cpus); err != nil {
		return study, err
	}
	names := s.tests
	if len(names) == 0 || isAll(names) {
		names = interop.Names()
	}
	for _, name := range names {
		t, err := interop.ParseTest(strings.TrimPrefix(name, "ucp_"))
		if err != nil {
			return study, fmt.Errorf("--peer: %w", err)
		}
		study.Tests = append(study.Tests, t)
	}
	return study, cmp.Or(study.Check(), sheet.CheckFormat(s.output))
}

// runWithUCX measures gucx and UCX with each other.
func (s *settings) runWithUCX(cmd *cobra.Command) (err error) {
	ctx := cmd.Context()
	study, err := s.ucxStudy(cmd.Flags())
	if err != nil {
		return &usageError{err}
	}
	_, path, given := strings.Cut(s.peer, "=")
	if !given {
		folder, err := os.MkdirTemp("", "perftest-ucx")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
		if path, err = interop.Build(ctx, folder); err != nil {
			return err
		}
	}
	ucx := interop.UCX(path)
	version, err := ucx.Version(ctx)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	gucx := interop.Program{Name: "gucx", Command: []string{self, ucxSideName}}
	if interop.Narrow(version) {
		gucx.Command = append(gucx.Command, "--narrow")
	}
	m := meter.New(os.Stderr, study.Turns(), s.quiet)
	defer m.Close()
	rows, err := study.Run(ctx, ucx, gucx, m.Step)
	m.Close()
	if len(rows) == 0 {
		return err
	}
	c := ucxConditions{Machine: machine.Describe(), Commit: machine.Commit(ctx), UCX: version, Study: study, Partial: partial(ctx, err)}
	return errors.Join(err, interop.Sheet(c, c.lines(), rows).Write(cmd.OutOrStdout(), s.output))
}

// ucxConditions is the first object of JSON output, and what tables begin with.
type ucxConditions struct {
	Machine result.Machine `json:"machine"`
	Commit  string         `json:"commit"`
	UCX     string         `json:"ucx"`
	Study   interop.Study  `json:"study"`
	result.Partial
}

func (c ucxConditions) lines() []string {
	s := c.Study
	where := "nothing is pinned"
	if len(s.CPUs) == 2 {
		where = "CPUs " + strconv.Itoa(s.CPUs[0]) + " and " + strconv.Itoa(s.CPUs[1])
	}
	return append([]string{
		c.Machine.String(),
		fmt.Sprintf("gucx %s and %s, over UCX's tcp on loopback; two processes, %s", c.Commit, c.UCX, where),
		fmt.Sprintf("%d operations in %d rounds, each after %d; above 8 KiB as many as move the same bytes; window %d", s.Iterations, s.Rounds, s.Warmup, s.Window),
	}, c.Lines()...)
}
