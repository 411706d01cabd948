package cli

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/perftest/internal/measure/affinity"
	"github.com/gucx/gucx/perftest/internal/measure/bench"
	"github.com/gucx/gucx/perftest/internal/measure/result"
	"github.com/gucx/gucx/perftest/internal/show/sheet"
	"github.com/gucx/gucx/ucp/ucpgroup"
)

// asPerftest makes the test binary run perftest if its first argument is a flag.
const asPerftest = "PERFTEST_TEST_MAIN"

// TestMain makes a process that a command starts run perftest, with any command: the arguments of go test begin with a
// flag. Otherwise the child would run all tests, which start children.
func TestMain(m *testing.M) {
	if os.Getenv(asPerftest) != "" || len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		os.Exit(Program{}.Run(os.Args[1:], os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}

// quick are flags of a short run.
var quick = []string{"-q", "-n", "64", "-w", "16", "--rounds", "2", "-W", "16", "-s", "8,2k"}

// furtherRun is the reason why -short skips runs of processes that spin: other packages test the same code, and with
// the race detector some such runs take minutes.
const furtherRun = "one more run of two processes"

// TestBothDirections: messages are sent in both directions at the same time, inline and from registered memory, with
// correct data.
func TestBothDirections(t *testing.T) {
	code, out, errs := perftest(t, with(quick, "-x", "rc", "-t", "am_bibw,tag_bibw", "-o", "csv")...)
	require.Equal(t, exitOK, code, errs)
	for _, want := range []string{"verbs,rc,shm,am_bibw,2048,", "uct,rc,shm,am_bibw,8,", "ucp,rc,shm,tag_bibw,2048,"} {
		assert.Contains(t, out, want)
	}
}

// perftest runs Program in this process; the target is another process.
func perftest(t *testing.T, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = Program{}.Run(args, &out, &errs)
	return code, out.String(), errs.String()
}

// refuses runs invalid commands: each must fail with exitUsage and an error that contains the text of its map entry.
// Each command begins with before.
func refuses(t *testing.T, before string, reasons map[string]string) {
	for args, reason := range reasons {
		code, _, errs := perftest(t, strings.Fields(before+" "+args)...)
		assert.Equal(t, exitUsage, code, "%s: %s", args, errs)
		assert.Contains(t, errs, reason, args)
	}
}

func with(base []string, more ...string) []string {
	return append(append([]string{}, base...), more...)
}

// records parses JSON output.
func records(t *testing.T, text string) (run result.Run, recs []result.Record) {
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(&run))
	for d.More() {
		var r result.Record
		require.NoError(t, d.Decode(&r))
		recs = append(recs, r)
	}
	return run, recs
}

func TestMain_ComparesTheLayersBetweenTwoProcesses(t *testing.T) {
	code, out, errs := perftest(t, with(quick, "-o", "json")...)
	require.Equal(t, exitOK, code, errs)
	assert.Empty(t, errs)
	run, recs := records(t, out)
	assert.Equal(t, "softhca0", run.Settings.Device)
	assert.NotEmpty(t, run.Commit)
	require.Len(t, recs, 3*2*3, "tests, sizes, layers")
	for _, r := range recs {
		assert.Equal(t, "rc", r.Transport)
		assert.Equal(t, "shm", r.Fabric)
		assert.Positive(t, r.P50NS, "%+v", r)
		assert.Positive(t, r.MsgPerS, "%+v", r)
	}
}

// TestMain_RestoresCPUAffinity: each line of a batch may use all CPUs.
func TestMain_RestoresCPUAffinity(t *testing.T) {
	testenv.SkipShort(t, furtherRun)
	before, err := affinity.Allowed()
	require.NoError(t, err)
	code, _, errs := perftest(t, with(quick, "-t", "put_lat")...)
	require.Equal(t, exitOK, code, errs)
	after, err := affinity.Allowed()
	require.NoError(t, err)
	assert.Equal(t, before, after)
}

func TestMain_EveryTestWithTheTargetStopped(t *testing.T) {
	testenv.SkipShort(t, furtherRun)
	code, out, errs := perftest(t, with(quick, "-o", "json", "-t", "all", "--stop-peer")...)
	require.Equal(t, exitOK, code, errs)
	run, recs := records(t, out)
	assert.True(t, run.Settings.StopPeer)
	seen := map[string]int{}
	for _, r := range recs {
		seen[r.Test]++
	}
	for _, test := range bench.Tests() {
		assert.Equal(t, !test.Kind.TwoSided(), seen[test.Name] > 0, test.Name)
	}
}

func TestMain_LoopFabricAndChosenLayers(t *testing.T) {
	code, out, errs := perftest(t, with(quick, "-o", "json", "-f", "loop", "--layers", "ucp,verbs", "-t", "put_lat", "-c", "off")...)
	require.Equal(t, exitOK, code, errs)
	run, recs := records(t, out)
	assert.Equal(t, []string{"verbs", "ucp"}, run.Settings.Layers, "in the order of layers")
	assert.Empty(t, run.Settings.CPUs)
	require.Len(t, recs, 4)
	assert.Equal(t, "verbs", recs[1].Over)
}

func TestMain_OtherFormatsAndPlot(t *testing.T) {
	testenv.SkipShort(t, furtherRun)
	plot := filepath.Join(t.TempDir(), "p.svg")
	code, out, errs := perftest(t, with(quick, "--plot", plot, "-t", "put_lat")...)
	require.Equal(t, exitOK, code, errs)
	assert.Contains(t, out, "Post")
	assert.FileExists(t, plot)

	code, out, errs = perftest(t, with(quick, "-o", "md", "-t", "get_bw")...)
	require.Equal(t, exitOK, code, errs)
	assert.Contains(t, out, "| --- |")

	code, out, errs = perftest(t, with(quick, "-o", "csv", "-t", "get_bw")...)
	require.Equal(t, exitOK, code, errs)
	rows, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	require.NoError(t, err)
	assert.Len(t, rows, 1+2*3)
}

func TestMain_SeveralTransportsInOneTable(t *testing.T) {
	testenv.SkipShort(t, furtherRun)
	code, out, errs := perftest(t, with(quick, "-x", "sm,self,rc", "-t", "put_lat")...)
	require.Equal(t, exitOK, code, errs)
	assert.Equal(t, 1, strings.Count(out, "Layer"), "one table")
	assert.Regexp(t, `(?s) 8 B .*sm uct.*sm ucp.*self uct.*self ucp.*rc verbs.*rc uct.*rc ucp.* 2 KiB .*sm uct`, out)
	assert.Contains(t, out, "transport sm,self,rc")
	assert.Contains(t, out, "device memory,softhca0, transport")
}

// Empty messages arrive over each layer and layout; tests of operations that require bytes omit the size.
func TestMain_EmptyMessages(t *testing.T) {
	t.Setenv(asPerftest, "1")
	for args, rows := range map[string]int{
		"-x sm -t am_lat,am_mr,tag_lat,tag_mr,put_lat,stream_lat": 6,
		"-x rc -f loop -t am_lat,tag_sync_lat":                    4,
		"-x self -t tag_lat,am_lat -D iov":                        2,
		"-x self -t tag_lat -D generic,iov":                       1,
	} {
		code, out, errs := perftest(t, append(strings.Fields(args), "-s", "0,1", "-n", "200", "-w", "20", "-q", "-c", "off", "-o", "csv")...)
		require.Equal(t, exitOK, code, errs)
		lines, err := csv.NewReader(strings.NewReader(out)).ReadAll()
		require.NoError(t, err)
		size := slices.Index(lines[0], "size")
		empty := 0
		for _, line := range lines[1:] {
			if line[size] == "0" {
				empty++
			}
		}
		assert.Equal(t, rows, empty, "%s: %s", args, out)
	}
}

func TestMain_RejectsInvalidUsage(t *testing.T) {
	for _, c := range []struct {
		args string
		want string
	}{
		{"--bogus", "unknown flag"},
		{"bogus", `unknown command "bogus"`},
		{"-t tag_rate", "there are put_lat"},
		{"-x sm,nothing", `no transport "nothing"`},
		{"-x sm,self,sm", `duplicate transport "sm"`},
		{"-x sm,", `transport "sm,": a name is empty`},
		{"-x sm,tcp --counters", "needs a single transport"},
		{"-t put_lat,put_lat", "duplicate test"},
		{"-s 0", "am and tag alone"},
		{"-T 2 -s 0", "outside 1.."},
		{"-n 1x", "--iters 1x: want a whole number"},
		{"-s 1k-1", "LOW-HIGH"},
		{"-s x", `size "x"`},
		{"-n 0", "at least 1"},
		{"-W 0", "window"},
		{"-o xml", "table, md, csv, json"},
		{"--plot a.pdf", ".svg or .png"},
		{"--plot no/such/directory/a.svg", "no such file or directory"},
		{"--plot a.svg -s 8", "two sizes or more"},
		{"--full -s 8", "only one of them"},
		{"--layers ucp,mpi", `unknown layer "mpi"`},
		{"-f ether", `fabric "ether": there are shm, loop`},
		{"-x sm -f ether", `fabric "ether"`},
		{"-d mlx5_0", "there is softhca0"},
		{"-c 0", "want two"},
		{"-c 0,9999", "9999"},
		{"-D inline", "there are short, bcopy, zcopy for uct, and for ucp contig, iov, generic"},
		{"-D iov,zcopy -t tag_lat", `unknown layout "zcopy"`},
		{"--registered --layers uct,ucp", "uct layer"},
		{"--registered --memory plain", "replaces --memory"},
		{"--memory heap", `unknown memory "heap"; there are alloc, mapped, plain`},
		{"--memory plain --layers uct", "is for the ucp layer"},
		{"--memory plain -D zcopy", "is for the ucp layer"},
		{"-t am_lat --stop-peer", "the target must make progress"},
		{"-x self --stop-peer", "needs a target process"},
		{"client -x self", "work within one process"},
		{"--probe -c off", "two different CPUs"},
		{"--stop-peer -f loop", "needs a target process"},
		{"client -f loop", "work within one process"},
		{"server a b", "at most 1"},
		{"server -p 65536", "outside 0..65535"},
		{"info extra", "unknown command"},
		{"info -d -t dc", "there is rc"},
		{"info --fabric ether", `fabric "ether": there are shm, loop`},
		{"info --bogus", "see perftest info --help"},
		{"-s 8x", "want a number of bytes"},
		{"instructions put", "unknown command"},
		{"instructions --ops put_short", `unknown operation "put_short"`},
		{"instructions -o xml", `unknown output format "xml"`},
		{"compare-ucx -o xml", `unknown output format "xml"`},
		{"compare-ucx sm", "unknown command"},
		{"compare-ucx --only (", "--only: "},
		{"compare-ucx --only nothing", "see --list"},
		{"compare-ucx -c 0,0", "two different CPUs"},
		{"help bogus", `unknown command "bogus"`},
		{"help sp bogus", `unknown command "sp bogus"`},
		{"completion tcsh", `unknown command "tcsh"`},
		{"completion bash x", "unknown command"},
	} {
		t.Run(c.args, func(t *testing.T) {
			code, out, errs := perftest(t, strings.Fields(c.args)...)
			assert.Equal(t, exitUsage, code, errs)
			assert.Contains(t, errs, c.want)
			assert.Regexp(t, `see perftest (client |server |info |instructions |compare-ucx |completion |completion bash |help )?--help\n$`, errs)
			assert.Empty(t, out)
		})
	}
}

func TestMain_UnknownEnvironmentNameIsAnError(t *testing.T) {
	t.Setenv("GUCX_RC_TX_QUEUE_LN", "3")
	code, _, errs := perftest(t, quick...)
	assert.Equal(t, exitUsage, code)
	assert.Contains(t, errs, "GUCX_RC_TX_QUEUE_LEN")
}

func TestMain_MissingTransport(t *testing.T) {
	code, _, errs := perftest(t, with(quick, "-x", "dc")...)
	assert.Equal(t, exitUsage, code)
	assert.Contains(t, errs, `no transport "dc"; there is `)
	assert.Contains(t, errs, "rc")
}

func TestMain_EnvironmentNamesMissingTransport(t *testing.T) {
	t.Setenv("GUCX_TLS", "dc")
	code, _, errs := perftest(t, "info", "-p")
	assert.Equal(t, exitUsage, code)
	assert.Contains(t, errs, "transport dc not found")
}

// TestMain_RemarksOnTagFlagsWithoutTags: flags without effect cause a remark, and no error.
func TestMain_RemarksOnTagFlagsWithoutTags(t *testing.T) {
	for args, want := range map[string]string{
		"-t put_lat -C":         "perftest: -C has no effect without tests of tagged messages\n",
		"-t am_lat -U":          "perftest: -U has no effect without tests of tagged messages\n",
		"-t put_lat,tag_lat -C": "",
	} {
		code, _, errs := perftest(t, with(quick, strings.Fields("-x self "+args)...)...)
		assert.Equal(t, exitOK, code, errs)
		assert.Equal(t, want, errs, args)
	}
}

func TestMain_Help(t *testing.T) {
	for args, same := range map[string]string{"help": "--help", "help sp": "sp --help", "help completion bash": "completion bash --help"} {
		code, want, errs := perftest(t, strings.Fields(same)...)
		assert.Equal(t, exitOK, code, errs)
		code, out, errs := perftest(t, strings.Fields(args)...)
		assert.Equal(t, exitOK, code, errs)
		assert.Equal(t, want, out, args)
	}
}

func TestMain_PeerCommandRejectsUsers(t *testing.T) {
	cmd := rerun(nil, peerName)
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	assert.Contains(t, string(out), "not started by perftest")
}

func TestMain_Info(t *testing.T) {
	for _, c := range []struct {
		args string
		want []string
	}{
		{"info", []string{"# gucx ", "softhca0", "Transport: rc", "Transport: ucxtcp", "put_short", "atomic fetch 64"}},
		{"info -d -t ud", []string{"Transport: ud", "am_short"}},
		{"info -d -t sm", []string{"Memory domain: sm", "Transport: sm"}},
		{"info -p -t tcp", []string{"* tcp/lo", "put over tcp lo", "rndv", "data of rendezvous messages"}},
		{"info -p", []string{"score is 1 / (latency + overhead + 4 KiB)"}},
		{"info -s", []string{"cores"}},
		{"info -c", []string{"GUCX_RC_TX_QUEUE_LEN=256", "GUCX_TLS="}},
		{"info -f", []string{"# Length of the send queue of an endpoint", "GUCX_RC_TX_QUEUE_LEN=256"}},
		{"info --resources", []string{"QP, depth 64", "bytes", "MPI-everywhere", "256", "MPI+threads"}},
		{"info --resources --fabric loop", []string{"softhca-loop", "SharedDynamic", "do not reach each other"}},
		{"info --fabric loop", []string{"softhca-loop"}},
		{"--help", []string{"perftest help TOPIC", "instructions"}},
		{"help flags", []string{"--stop-peer", "--version"}},
		{"help status", []string{"wrong data"}},
		{"help commands", []string{"stencil "}},
	} {
		t.Run(c.args, func(t *testing.T) {
			code, out, errs := perftest(t, strings.Fields(c.args)...)
			require.Equal(t, exitOK, code, errs)
			for _, w := range c.want {
				assert.Contains(t, out, w)
			}
			if c.args == "info -d -t ud" {
				assert.NotContains(t, out, "Transport: rc")
			}
			if c.args == "info -d -t sm" {
				assert.NotContains(t, out, "softhca")
			}
			if c.args == "info -p" {
				assert.LessOrEqual(t, sheet.TextWidth(out), 100)
			}
		})
	}
}

// TestHelp_Width: the help of all commands fits into 80 columns.
func TestHelp_Width(t *testing.T) {
	root := Program{Name: defaultName}.newRoot(nil)
	for _, c := range append(root.Commands(), root) {
		var out strings.Builder
		c.SetOut(&out)
		require.NoError(t, c.Help())
		for _, line := range strings.Split(out.String(), "\n") {
			assert.LessOrEqual(t, utf8.RuneCountInString(line), helpWidth, "%s: %s", c.Name(), line)
		}
	}
}

// TestHelp_Overview: the overview fits on one screen, and contains each command and topic once.
func TestHelp_Overview(t *testing.T) {
	code, out, errs := perftest(t, "--help")
	require.Equal(t, exitOK, code, errs)
	assert.LessOrEqual(t, strings.Count(out, "\n"), 24)
	for _, c := range (Program{Name: defaultName}).newRoot(nil).Commands() {
		if !c.Hidden {
			assert.Regexp(t, `(?m)(, |^  |^  \w+( \w+)? +)`+c.Name()+`(,|\s*$|  )`, out)
		}
	}
	for _, topic := range topics {
		code, text, errs := perftest(t, "help", topic.name)
		require.Equal(t, exitOK, code, errs)
		assert.Equal(t, topic.text+"\n", text)
	}
}

// TestMain_DefaultAndFullSizes: the default sizes are a subset of those of --full.
func TestMain_DefaultAndFullSizes(t *testing.T) {
	short, err := jobOf(t, "-x self")
	require.NoError(t, err)
	full, err := jobOf(t, "-x self --full")
	require.NoError(t, err)
	assert.Len(t, full.plan.Sizes, 21)
	assert.Less(t, len(short.plan.Sizes), 8)
	assert.Subset(t, full.plan.Sizes, short.plan.Sizes)
	assert.Contains(t, short.plan.Sizes, 8, "the size of the summary")
}

func TestExitCode(t *testing.T) {
	assert.Equal(t, 130, exitCode(fmt.Errorf("put_lat: %w", &signalError{syscall.SIGINT})))
	assert.Equal(t, 143, exitCode(&signalError{syscall.SIGTERM}))
	assert.Equal(t, exitUsage, exitCode(&usageError{errors.New("x")}))
	assert.Equal(t, exitData, exitCode(errors.Join(errors.New("x"), bench.ErrData)))
	assert.Equal(t, exitFailure, exitCode(context.DeadlineExceeded))
	_, other := exec.Command("sh", "-c", "exit 5").Output()
	assert.Equal(t, exitFailure, exitCode(other), "the exit code of another program has another meaning")
	assert.Equal(t, 5, exitCode(&ucpgroup.RankError{Rank: 1, Err: other}))
}

// TestReason: errors after a signal do not hide the signal, but wrong data does.
func TestReason(t *testing.T) {
	broken := errors.New("read unix @->@: read: connection reset by peer")
	assert.Equal(t, broken, reason(t.Context(), broken))
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(&signalError{syscall.SIGINT})
	assert.EqualError(t, reason(ctx, broken), "interrupt")
	assert.Equal(t, bench.ErrData, reason(ctx, bench.ErrData))
}

func TestParseSizes(t *testing.T) {
	for in, want := range map[string][]int{
		"8":         {8},
		"1k,8,8":    {8, 1024},
		"1-8":       {1, 2, 4, 8},
		"1-1k/4":    {1, 4, 16, 64, 256, 1024},
		"3-10":      {3, 6},
		"1-2,2-4,1": {1, 2, 4},
	} {
		got, err := parseSizes(in)
		require.NoError(t, err, in)
		assert.Equal(t, want, got, in)
	}
	for _, in := range []string{"", "8/2", "1-8/1", "8-1", "-", "1-", "inf", "auto", "1t", "1,,2", "0-8", "0"} {
		_, err := parseSizes(in)
		assert.Error(t, err, in)
	}
}

func TestAddress(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "127.0.0.1:13337"},
		{[]string{"host"}, "host:13337"},
		{[]string{"host:1"}, "host:1"},
		{[]string{":1"}, ":1"},
		{[]string{"::1"}, "[::1]:13337"},
		{[]string{"[::1]:2"}, "[::1]:2"},
	} {
		got, err := address(c.args, defaultPort)
		require.NoError(t, err)
		assert.Equal(t, c.want, got)
	}
}

