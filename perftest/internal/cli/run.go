package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/perftest/internal/measure/affinity"
	"github.com/gucx/gucx/perftest/internal/measure/bench"
	"github.com/gucx/gucx/perftest/internal/measure/machine"
	"github.com/gucx/gucx/perftest/internal/measure/result"
	"github.com/gucx/gucx/perftest/internal/measure/tick"
	"github.com/gucx/gucx/perftest/internal/peers/launch"
	"github.com/gucx/gucx/perftest/internal/peers/oob"
	"github.com/gucx/gucx/perftest/internal/peers/session"
	"github.com/gucx/gucx/perftest/internal/peers/target"
	"github.com/gucx/gucx/perftest/internal/probes/counters"
	"github.com/gucx/gucx/perftest/internal/show/change"
	"github.com/gucx/gucx/perftest/internal/show/chart"
	"github.com/gucx/gucx/perftest/internal/show/meter"
	"github.com/gucx/gucx/perftest/internal/show/report"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

const loopFabric = string(softhca.FabricLoop)

// runLocal measures against a target that it starts itself.
func (s *settings) runLocal(cmd *cobra.Command) error {
	if s.batch != "" {
		return s.runBatch(cmd)
	}
	if s.peer != "" {
		return s.runWithUCX(cmd)
	}
	if s.threaded(cmd.Flags()) {
		return s.runThreads(cmd)
	}
	jobs, err := s.jobs()
	if err != nil {
		return err
	}
	return runJobs(cmd, jobs, func(j *job) error { return j.run(cmd) })
}

// readyJob is a job that has passed all checks.
func (s *settings) readyJob() (*job, error) {
	j, err := s.job()
	if err != nil {
		return nil, err
	}
	return j, j.check()
}

// run measures, with the type of target that the transport and the fabric need.
func (j *job) run(cmd *cobra.Command) error {
	switch {
	case j.loopback():
		return j.runLoopback(cmd)
	case j.plan.Fabric == loopFabric:
		return j.runInProcess(cmd)
	}
	return j.runWithChild(cmd)
}

// runLoopback makes each layer its own target.
func (j *job) runLoopback(cmd *cobra.Command) error {
	s := session.NewLoopback(cmd.Context(), j.config.Set())
	return errors.Join(j.measure(cmd, s, nil), s.Close())
}

// runInProcess serves the target from a goroutine.
func (j *job) runInProcess(cmd *cobra.Command) error {
	ctx, cancel := context.WithCancelCause(cmd.Context())
	defer cancel(nil)
	here, there, err := oob.Pipe()
	if err != nil {
		return err
	}
	set := j.config.Set()
	served := make(chan struct{})
	var failed error // valid once served is closed
	go func() {
		defer close(served)
		failed = target.Serve(ctx, there, set, target.Options{Beside: true})
	}()
	s, err := session.New(ctx, here, set, session.Options{Beside: true, Why: func() error {
		<-served
		return cmp.Or(failed, session.ErrEnded)
	}})
	if err == nil {
		err = errors.Join(j.measure(cmd, s, nil), s.Close())
	}
	cancel(nil)
	if <-served; err == nil && !errors.Is(failed, context.Canceled) {
		err = failed
	}
	return err
}

// runWithChild serves the target from a child process.
func (j *job) runWithChild(cmd *cobra.Command) (err error) {
	ctx, cancel := context.WithCancelCause(cmd.Context())
	defer cancel(nil)
	child, err := launch.Start(j.peerArgs(), func(err error) { cancel(err) })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, child.Close()) }()
	s, err := session.New(ctx, child.Conn, j.config.Set(), session.Options{Why: func() error { return exitOf(child) }})
	if err != nil {
		return err
	}
	var freezer bench.Freezer
	if j.settings.stopPeer {
		freezer = child
	}
	return errors.Join(j.measure(cmd, s, freezer), s.Close())
}

// exitOf waits for the exit of a target that has closed the connection, and returns its error.
func exitOf(child *launch.Child) error {
	ctx, cancel := context.WithTimeout(context.Background(), launch.ExitTimeout)
	defer cancel()
	return cmp.Or(child.Exited(ctx), session.ErrEnded)
}

// peerArgs start a target with the same settings.
func (j *job) peerArgs() []string {
	args := []string{peerName}
	if len(j.cpus) == 2 {
		args = append(args, "--cpu", strconv.Itoa(j.cpus[1]))
	}
	return args
}

