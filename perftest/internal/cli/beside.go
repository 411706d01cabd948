package cli

import (
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gucx/gucx/perftest/internal/layers"
	"github.com/gucx/gucx/perftest/internal/measure/result"
)

var errBeside = errors.New("-x with several transports: --plot and --counters take one")

// runEach runs the job of each transport that the flag names, one after the other. The
// results of several stand in one table.
func (s *settings) runEach(cmd *cobra.Command, run func(*job) error) error {
	if !strings.Contains(s.transport, ",") {
		j, err := s.readyJob()
		if err != nil {
			return err
		}
		return run(j)
	}
	if s.plot != "" || s.counters != "" {
		return &usageError{errBeside}
	}
	var runs []*job
	for _, name := range strings.Split(s.transport, ",") {
		one := *s
		one.transport = name
		j, err := one.readyJob()
		if err != nil {
			return err
		}
		runs = append(runs, j)
	}
	var all result.Run
	var records []result.Record
	for i, j := range runs {
		j.emit = func(_ io.Writer, run result.Run, more []result.Record) error {
			records = append(records, more...)
			if i == 0 {
				all = run
			} else {
				all.Settings = beside(all.Settings, run.Settings)
			}
			return nil
		}
		if err := run(j); err != nil {
			return err
		}
	}
	return runs[0].write(cmd.OutOrStdout(), all, records)
}

// beside are settings of runs that differ in their transports alone.
func beside(a, b result.Settings) result.Settings {
	a.Transport += "," + b.Transport
	a.Device += "," + b.Device
	a.Fabric = strings.Trim(a.Fabric+","+b.Fabric, ",")
	a.Layers = slices.DeleteFunc(layers.Names(), func(n string) bool {
		return !slices.Contains(a.Layers, n) && !slices.Contains(b.Layers, n)
	})
	return a
}
