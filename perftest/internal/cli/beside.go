package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gucx/gucx/perftest/internal/layers"
	"github.com/gucx/gucx/perftest/internal/measure/result"
)

var errBeside = errors.New("--counters needs a single transport, not several with -x")

// jobs returns a checked job for each transport of the flag.
func (s *settings) jobs() (jobs []*job, err error) {
	names := strings.Split(s.transport, ",")
	if len(names) > 1 && s.counters != "" {
		return nil, &usageError{errBeside}
	}
	for i, name := range names {
		switch {
		case len(names) > 1 && name == "":
			return nil, &usageError{fmt.Errorf("transport %q: a name is empty", s.transport)}
		case slices.Contains(names[:i], name):
			return nil, &usageError{fmt.Errorf("duplicate transport %q", name)}
		}
		one := *s
		one.transport = name
		j, err := one.readyJob()
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}

// runJobs runs the jobs one after another, and writes one table. After a failed job the others still run, except after
// wrong data or an interruption.
func runJobs(cmd *cobra.Command, jobs []*job, run func(*job) error) error {
	if len(jobs) == 1 {
		return run(jobs[0])
	}
	var all result.Run
	var records []result.Record
	var failed error
	for _, j := range jobs {
		j.emit = func(_ io.Writer, run result.Run, more []result.Record) error {
			if len(records) == 0 {
				all = run
			} else {
				all.Settings = beside(all.Settings, run.Settings)
				all.Load = run.Load.Worse(all.Load)
			}
			records = append(records, more...)
			return nil
		}
		if err := run(j); err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", j.plan.Transport, err))
			if cmd.Context().Err() != nil || exitCode(err) == exitData {
				break
			}
		}
	}
	if len(records) == 0 {
		return failed
	}
	all.Partial = partial(cmd.Context(), failed)
	return errors.Join(failed, jobs[0].write(cmd.OutOrStdout(), all, records))
}

// joined returns the list with one more name, unless the name is empty or in the list.
func joined(list, name string) string {
	names := strings.Split(list, ",")
	switch {
	case list == "":
		return name
	case name == "" || slices.Contains(names, name):
		return list
	}
	return list + "," + name
}

// beside is the results of runs that differ only in their transports.
func beside(a, b result.Settings) result.Settings {
	a.Transport += "," + b.Transport
	a.Device = joined(a.Device, b.Device)
	a.Fabric = joined(a.Fabric, b.Fabric)
	a.Layers = slices.DeleteFunc(layers.Measurable(), func(n string) bool {
		return !slices.Contains(a.Layers, n) && !slices.Contains(b.Layers, n)
	})
	return a
}