func TestMain_BatchFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "batch")
	require.NoError(t, os.WriteFile(file, []byte("# title and flags\n\nself_am -x self -t am_lat -s 8\nself_put -x self -t put_pp,put_lat -D short -s 16,32\n"), 0o600))
	code, out, errs := perftest(t, "-q", "-n", "16", "-w", "1", "--rounds", "1", "-t", "flush", "-b", file, "-o", "csv")
	require.Equal(t, exitOK, code, errs)
	assert.Equal(t, 2+2+2*2, strings.Count(strings.TrimSpace(out), "\n")+1, out)
	assert.NotContains(t, out, "flush,", "the tests of a line replace those of the command line")

	require.NoError(t, os.WriteFile(file, []byte("both -x sm,self -t am_lat -s 8\n"), 0o600))
	code, out, errs = perftest(t, "-q", "-n", "16", "-w", "1", "--rounds", "1", "-b", file)
	require.Equal(t, exitOK, code, errs)
	for _, row := range []string{"sm uct", "sm ucp", "self uct", "self ucp"} {
		assert.Contains(t, out, row, "rows of each transport of the line")
	}

	require.NoError(t, os.WriteFile(file, []byte("self_am -x self -t am_lat -s 8\nself_put -x self -t put_lat -s 16\n"), 0o600))
	code, out, errs = perftest(t, "-q", "-n", "16", "-w", "1", "--rounds", "1", "-b", file)
	require.Equal(t, exitOK, code, errs)
	assert.Contains(t, out, "# self_am\n")
	assert.Contains(t, out, "# self_put\n")
}

