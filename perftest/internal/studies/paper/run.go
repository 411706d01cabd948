package paper

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Runner runs a command and returns its output.
type Runner func(ctx context.Context, r *Run) (string, error)

// Todo lists the commands that figures of papers need and the store does not contain.
func Todo(papers []*Paper, s *Store) (list []*Run) {
	seen := map[string]bool{}
	for _, p := range papers {
		for i := range p.Figures {
			for _, r := range p.Figures[i].Runs() {
				if c := r.Command(); !seen[c] && !s.Has(r) {
					seen[c] = true
					list = append(list, r)
				}
			}
		}
	}
	return list
}

// Measure runs the missing commands, until ctx ends. step, which may be nil, is called after each command. The cases of
// a failed command are not measured, and the error gives the reason.
func Measure(ctx context.Context, papers []*Paper, s *Store, run Runner, step func(*Run)) (failed error) {
	for _, r := range Todo(papers, s) {
		output, err := run(ctx, r)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			failed = errors.Join(failed, fmt.Errorf("%s: %w", r.Command(), err))
		default:
			if err := s.Put(r, output); err != nil {
				return err
			}
		}
		if step != nil {
			step(r)
		}
	}
	return failed
}

// Commands lists the commands of a figure.
func (f *Figure) Commands() (list []string) {
	for _, r := range f.Runs() {
		if c := r.Command(); !slices.Contains(list, c) {
			list = append(list, c)
		}
	}
	return list
}
