package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gucx/gucx/perftest/internal/show/complete"
	"github.com/gucx/gucx/perftest/internal/show/meter"
	"github.com/gucx/gucx/perftest/internal/show/sheet"
	"github.com/gucx/gucx/perftest/internal/studies/ranksmodel"
)

// ranksModelFlags are the flags of perftest ranks --model.
type ranksModelFlags struct {
	model  string
	nodes  int
	cpi    []float64
	clock  float64
	counts string
	seed   uint64
}

// broadwell is the clock rate of the processor of timing.ConnectX6, in GHz.
const broadwell = 2.6

func (m *ranksModelFlags) bind(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&m.model, "model", "", "predict in the virtual time of a model: "+strings.Join(clusterModelNames(), ", ")+", or with parameters changed; -x is a list of transports then, by default rc,rc_mlx5, and 8 ranks, 3 rounds and sizes 8,1k,16k,64k are the default")
	f.IntVar(&m.nodes, "nodes", 0, "nodes of the model, with a NIC each (default one for each rank); ranks of one node reach each other over sm")
	f.Float64SliceVar(&m.cpi, "cpi", []float64{1}, "cycles per counted instruction in the model; an assumption, so try several")
	f.Lookup("cpi").DefValue = "1"
	f.Float64Var(&m.clock, "clock", broadwell, "clock rate of the CPUs of the model in `GHz`")
	f.StringVar(&m.counts, "counts", "", "`FILE` with counts of instructions for the model, as \"perftest help ranks\" says (default those of this build's source)")
	f.Uint64Var(&m.seed, "seed", 0, "seed of the model, for start times of ranks and the parameter Jitter")
	complete.One(cmd, "model", clusterModelNames)
}

// Defaults in virtual time.
const (
	ranksModelRanks      = 8
	ranksModelIterations = 3
	ranksModelSizes      = "8,1k,16k,64k"
	ranksModelTransports = "rc,rc_mlx5"
)

// realTimeFlags have no effect in virtual time, and modelFlags none in real time.
var (
	realTimeFlags = []string{"protocols", "in-process", "warmup"}
	modelFlags    = []string{"nodes", "cpi", "clock", "counts", "seed"}
)

// checkModelFlags rejects flags that would have no effect.
func (s *ranksFlags) checkModelFlags(cmd *cobra.Command) error {
	others, with := modelFlags, "without"
	if s.model != "" {
		others, with = realTimeFlags, "with"
	}
	for _, name := range others {
		if cmd.Flags().Changed(name) {
			return fmt.Errorf("--%s cannot be used %s --model", name, with)
		}
	}
	return nil
}

// modelStudy returns the study of these flags and of the flags for real time.
func (s *ranksFlags) modelStudy(cmd *cobra.Command) (study ranksmodel.Study, err error) {
	m, changed := &s.ranksModelFlags, cmd.Flags().Changed
	study = ranksmodel.Study{CPI: m.cpi, Clock: m.clock * 1e9, Ranks: ranksModelRanks, Iterations: ranksModelIterations, Seed: m.seed}
	if changed("ranks") {
		study.Ranks = s.ranks
	}
	if changed("iters") {
		study.Iterations = s.study.Iterations
	}
	if study.Nodes = m.nodes; !changed("nodes") {
		study.Nodes = study.Ranks
	}
	transports, sizes, tests := ranksModelTransports, ranksModelSizes, ranksmodel.Names()
	if changed("transport") {
		transports = s.transport
	}
	if changed("size") {
		sizes = s.sizes
	}
	if changed("test") {
		tests = s.tests
	}
	study.Transports = strings.Split(transports, ",")
	for _, name := range tests {
		t, e := ranksmodel.ParseTest(name)
		study.Tests, err = append(study.Tests, t), errors.Join(err, e)
	}
	var errs [4]error
	study.Sizes, errs[0] = parseSizes(sizes)
	study.Params, errs[1] = openCluster(m.model)
	study.Counts, errs[2] = m.readCounts()
	errs[3] = sheet.CheckFormat(s.output)
	if err = errors.Join(append(errs[:], err)...); err != nil {
		return study, err
	}
	return study, study.Check()
}

func (m *ranksModelFlags) readCounts() (*ranksmodel.Counts, error) {
	if m.counts == "" {
		return ranksmodel.DefaultCounts()
	}
	f, err := os.Open(m.counts)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ranksmodel.ReadCounts(f)
}

// predict runs the study in virtual time.
func (s *ranksFlags) predict(cmd *cobra.Command) error {
	study, err := s.modelStudy(cmd)
	if err != nil {
		return &usageError{err}
	}
	m := meter.New(os.Stderr, study.Cases(), s.quiet)
	rows, err := study.Run(cmd.Context(), m.Step)
	m.Close()
	if len(rows) == 0 {
		return err
	}
	show := shown{model: s.model}
	c := show.conditions(cmd.Context(), fmt.Sprintf("%d ranks on %d nodes, %d rounds; processors of %v GHz", study.Ranks, study.Nodes, study.Iterations, s.clock), err)
	lines := c.lines()
	counted := func(over string, n ranksmodel.Instructions, e error) {
		err = errors.Join(err, e)
		lines = append(lines, fmt.Sprintf("Instructions over %s: send %d, longer %d, get %d, deliver %d, completion %d, poll %d", over, n.Short, n.Bcopy, n.Get, n.Deliver, n.Poll, n.Idle))
	}
	for _, t := range study.Transports {
		n, e := study.Counts.Of(t)
		counted(t, n, e)
	}
	if study.SharesNodes() {
		n, e := study.Counts.OfSM()
		counted("sm, within a node", n, e)
	}
	return errors.Join(err, ranksmodel.Sheet(c, lines, rows).Write(cmd.OutOrStdout(), s.output))
}
