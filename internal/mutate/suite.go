package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// outcomeKind is what became of a mutant.
type outcomeKind int

const (
	notRun        outcomeKind = iota
	caughtByOwn               // by a test of the package
	caughtByUsers             // by a test of a package that imports it
	survived                  // no test failed
	unreached                 // no test executes it
	notCompiled               // it is no mutant
)

// String is the row in the table.
func (k outcomeKind) String() string {
	return [...]string{"not run", "caught by the package's tests", "caught by users' tests", "survived", "not reached by any test", "not compiled"}[k]
}

type outcome struct {
	kind outcomeKind
	by   string // the test that failed, or what happened
}

func (v outcome) String() string {
	if v.by == "" {
		return v.kind.String()
	}
	return fmt.Sprintf("%v: %s", v.kind, v.by)
}

// suite is the tests of a package, compiled with all mutants.
type suite struct {
	pkg     string
	dir     string // of the package, in which its tests run
	bin     string
	took    time.Duration // without a mutant
	reached map[int]bool  // ids of the mutants that the tests execute
}

// buildSuites compiles the tests of packages.
func buildSuites(dir, overlay string, pkgs []string) (all []*suite, err error) {
	for i, p := range pkgs {
		s := &suite{pkg: p, bin: filepath.Join(dir, fmt.Sprintf("suite%d.test", i)), reached: map[int]bool{}}
		at, err := goCommand("list", "-f", "{{.Dir}}", p)
		if err != nil {
			return nil, err
		}
		s.dir = strings.TrimSpace(string(at))
		if _, err := goCommand("test", "-c", "-vet=off", "-overlay", overlay, "-o", s.bin, p); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// A suite with a mutant that takes longer than slowFactor times as long as without, and some slack, hangs.
const (
	slowFactor    = 4
	baselineLimit = 10 * time.Minute
)

// baseline runs the tests without a mutant, which must pass.
func (s *suite) baseline(dir string) error {
	trace := filepath.Join(dir, filepath.Base(s.bin)+".trace")
	start := time.Now()
	if caught, by := s.run(baselineLimit, "MUTANT_TRACE="+trace); caught {
		return fmt.Errorf("the tests of %s fail without a mutant: %s", s.pkg, by)
	}
	s.took = time.Since(start)
	b, err := os.ReadFile(trace)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, line := range strings.Fields(string(b)) {
		if id, err := strconv.Atoi(line); err == nil {
			s.reached[id] = true
		}
	}
	return err
}

// try runs the suites until one notices the mutant.
func (m *mutant) try(suites []*suite, slack time.Duration) {
	if m.outcome.kind == notCompiled {
		return
	}
	m.outcome.kind = unreached
	for i, s := range suites {
		if !s.reached[m.id] {
			continue
		}
		if caught, by := s.run(slowFactor*s.took+slack, "MUTANT="+strconv.Itoa(m.id)); caught {
			m.outcome = outcome{caughtByOwn, by}
			if i > 0 {
				m.outcome = outcome{caughtByUsers, s.pkg + " " + by}
			}
			return
		}
		m.outcome.kind = survived
	}
}

var firstFailure = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)|^(panic: .*|fatal error: .*|.* leaked.*)`)

// run runs the tests until the first fails. It reports whether they failed or took longer than limit,
// which ends them and all processes that they have started, and says why.
func (s *suite) run(limit time.Duration, env string) (failed bool, why string) {
	cmd := exec.Command(s.bin, "-test.short", "-test.failfast", "-test.timeout=0")
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), env, "RAPID_NOFAILFILE=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second // for pipes that processes of the tests still have
	if err := cmd.Start(); err != nil {
		return true, err.Error()
	}
	end := func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // ESRCH: all have ended
	hung := false
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var err error
	select {
	case err = <-ended:
	case <-time.After(limit):
		hung = true
		end()
		err = <-ended
	}
	end()
	switch {
	case hung:
		return true, "hangs"
	case err == nil:
		return false, ""
	}
	if m := firstFailure.FindSubmatch(out.Bytes()); m != nil {
		return true, string(bytes.TrimSpace(bytes.Join(m[1:], nil)))
	}
	return true, err.Error()
}
