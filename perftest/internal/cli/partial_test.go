package cli

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/perftest/internal/measure/bench"
	"github.com/gucx/gucx/perftest/internal/measure/result"
	"github.com/gucx/gucx/perftest/internal/show/sheet"
	"github.com/gucx/gucx/perftest/internal/studies/sp"
)

// longSecond are flags of a run whose first test is short, as a round is one operation, and whose second test does not
// end, as a round is a window.
var longSecond = strings.Fields("-x sm --layers uct -c off -t put_lat,put_bw -s 8 -n 4000 --rounds 4000 -w 1 -W 262144")

// output is a process and its output.
type output struct {
	*running
	out bytes.Buffer // complete when the process has ended
}

// startFor starts perftest and stores its output.
func startFor(t *testing.T, args ...string) *output {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { r.Close() })
	p := &output{running: newRunning(rerun(w, args...), r)}
	p.Stdout = &p.out
	p.begin(t, w)
	return p
}

// inSecondTest starts longSecond and returns when the second test runs.
func inSecondTest(t *testing.T, args ...string) *output {
	p := startFor(t, with(args, longSecond...)...)
	p.line(t, "put_bw")
	return p
}

// requireFirstTest checks the results of longSecond in a format: the rows of put_lat are complete, there are no others,
// and the reason is in formats that have a place for it.
func requireFirstTest(t *testing.T, format, out, why string) {
	t.Helper()
	assert.NotContains(t, out, "put_bw,", "of CSV")
	switch format {
	case "json":
		run, recs := records(t, out)
		assert.Contains(t, run.Incomplete, why)
		require.Len(t, recs, 1)
		assert.Equal(t, "put_lat", recs[0].Test)
		assert.Equal(t, 4000, recs[0].Ops)
	case "csv":
		rows, err := csv.NewReader(strings.NewReader(out)).ReadAll()
		require.NoError(t, err)
		require.Len(t, rows, 2)
		assert.Equal(t, "put_lat", rows[1][3])
	default:
		words := strings.Join(strings.Fields(out), " ")
		assert.Contains(t, words, "INCOMPLETE, without what was not measured to its end: "+why)
		assert.Contains(t, out, "put_lat")
		assert.NotContains(t, out, "MiB/s", "a column of put_bw")
		assert.True(t, strings.HasSuffix(out, "\n"))
	}
}

// TestPartial_Interrupt: after a signal all formats have the measured rows, and the exit status is that of the signal.
func TestPartial_Interrupt(t *testing.T) {
	for _, format := range sheet.Formats() {
		t.Run(format, func(t *testing.T) {
			if format != "json" {
				testenv.SkipShort(t, furtherRun)
			}
			t.Parallel()
			p := inSecondTest(t, "-o", format)
			target := onlyChild(t, p.Process.Pid)
			require.NoError(t, p.Process.Signal(os.Interrupt))
			code, stderr := p.wait(t)
			assert.Equal(t, 130, code, stderr)
			assert.Contains(t, stderr, "perftest: interrupt\n")
			requireFirstTest(t, format, p.out.String(), "interrupt")
			requireGone(t, target)
		})
	}
}

// TestPartial_PeerKilled: they also have these rows when the other side dies; the exit status is that of a failure.
func TestPartial_PeerKilled(t *testing.T) {
	testenv.SkipShort(t, furtherRun)
	t.Parallel()
	p := inSecondTest(t, "-o", "json")
	require.NoError(t, syscall.Kill(onlyChild(t, p.Process.Pid), syscall.SIGKILL))
	code, stderr := p.wait(t)
	assert.Equal(t, exitFailure, code, stderr)
	assert.Contains(t, stderr, "peer process exited: signal: killed")
	requireFirstTest(t, "json", p.out.String(), "peer process exited: signal: killed")
}

// TestPartial_ServerKilled: a client prints the measured rows.
func TestPartial_ServerKilled(t *testing.T) {
	testenv.SkipShort(t, furtherRun)
	t.Parallel()
	server, addr := serving(t)
	p := inSecondTest(t, "client", addr, "-o", "csv")
	require.NoError(t, server.Process.Kill())
	code, stderr := p.wait(t)
	assert.Equal(t, exitFailure, code, stderr)
	requireFirstTest(t, "csv", p.out.String(), "")
}

// TestPartial_NoPlot: partial results are not plotted, because a plot cannot show that it is incomplete.
func TestPartial_NoPlot(t *testing.T) {
	testenv.SkipShort(t, furtherRun)
	t.Parallel()
	plot := t.TempDir() + "/a.svg"
	p := startFor(t, append(longSecond, "-s", "8,16", "--plot", plot)...)
	p.line(t, "put_bw")
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	code, stderr := p.wait(t)
	assert.Equal(t, 143, code, stderr)
	assert.NotEmpty(t, p.out.String())
	assert.NoFileExists(t, plot)
}

