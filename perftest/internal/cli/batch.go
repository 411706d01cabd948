package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gucx/gucx"
)

// batchLine is one line of a batch file: a title and flags.
type batchLine struct {
	number int
	title  string
	args   []string
}

// errorf returns the error of a line that cannot run.
func (l *batchLine) errorf(err error) error {
	return fmt.Errorf("batch file, line %d (%s): %w", l.number, l.title, err)
}

// parseBatch parses a batch file of ucx_perftest: each line has the title of a run and its flags, separated by blanks.
// Empty lines, and lines that begin with #, are ignored.
func parseBatch(r io.Reader) (lines []batchLine, err error) {
	in := bufio.NewScanner(r)
	for n := 1; in.Scan(); n++ {
		words := strings.Fields(in.Text())
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		lines = append(lines, batchLine{n, words[0], words[1:]})
	}
	if err := in.Err(); err != nil {
		return nil, err
	}
	if len(lines) == 0 {
		return nil, errors.New("batch file: no line with a test")
	}
	return lines, nil
}

// readBatch opens and parses a batch file.
func readBatch(name string) ([]batchLine, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	lines, err := parseBatch(f)
	return lines, errors.Join(err, f.Close())
}

// settings returns the settings of the command line, overridden by the flags of the line.
func (l *batchLine) settings(cmd *cobra.Command, own gucx.Own) (*settings, error) {
	s := &settings{own: own}
	f := pflag.NewFlagSet(l.title, pflag.ContinueOnError)
	f.SetOutput(io.Discard)
	s.bind(f)
	s.bindLocal(f)
	var failed error
	cmd.Flags().Visit(func(given *pflag.Flag) {
		if to := f.Lookup(given.Name); to != nil && failed == nil {
			failed = copyFlag(to, given)
		}
	})
	if failed == nil {
		failed = f.Parse(l.args)
	}
	switch {
	case failed != nil:
	case f.NArg() > 0:
		failed = fmt.Errorf("%q is not a flag", f.Arg(0))
	case s.batch != "" && s.batch != cmd.Flag("batch").Value.String():
		failed = errors.New("a batch file cannot include another one")
	case s.peer != "":
		failed = errors.New("--peer cannot be used in batch files")
	case s.threaded(f) || s.threaded(cmd.Flags()):
		failed = errors.New("-T and -M cannot be used in batch files")
	}
	if failed != nil {
		return nil, l.errorf(failed)
	}
	s.batch = ""
	return s, nil
}

// copyFlag sets the value of to to that of from. The next value that is set replaces it, also if several values of a
// command line are added.
func copyFlag(to, from *pflag.Flag) error {
	list, ok := to.Value.(pflag.SliceValue)
	if !ok {
		return to.Value.Set(from.Value.String())
	}
	given, _ := from.Value.(pflag.SliceValue)
	return list.Replace(given.GetSlice())
}

// runBatch runs the lines of the batch file, each like a command. It parses all of them before it runs the first one.
func (s *settings) runBatch(cmd *cobra.Command) error {
	lines, err := readBatch(s.batch)
	if err != nil {
		return &usageError{err}
	}
	runs := make([][]*job, len(lines))
	for i := range lines {
		one, err := lines[i].settings(cmd, s.own)
		if err != nil {
			return &usageError{err}
		}
		if runs[i], err = one.jobs(); err != nil {
			return lines[i].errorf(err)
		}
	}
	for i, jobs := range runs {
		if form := jobs[0].settings.output; form == "table" || form == "md" {
			if _, err := fmt.Fprintf(cmd.OutOrStdout(), "# %s\n", lines[i].title); err != nil {
				return err
			}
		}
		if err := runJobs(cmd, jobs, func(j *job) error { return j.run(cmd) }); err != nil {
			return lines[i].errorf(err)
		}
	}
	return nil
}
