package main

import (
	"bytes"
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

// outcomeKind is the outcome of the runs with a mutant.
type outcomeKind int

const (
	notRun        outcomeKind = iota
	caughtByOwn               // by a test of the package
	caughtByUsers             // by a test of a package that imports it
	survived                  // no test failed
	unreached                 // no test executes it
	notCompiled               // the changed code does not compile
)

// String returns the name of the outcome in the table.
func (k outcomeKind) String() string {
	return [...]string{"not run", "caught by the package's tests", "caught by users' tests", "survived", "not reached by any test", "not compiled"}[k]
}

type outcome struct {
	kind outcomeKind
	by   string // the test that failed, or the reason
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
	dir     string // directory of the package, in which its tests run
	bin     string
	took    time.Duration // duration of the baseline run
	printed []byte        // output of the latest run
	silence time.Duration // longest time without output in the baseline run
	reached map[int]bool  // ids of the mutants that the tests execute
	skipped []string      // tests that fail without a mutant: the switches cost allocations and instructions
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

// A suite with a mutant hangs if its time without output, or its duration, exceeds slowFactor times that of the baseline
// run by more than the slack. Each test prints a line when it begins and ends, so a mutant that hangs in one test costs
// little more time than that test.
const (
	slowFactor    = 4
	baselineLimit = 10 * time.Minute
)

// output collects the output of a process and measures the longest time without output.
type output struct {
	bytes.Buffer
	last    time.Time     // time of the last write
	longest time.Duration // longest time between two writes
	wrote   chan struct{} // receives a value after a write; capacity 1
}

func newOutput() *output { return &output{last: time.Now(), wrote: make(chan struct{}, 1)} }

// Write implements io.Writer. Only one goroutine may call it.
func (o *output) Write(b []byte) (int, error) {
	now := time.Now()
	o.longest, o.last = max(o.longest, now.Sub(o.last)), now
	select {
	case o.wrote <- struct{}{}:
	default:
	}
	return o.Buffer.Write(b)
}

// baseline runs the tests without a mutant. It adds failed tests to skipped and runs the others again, which must pass.
func (s *suite) baseline(dir string) error {
	trace := filepath.Join(dir, filepath.Base(s.bin)+".trace")
	for {
		if err := os.WriteFile(trace, make([]byte, traceLen), 0o666); err != nil {
			return err
		}
		start := time.Now()
		failed, by, silence := s.run(baselineLimit, baselineLimit, "MUTANT_TRACE="+trace, "-test.failfast=false")
		if s.took, s.silence = time.Since(start), silence; !failed {
			break
		}
		tests := topFailure.FindAllSubmatch(s.printed, -1)
		if len(tests) == 0 || len(s.skipped) > 0 {
			return fmt.Errorf("the tests of %s fail without a mutant: %s", s.pkg, by)
		}
		for _, m := range tests {
			s.skipped = append(s.skipped, string(m[1]))
		}
	}
	b, err := os.ReadFile(trace)
	for id := range b {
		if b[id] != 0 {
			s.reached[id] = true
		}
	}
	return err
}

// try runs the suites until one fails with the mutant.
func (m *mutant) try(suites []*suite, slack time.Duration) {
	if m.outcome.kind == notCompiled {
		return
	}
	m.outcome.kind = unreached
	for i, s := range suites {
		if !s.reached[m.id] {
			continue
		}
		if caught, by, _ := s.run(slowFactor*s.took+slack, slowFactor*s.silence+slack, "MUTANT="+strconv.Itoa(m.id)); caught {
			m.outcome = outcome{caughtByOwn, by}
			if i > 0 {
				m.outcome = outcome{caughtByUsers, s.pkg + " " + by}
			}
			return
		}
		m.outcome.kind = survived
	}
}

var topFailure = regexp.MustCompile(`(?m)^--- FAIL: (\w+)`)

var firstFailure = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)|^(panic: .*|fatal error: .*|.* leaked.*)`)

// run runs the tests until the first failure. failed is true if a test failed, the run took longer than most, or it
// printed nothing for mostSilent; why is the reason. silence is the longest time without output. run kills the tests and
// all their child processes before it returns.
func (s *suite) run(most, mostSilent time.Duration, env string, flags ...string) (failed bool, why string, silence time.Duration) {
	if len(s.skipped) > 0 {
		flags = append(flags, "-test.skip=^("+strings.Join(s.skipped, "|")+")$")
	}
	cmd := exec.Command(s.bin, append([]string{"-test.short", "-test.failfast", "-test.timeout=0", "-test.v"}, flags...)...)
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), env, "RAPID_NOFAILFILE=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	out := newOutput()
	cmd.Stdout, cmd.Stderr = out, out
	cmd.WaitDelay = time.Second // for pipes that child processes of the tests still have open
	if err := cmd.Start(); err != nil {
		return true, err.Error(), 0
	}
	end := func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // ESRCH: all have exited
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	limit, silent := time.NewTimer(most), time.NewTimer(mostSilent)
	defer limit.Stop()
	defer silent.Stop()
	var err error
	for running, hung := true, false; running; {
		select {
		case err = <-ended:
			running = false
		case <-out.wrote:
			silent.Reset(mostSilent)
		case <-silent.C:
			hung = true
		case <-limit.C:
			hung = true
		}
		if hung {
			end()
			<-ended
			return true, "hangs", 0
		}
	}
	end()
	s.printed = out.Bytes()
	silence = max(out.longest, time.Since(out.last))
	if err == nil {
		return false, "", silence
	}
	if m := firstFailure.FindSubmatch(s.printed); m != nil {
		return true, string(bytes.TrimSpace(bytes.Join(m[1:], nil))), silence
	}
	return true, err.Error(), silence
}
