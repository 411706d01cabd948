package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gucx/gucx/perftest/internal/show/complete"
	"github.com/gucx/gucx/perftest/internal/show/meter"
	"github.com/gucx/gucx/perftest/internal/show/sheet"
	"github.com/gucx/gucx/perftest/internal/studies/overlap"
	"github.com/gucx/gucx/perftest/internal/studies/sp"
	"github.com/gucx/gucx/perftest/internal/studies/spmodel"
)

// spModelFlags are the flags of perftest sp --model.
type spModelFlags struct {
	model   string
	nodes   int
	factors []float64
	steps   int
	seed    uint64
}

func (m *spModelFlags) bind(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&m.model, "model", "", "predict the time in the virtual time of a model: "+strings.Join(clusterModelNames(), ", ")+", or with parameters changed; classes are a list then, by default B,C, protocols are "+strings.Join(overlap.Protocols().Names(), ", ")+", and 64 ranks are the default")
	f.IntVar(&m.nodes, "nodes", 8, "nodes of the model, with a NIC each")
	f.Float64SliceVar(&m.factors, "factor", []float64{4, 16}, "computation takes so many `times` its measured costs in the model")
	f.Lookup("factor").DefValue = "4,16"
	f.IntVar(&m.steps, "steps", 2, "time steps of the model; all are equal")
	f.Uint64Var(&m.seed, "seed", 0, "seed of the model, for start times of ranks and the parameter Jitter")
	complete.One(cmd, "model", clusterModelNames)
}

// Defaults of the study.
const (
	spModelRanks   = 64
	spModelClasses = "B,C"
)

// study returns the study of these flags and of the flags for real time.
func (m *spModelFlags) study(s *spFlags, f *pflag.FlagSet) (study spmodel.Study, err error) {
	study = spmodel.Study{Ranks: s.ranks, Nodes: m.nodes, Factors: m.factors, Steps: m.steps, Seed: m.seed}
	classes, protocols := s.class, s.protocols
	if !f.Changed("class") {
		classes = spModelClasses
	}
	if !f.Changed("protocols") {
		protocols = overlap.Protocols().Names()
	}
	if !f.Changed("ranks") {
		study.Ranks = spModelRanks
	}
	for name := range strings.SplitSeq(classes, ",") {
		c, e := sp.ParseClass(name)
		study.Classes, err = append(study.Classes, c), errors.Join(err, e)
	}
	for _, name := range protocols {
		p, e := overlap.Protocols().Find(name)
		study.Protocols, err = append(study.Protocols, p), errors.Join(err, e)
	}
	var e error
	study.Params, e = openCluster(m.model)
	if err = errors.Join(err, e, sheet.CheckFormat(s.output)); err != nil {
		return study, err
	}
	return study, study.Check()
}

// predict runs the study in virtual time.
func (s *spFlags) predict(cmd *cobra.Command) error {
	study, err := s.spModelFlags.study(s, cmd.Flags())
	if err != nil {
		return &usageError{err}
	}
	m := meter.New(os.Stderr, study.Cases(), s.quiet)
	rows, refused, err := study.Run(cmd.Context(), func(label string) { m.Step(label, 0) })
	m.Close()
	reasons := refusals(refused)
	if len(rows) == 0 {
		return cmp.Or(err, errors.New(strings.Join(reasons, "; ")))
	}
	show := shown{model: s.model}
	c := show.conditions(cmd.Context(), fmt.Sprintf("NAS SP on %d nodes, %d time steps and scaled to those of the class", study.Nodes, study.Steps), err)
	return errors.Join(err, spmodel.Sheet(c, append(c.lines(), reasons...), rows).Write(cmd.OutOrStdout(), s.output))
}

// refusals returns lines about rejected protocols.
func refusals(list []overlap.Refused) (lines []string) {
	for _, r := range list {
		lines = append(lines, fmt.Sprintf("%s is not measured: %s", r.Protocol, r.Reason))
	}
	return lines
}