// TestPartial_NothingMeasured: without results the output is empty.
func TestPartial_NothingMeasured(t *testing.T) {
	t.Parallel()
	p := startFor(t, append(hours, "-t", "put_lat", "-x", "sm")...)
	p.line(t, "put_lat")
	require.NoError(t, p.Process.Signal(os.Interrupt))
	code, stderr := p.wait(t)
	assert.Equal(t, 130, code, stderr)
	assert.Empty(t, p.out.String())
}

// TestPartial_Batch: the output has the completed lines and the measured rows of the last one.
func TestPartial_Batch(t *testing.T) {
	testenv.SkipShort(t, furtherRun)
	t.Parallel()
	file := t.TempDir() + "/batch"
	require.NoError(t, os.WriteFile(file, []byte("first -t put_lat\nsecond -t put_lat,put_bw\nthird -t put_lat\n"), 0o600))
	p := startFor(t, append(longSecond, "-o", "json", "-b", file)...)
	p.line(t, "put_bw")
	require.NoError(t, p.Process.Signal(os.Interrupt))
	code, stderr := p.wait(t)
	assert.Equal(t, 130, code, stderr)
	lines := strings.SplitAfter(p.out.String(), "\n")
	require.Len(t, lines, 2+2+1, "%s", p.out.String())
	run, recs := records(t, lines[0]+lines[1])
	assert.Empty(t, run.Incomplete)
	assert.Len(t, recs, 1)
	requireFirstTest(t, "json", lines[2]+lines[3], "interrupt")
}

// TestPartial_FailedTransport: a transport that fails does not remove the others from the table.
func TestPartial_FailedTransport(t *testing.T) {
	testenv.SkipShort(t, furtherRun)
	args := strings.Fields("-q -x self,ud,sm -t put_lat -s 8 -n 8 --rounds 2 -o")
	code, out, errs := perftest(t, with(args, "json")...)
	assert.Equal(t, exitFailure, code, errs)
	assert.Contains(t, errs, "perftest: ud: put_lat of 8 bytes: uct: ")
	run, recs := records(t, out)
	assert.Equal(t, "self,sm", run.Settings.Transport)
	assert.Contains(t, run.Incomplete, "ud: put_lat of 8 bytes: uct: ")
	assert.Equal(t, []string{"self", "sm"}, result.Transports(recs))

	code, out, errs = perftest(t, with(args, "table")...)
	assert.Equal(t, exitFailure, code, errs)
	assert.Contains(t, strings.Join(strings.Fields(out), " "), "INCOMPLETE, without what was not measured to its end: ud: put_lat")
	assert.Contains(t, out, "sm uct")
}

// TestRunJobs_StopsAfterWrongDataAndInterrupt: wrong data and a signal end a run of several transports. The output has
// earlier results, but not the wrong ones.
func TestRunJobs_StopsAfterWrongDataAndInterrupt(t *testing.T) {
	interrupted := &signalError{syscall.SIGINT}
	for _, c := range []struct {
		fails  error
		signal bool
		want   []string
		code   int
	}{
		{errors.New("broken"), false, []string{"self", "tcp"}, exitFailure},
		{fmt.Errorf("%w: byte 3", bench.ErrData), false, []string{"self"}, exitData},
		{interrupted, true, []string{"self"}, 130},
	} {
		s := parsedSettings(t, "-x self,sm,tcp -t put_lat -s 8 -o json")
		jobs, err := s.jobs()
		require.NoError(t, err)
		ctx, cancel := context.WithCancelCause(t.Context())
		var out bytes.Buffer
		cmd := &cobra.Command{}
		cmd.SetContext(ctx)
		cmd.SetOut(&out)
		err = runJobs(cmd, jobs, func(j *job) error {
			if j.plan.Transport == "sm" {
				if c.signal {
					cancel(c.fails)
				}
				return c.fails
			}
			return j.emit(io.Discard, result.Run{Settings: result.Settings{Transport: j.plan.Transport}},
				[]result.Record{{Transport: j.plan.Transport}})
		})
		cancel(nil)
		assert.Equal(t, c.code, exitCode(err), "%v", c.fails)
		run, recs := records(t, out.String())
		assert.Equal(t, c.want, result.Transports(recs))
		assert.Contains(t, run.Incomplete, c.fails.Error())
	}
}

// studyCase is a study whose first rows are short, and whose later rows take longer than any test.
type studyCase struct {
	name, args string
	second     string // part of a progress line after the first rows
	first      string // part of each of the first rows
}

var studyCases = []studyCase{
	{"ranks", "ranks --ranks 2 -x sm -t pingpong -s 8,64m -n 1000 -w 1", "pingpong 67108864 B", `{"test":"pingpong","size":8,"protocol":"auto",`},
	{"threads", "-x sm -T 1 -t put_lat,put_mr -s 8 -n 1000 --rounds 1000 -w 1 -W 2097152", "put_mr", `{"test":"put_lat","size":8,"mode":"single",`},
	{"overlap", "overlap --protocols rget --sides isend -s 8,64m -n 300 -w 8 --rounds 1", "100%", `{"Side":"isend","Protocol":"rget","Size":8,`},
}