// measure runs the plan over a session and writes the results, also partial ones after a failure.
func (j *job) measure(cmd *cobra.Command, s *session.Session, freezer bench.Freezer) error {
	for _, text := range j.remarks {
		cmd.PrintErrln(cmd.Root().Name() + ": " + text)
	}
	ctx := s.Context()
	clock, err := tick.Calibrate()
	if err != nil {
		return err
	}
	run := j.describe(machine.Describe(), machine.Commit(ctx), clock)
	if j.settings.probe {
		if run.Machine.ProbeNS, err = machine.Probe(clock, j.cpus[0], j.cpus[1]); err != nil {
			return err
		}
	}
	progress := meter.New(os.Stderr, j.plan.Cells()*j.plan.Rounds, j.settings.quiet)
	defer progress.Close()
	r := &bench.Runner{Plan: j.plan, Session: s, Clock: clock, Freezer: freezer, Step: progress.Step, Stalls: cmd.ErrOrStderr()}
	var records []result.Record
	err = j.pinned(func() (err error) {
		load := machine.WatchLoad(j.targetProcess(s.PID()))
		records, err = r.Run(ctx)
		run.Load = load.Load()
		if err == nil && j.settings.counters != "" {
			run.Counters, records, err = j.count(ctx, r, records)
		}
		return err
	})
	progress.Close()
	if err = s.Explain(err); err != nil && len(records) == 0 {
		return err
	}
	run.Partial = partial(cmd.Context(), err)
	write := j.write
	if j.emit != nil {
		write = j.emit
	}
	if failed := write(cmd.OutOrStdout(), run, records); failed != nil {
		return errors.Join(err, failed)
	}
	if line := omittedRows(r.Skips()); line != "" {
		cmd.PrintErrln(cmd.Root().Name() + ": " + line)
	}
	return err
}

// omittedRows returns a remark on the rows that could not be measured, with the reason; empty for none.
func omittedRows(skips []bench.Skip) string {
	if len(skips) == 0 {
		return ""
	}
	var why []string
	for _, s := range skips {
		text := s.Test + ", " + s.Layer
		if limit := new(layer.LimitError); errors.As(s.Why, &limit) {
			text += ": " + limit.Limit
		}
		if !slices.Contains(why, text) {
			why = append(why, text)
		}
	}
	return fmt.Sprintf("%d rows omitted (%s)", len(skips), strings.Join(why, "; "))
}

// count opens a source of counters after the timed measurements. It returns the source, and the records with counts.
func (j *job) count(ctx context.Context, r *bench.Runner, records []result.Record) (_ *result.CounterSource, counted []result.Record, err error) {
	c, err := counters.Open(j.settings.counters, otherProcess(r.Session.PID()))
	if err != nil {
		return nil, records, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	about := c.Source()
	counted, err = r.Count(ctx, c, records)
	return &about, counted, err
}

// otherProcess returns pid, or 0 if pid is this process.
func otherProcess(pid int) int {
	if pid == os.Getpid() {
		return 0
	}
	return pid
}

// targetProcess is otherProcess for the target, or 0 if it may be on another host.
func (j *job) targetProcess(pid int) int {
	if j.remote {
		return 0
	}
	return otherProcess(pid)
}

// childTarget reports whether the target is a child process on this host, bound to cpus[1]. Otherwise the target is
// this process, or a server, which chooses its CPU itself.
func (j *job) childTarget() bool {
	return !j.remote && !j.loopback() && j.plan.Fabric != loopFabric
}

// pinned runs f on a thread of its own, bound to the initiator's CPU if one is chosen. The other threads of this
// process run on CPUs that the measurement does not use, or on the initiator's if there are none. A target that is a
// goroutine of this process runs on these CPUs too.
func (j *job) pinned(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if len(j.cpus) == 0 {
		return f()
	}
	measureBeforePinning()
	allowed, err := affinity.Allowed()
	if err != nil {
		return err
	}
	measuring := j.cpus
	if !j.childTarget() {
		measuring = j.cpus[:1]
	}
	rest := restCPUs(allowed, measuring)
	// The next line of a batch may use all CPUs again. Errors are ignored: the CPUs were permitted before.
	defer func() { _ = affinity.Process(allowed) }()
	if err := affinity.Process(rest); err != nil {
		return err
	}
	undo, err := affinity.Thread(j.cpus[0])
	if err != nil {
		return err
	}
	defer undo()
	return f()
}

// restCPUs are the CPUs of the threads that do not measure: those of allowed that are not in cpus, or cpus[0] if there
// are none. The Go runtime interrupts a goroutine every 10 ms, and if it is locked to its thread another thread must
// run before it continues. On the CPU of the target, which polls, that thread would wait for its turn, and delay the
// target.
func restCPUs(allowed, cpus []int) []int {
	rest := slices.DeleteFunc(slices.Clone(allowed), func(c int) bool { return slices.Contains(cpus, c) })
	if len(rest) == 0 {
		return cpus[:1]
	}
	return rest
}

// write writes the results. Plots and saved files are not written for partial results: a plot cannot show that it is
// incomplete, and partial results must not be compared with complete ones.
func (j *job) write(w io.Writer, run result.Run, records []result.Record) error {
	if err := report.Write(w, j.settings.output, run, records); err != nil {
		return err
	}
	if run.Incomplete != "" {
		return nil
	}
	if j.settings.save != "" {
		if err := change.Append(j.settings.save, run, records); err != nil {
			return err
		}
	}
	if j.settings.plot == "" {
		return nil
	}
	return chart.Save(j.settings.plot, run, records)
}
