// Command mutate measures how many faults the tests of a package detect. It makes small changes (mutants) to the package
// and runs the tests of the package, and of packages that import it, with one mutant at a time. If no test fails with a
// mutant, a test is missing, the code is not needed, or the mutant does not change the behavior.
//
//	go run ./internal/mutate -pkg ./ucp/internal/engine -n 40 -seed 1
//	go run ./internal/mutate -pkg ./ucp/internal/engine -users ./ucp
//
// All mutants are compiled into one test binary per package; the environment variable MUTANT selects one. mutate skips
// and lists tests that fail without a mutant, because the switches cost allocations. A baseline run records which mutants
// the tests reach: the others count as survived without a run. If the tests of a mutant print nothing for far longer than
// in the baseline, the mutant hangs and counts as caught.
//
// Mutants are numbered from 1. -ids runs only some of them, to continue a run that was interrupted or to try new
// tests. Seed, number and package must be the same as before.
//
//	go run ./internal/mutate -pkg ./ucp/internal/engine -seed 1 -ids 7,12-40
//
// See "Mutants" in CONTRIBUTING.md for how to read the result.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// options are the command-line options.
type options struct {
	pkg   string   // the package to change
	users []string // packages whose tests run with the mutants that the package's own tests do not catch
	n     int      // number of mutants
	seed  uint64
	ids   []int // mutants to run; empty means all
	list  bool
	slack time.Duration // time without output that a run may exceed slowFactor times the maximum of the baseline by
}

func main() {
	var o options
	var users, ids string
	flag.StringVar(&o.pkg, "pkg", "", "`package` to change, such as ./ucp/internal/engine")
	flag.StringVar(&users, "users", "", "`packages` whose tests run too, separated by commas")
	flag.IntVar(&o.n, "n", 40, "number of mutants")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the choice of mutants")
	flag.StringVar(&ids, "ids", "", "`numbers` of the mutants to run, such as 3,12-40; all if empty")
	flag.DurationVar(&o.slack, "slack", 10*time.Second, "`time` that a run may print nothing, beyond 4 times the longest silence of the baseline, before it hangs")
	flag.BoolVar(&o.list, "list", false, "list the mutants and run nothing")
	flag.Parse()
	if o.pkg == "" || flag.NArg() > 0 || o.n < 1 || o.n > maxMutants {
		flag.Usage()
		os.Exit(2)
	}
	if users != "" {
		o.users = strings.Split(users, ",")
	}
	var err error
	if o.ids, err = parseIDs(ids); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(2)
	}
	if _, err := measure(os.Stdout, o); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

// parseIDs parses numbers and ranges of numbers, separated by commas.
func parseIDs(s string) (ids []int, err error) {
	if s == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(s, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err1 := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		if err := errors.Join(err1, err2); err != nil || from < 1 || to < from || to > maxMutants {
			return nil, fmt.Errorf("numbers of mutants %q, want such as 3,12-40", part)
		}
		for id := from; id <= to; id++ {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// measure chooses mutants, runs the tests with each, and writes progress and the table to w.
func measure(w io.Writer, o options) ([]*mutant, error) {
	p, err := load(o.pkg)
	if err != nil {
		return nil, err
	}
	sites := p.find()
	chosen := choose(sites, o.n, o.seed)
	fmt.Fprintf(w, "%s: %d of %d mutants, seed %d\n", p.path, len(chosen), len(sites), o.seed)
	dir, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	overlay, err := p.instrument(filepath.Join(dir, "src"), chosen)
	if err != nil {
		return nil, err
	}
	if o.list {
		for _, m := range chosen {
			fmt.Fprintf(w, "%d/%d %v\n", m.id, len(chosen), m)
		}
		return chosen, nil
	}
	suites, err := buildSuites(dir, overlay, append([]string{o.pkg}, o.users...))
	if err != nil {
		return nil, err
	}
	for _, s := range suites {
		if err := s.baseline(dir); err != nil {
			return nil, err
		}
		fmt.Fprintf(w, "%s: %.1f s without a mutant, %d mutants reached\n", s.pkg, s.took.Seconds(), len(s.reached))
		if len(s.skipped) > 0 {
			fmt.Fprintf(w, "%s: left out, as they fail without a mutant: %s\n", s.pkg, strings.Join(s.skipped, " "))
		}
	}
	var tried []*mutant
	for _, m := range chosen {
		if len(o.ids) > 0 && !slices.Contains(o.ids, m.id) {
			continue
		}
		start := time.Now()
		m.try(suites, o.slack)
		fmt.Fprintf(w, "%d/%d %v: %v (%.1f s)\n", m.id, len(chosen), m, m.outcome, time.Since(start).Seconds())
		tried = append(tried, m)
	}
	return chosen, writeTable(w, tried)
}

// writeTable writes the mutants that survived, and the number of mutants of each outcome.
func writeTable(w io.Writer, all []*mutant) error {
	count := map[outcomeKind]int{}
	for _, m := range all {
		count[m.outcome.kind]++
	}
	fmt.Fprintf(w, "\n| outcome | mutants |\n|---|---|\n")
	for k := caughtByOwn; k <= unreached; k++ {
		fmt.Fprintf(w, "| %v | %d |\n", k, count[k])
	}
	tried := len(all) - count[notCompiled]
	caught := count[caughtByOwn] + count[caughtByUsers]
	fmt.Fprintf(w, "\ncaught %d of %d\n", caught, tried)
	for _, m := range all {
		if m.outcome.kind == survived || m.outcome.kind == unreached {
			fmt.Fprintf(w, "%d %v: %v\n", m.id, m, m.outcome)
		}
	}
	return nil
}