func TestMain_RejectsInvalidBatchFile(t *testing.T) {
	for text, want := range map[string]string{
		"":                         "no line with a test",
		"a -x self\nb -q 8":        `line 2 (b): "8" is not a flag`,
		"a -t nothing":             `line 1 (a): unknown test "nothing"`,
		"a --bogus":                "unknown flag: --bogus",
		"a -b other":               "cannot include another",
		"a -x self --stop-peer":    "needs a target process",
		"a -t am_lat -s 8 -x dc -": `"-" is not a flag`,
	} {
		file := filepath.Join(t.TempDir(), "batch")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		code, out, errs := perftest(t, "-b", file)
		assert.Equal(t, exitUsage, code, errs)
		assert.Contains(t, errs, want)
		assert.Empty(t, out)
	}
	code, _, errs := perftest(t, "-b", "/does/not/exist")
	assert.Equal(t, exitUsage, code)
	assert.Contains(t, errs, "no such file")
}

// TestMain_ReportsWriteError: each command fails if its output cannot be written.
func TestMain_ReportsWriteError(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	for _, args := range []string{
		"--help", "-h", "--version", "help", "help sp", "sp --help", "completion", "completion zsh --help",
		"info", "info -v", "info -s", "info -c", "info -p -t sm", "compare-ucx --list", "instructions --help",
		"-q -x self -t put_lat -s 8 -n 8 --rounds 1", "-q -x self -t put_lat -s 8 -n 8 --rounds 1 -o json",
	} {
		var errs bytes.Buffer
		code := Program{}.Run(strings.Fields(args), full, &errs)
		assert.Equal(t, exitFailure, code, args)
		assert.Equal(t, "perftest: write /dev/full: no space left on device\n", errs.String(), args)
	}
}
