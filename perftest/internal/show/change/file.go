package change

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/gucx/gucx/perftest/internal/measure/result"
	"github.com/gucx/gucx/perftest/internal/show/report"
)

// CheckFile returns an error if Append cannot write to a file. It does not create the file.
func CheckFile(file string) error {
	_, missing := os.Stat(file)
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return fmt.Errorf("save: %w", err)
	}
	err = f.Close()
	if errors.Is(missing, os.ErrNotExist) {
		err = errors.Join(err, os.Remove(file))
	}
	return err
}

// Append adds a run to a file with the format of -o json.
func Append(file string, run result.Run, records []result.Record) (err error) {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return fmt.Errorf("save: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return report.Write(f, "json", run, records)
}

// Read reads the runs of a file: the output of -o json, or of several runs one after the other.
func Read(file string) (runs Runs, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if runs, err = parse(f); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return runs, nil
}

var (
	errNoResults = errors.New("no results of the comparison in the form of -o json")
	errPartial   = errors.New("a run of it ended early")
)

// parse distinguishes runs and records by their fields.
func parse(r io.Reader) (runs Runs, err error) {
	d := json.NewDecoder(r)
	for {
		var object json.RawMessage
		if err := d.Decode(&object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("%w: %w", errNoResults, err)
		}
		if runs, err = runs.add(object); err != nil {
			return nil, err
		}
	}
	if len(runs) == 0 || len(runs[0].Records) == 0 {
		return nil, errNoResults
	}
	return runs, nil
}

// add adds a run, or a record to the last run.
func (runs Runs) add(object json.RawMessage) (Runs, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(object, &fields); err != nil {
		return nil, errNoResults
	}
	switch {
	case fields["machine"] != nil && fields["settings"] != nil:
		var run Run
		if err := json.Unmarshal(object, &run.Run); err != nil {
			return nil, fmt.Errorf("%w: %w", errNoResults, err)
		}
		if run.Incomplete != "" {
			return nil, fmt.Errorf("%w: %s", errPartial, run.Incomplete)
		}
		return append(runs, run), nil
	case fields["loop_ns"] == nil || len(runs) == 0:
		return nil, errNoResults
	}
	var r result.Record
	if err := json.Unmarshal(object, &r); err != nil {
		return nil, fmt.Errorf("%w: %w", errNoResults, err)
	}
	last := &runs[len(runs)-1]
	last.Records = append(last.Records, r)
	return runs, nil
}

// Title describes the runs of a file in one line.
func (runs Runs) Title() string {
	noun := "run"
	if len(runs) > 1 {
		noun = "runs"
	}
	commits := values(runs, func(r *Run) string { return r.Commit })
	return fmt.Sprintf("%d %s of gucx %s", len(runs), noun, strings.Join(commits, ", "))
}
