// Command mutate measures how much the tests of a package notice. It makes small changes to the package, the
// mutants, one at a time, and runs the package's tests, and those of packages that import it, with each. A
// mutant that no test notices shows a test that is missing, code that is not needed, or a change that makes no
// difference.
//
//	go run ./internal/mutate -pkg ./ucp/internal/engine -n 40 -seed 1
//	go run ./internal/mutate -pkg ./ucp/internal/engine -users ./ucp
//
// All mutants are compiled into one test binary per package; the environment variable MUTANT selects one. A
// baseline run records which mutants the tests reach: the others count as survived without a run. A mutant whose
// tests take far longer than the baseline hangs, and counts as caught.
//
// See "Mutants" in CONTRIBUTING.md for how to read the result.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// options is what the command line says.
type options struct {
	pkg   string   // the package to change
	users []string // packages whose tests are run for what the package's own do not notice
	n     int      // mutants
	seed  uint64
	list  bool
	slack time.Duration // what a run may take longer than slowFactor times the baseline
}

func main() {
	var o options
	var users string
	flag.StringVar(&o.pkg, "pkg", "", "`package` to change, such as ./ucp/internal/engine")
	flag.StringVar(&users, "users", "", "`packages` whose tests run too, separated by commas")
	flag.IntVar(&o.n, "n", 40, "number of mutants")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the choice of mutants")
	flag.DurationVar(&o.slack, "slack", 10*time.Second, "`time` that a run may take beyond 4 times the baseline before it hangs")
	flag.BoolVar(&o.list, "list", false, "list the mutants and run nothing")
	flag.Parse()
	if o.pkg == "" || flag.NArg() > 0 || o.n < 1 {
		flag.Usage()
		os.Exit(2)
	}
	if users != "" {
		o.users = strings.Split(users, ",")
	}
	if _, err := measure(os.Stdout, o); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
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
			fmt.Fprintln(w, m)
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
	}
	for i, m := range chosen {
		m.try(suites, o.slack)
		fmt.Fprintf(w, "%d/%d %v: %v\n", i+1, len(chosen), m, m.outcome)
	}
	return chosen, writeTable(w, chosen)
}

// writeTable writes what survived, and the sums.
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
			fmt.Fprintf(w, "%v: %v\n", m, m.outcome)
		}
	}
	return nil
}