// TestPartial_Studies: after a signal the output has the measured rows, with the remark that they are incomplete, and no
// process remains.
func TestPartial_Studies(t *testing.T) {
	for _, c := range studyCases {
		t.Run(c.name, func(t *testing.T) {
			if c.name != studyCases[0].name {
				testenv.SkipShort(t, furtherRun)
			}
			t.Parallel()
			p := startFor(t, append(strings.Fields(c.args), "-o", "json")...)
			p.line(t, c.second)
			children := childrenOf(t, p.Process.Pid)
			require.NoError(t, p.Process.Signal(os.Interrupt))
			code, stderr := p.wait(t)
			assert.Equal(t, 130, code, stderr)
			assert.Equal(t, 1, strings.Count(stderr, "perftest: "), "%s", stderr)
			assert.Contains(t, stderr, "perftest: interrupt\n")
			lines := strings.Split(strings.TrimSpace(p.out.String()), "\n")
			require.GreaterOrEqual(t, len(lines), 2, "%s", lines)
			assert.Contains(t, lines[0], `"incomplete":"interrupt"`)
			for _, row := range lines[1:] {
				assert.Contains(t, row, c.first)
			}
			for _, pid := range children {
				requireGone(t, pid)
			}
		})
	}
}

// TestPartial_Headings: tables have a remark if they are incomplete.
func TestPartial_Headings(t *testing.T) {
	p := result.Partial{Incomplete: "interrupt"}
	for _, lines := range [][]string{
		ranksConditions{Partial: p}.lines(), spConditions{Partial: p}.lines(), threadConditions{Partial: p}.lines(),
		messageConditions{Partial: p}.lines(), conditions{Partial: p}.lines(1),
	} {
		assert.Equal(t, p.Lines()[0], lines[len(lines)-1])
	}
}

// rankOf finds the process of a rank: the kernel lists children by the thread that has forked them, which may differ for
// each.
func rankOf(t *testing.T, pids []int, rank int) int {
	t.Helper()
	for _, pid := range pids {
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		require.NoError(t, err)
		if slices.Contains(strings.Split(string(env), "\x00"), fmt.Sprintf("PMI_RANK=%d", rank)) {
			return pid
		}
	}
	t.Fatalf("none of %v is rank %d", pids, rank)
	return 0
}

// TestPartial_RankKilled: rank 0 prints the measured rows, and the reason.
func TestPartial_RankKilled(t *testing.T) {
	testenv.SkipShort(t, furtherRun)
	t.Parallel()
	c := studyCases[0]
	p := startFor(t, append(strings.Fields(c.args), "-o", "json")...)
	p.line(t, c.second)
	require.NoError(t, syscall.Kill(rankOf(t, allChildren(t, p.Process.Pid, 2), 1), syscall.SIGKILL))
	code, stderr := p.wait(t)
	assert.Equal(t, exitFailure, code, stderr)
	lines := strings.Split(strings.TrimSpace(p.out.String()), "\n")
	require.Len(t, lines, 2)
	assert.Regexp(t, `"incomplete":"pingpong of 67108864 bytes: .*rank 1`, lines[0])
	assert.Contains(t, lines[1], `"test":"pingpong","size":8,`)
}

// TestPartial_SP: the output has the completed protocols and the reason of the failure, but not the failed protocol.
func TestPartial_SP(t *testing.T) {
	s := spFlags{class: "S", ranks: 4, protocols: []string{"am", "put_zcopy"}, output: "json"}
	study, err := s.study()
	require.NoError(t, err)
	var out bytes.Buffer
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	cmd.SetOut(&out)
	wrong := fmt.Errorf("put_zcopy: %w", sp.ErrVerify)
	assert.Equal(t, exitData, exitCode(s.write(cmd, study, []sp.Row{{Protocol: "am"}}, "processes", wrong)))
	assert.Contains(t, out.String(), `"incomplete":"put_zcopy: `+sp.ErrVerify.Error())
	assert.Equal(t, 2, strings.Count(out.String(), "\n"))
	out.Reset()
	assert.Equal(t, wrong, s.write(cmd, study, nil, "processes", wrong))
	assert.Empty(t, out.String(), "output without results")
}

// TestFollowSignals: the two signals of timeout(1) count as one. A later one ends the process.
func TestFollowSignals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signals, done := make(chan os.Signal, 1), make(chan struct{})
		var ended atomic.Int64
		var left atomic.Bool
		end, leave := func(s syscall.Signal) { ended.Store(int64(s)) }, func() { left.Store(true) }
		go followSignals(signals, done, end, leave)
		signals <- syscall.SIGTERM
		synctest.Wait()
		assert.Equal(t, int64(syscall.SIGTERM), ended.Load())
		signals <- syscall.SIGTERM
		time.Sleep(sameSignal - 1)
		synctest.Wait()
		assert.False(t, left.Load())
		time.Sleep(2 * time.Nanosecond)
		synctest.Wait()
		assert.True(t, left.Load())

		left.Store(false)
		go followSignals(make(chan os.Signal), done, end, leave)
		close(done)
		synctest.Wait()
		assert.False(t, left.Load())
	})
}
