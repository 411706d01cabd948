package cli

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gucx/gucx/perftest/internal/studies/endpoints"
	"github.com/gucx/gucx/perftest/internal/studies/msgrate"
	"github.com/gucx/gucx/uct/ib/verbs/endpoint"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// categories are the flags of commands that compare categories.
type categories struct {
	names []string
	cq    int
}

func (c *categories) bind(f *pflag.FlagSet) {
	f.StringSliceVar(&c.names, "categories", categoryNames(), "categories to compare, of "+strings.Join(categoryNames(), ", "))
	f.Lookup("categories").DefValue = "all" // the list would be one long word in the help
	f.IntVar(&c.cq, "cq", 1, "threads that share a completion queue, where their context is shared")
}

func categoryNames() (names []string) {
	for _, c := range endpoint.Categories() {
		names = append(names, c.String())
	}
	return names
}

func (c *categories) parse() (list []endpoint.Category, err error) {
	for _, name := range c.names {
		c, err := endpoint.ParseCategory(name)
		if err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	return list, nil
}

// application are the flags that dgemm and stencil have in common.
type application struct {
	sharing
	categories
}

func (a *application) bind(f *pflag.FlagSet) {
	a.bindCommon(f)
	a.categories.bind(f)
}

// study returns the study of the flags, without threads and ranks.
func (a *application) study(queues mlx5.Config) (s endpoints.Study, err error) {
	s = endpoints.Study{Base: msgrate.Config{Inline: true, LockCQ: a.base.LockCQ}, Queues: queues, CQ: a.cq, Rounds: a.rounds}
	s.Categories, err = a.parse()
	return s, err
}

// rig opens the rig of the threads.
func (a *application) rig() (msgrate.Rig, error) {
	if a.model != "" {
		return openModel(a.model, a.seed)
	}
	return newRealTime(softhca.Fabric(a.fabric)), nil
}

// part is one study of an application, with its measurement.
type part struct {
	study endpoints.Study
	bench msgrate.Measurer
}

// measure measures all parts and writes the results.
func (a *application) measure(cmd *cobra.Command, parts []part, problem string) error {
	total := 0
	for i := range parts {
		_, cases := parts[i].study.Cases()
		total += len(cases)
	}
	if total == 0 {
		return &usageError{errNothing}
	}
	step, done := a.progress(total)
	defer done()
	var rows []endpoints.Row
	var err error
	for i := 0; i < len(parts) && err == nil; i++ {
		var more []endpoints.Row
		more, err = parts[i].study.Run(cmd.Context(), parts[i].bench, step)
		rows = append(rows, more...)
	}
	done()
	return a.writeRows(cmd, problem, rows, err)
}
