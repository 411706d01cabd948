package instr

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/perftest/internal/probes/ptrace"
)

// count runs a job in a child that is this test binary, and skips the test if ptrace is forbidden.
func count(t *testing.T, j job, d Detail) (*Measurement, error) {
	t.Helper()
	return countBy(t, j, measurer{detail: d})
}

// countBy is count by m.
func countBy(t *testing.T, j job, m measurer) (*Measurement, error) {
	t.Helper()
	testenv.SkipRace(t, "the detector's own instructions would be counted")
	m.args = []string{childName}
	if m.window == nil {
		m.window = func(Case) {}
	}
	res, err := m.measure(t.Context(), j)
	if errors.Is(err, ptrace.ErrForbidden) || errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	}
	return res, err
}

func standinJob(cases ...Case) job {
	return job{Cases: cases, Fabric: "loop", Reps: 8, Warmup: 2}
}

func TestMeasure_StandIn(t *testing.T) {
	t.Setenv(standinEnv, "")
	overVerbs, overUCT := Case{Op: Put, API: Verbs, Size: 8}, Case{Op: Put, API: UCT, Size: 8}
	windows := map[Case]int{}
	res, err := countBy(t, standinJob(overVerbs, overUCT,
		Case{Op: Get, API: UCT, Size: 8}, Case{Op: Put, API: UCP, Size: 8}),
		measurer{detail: ByFunction, window: func(c Case) { windows[c]++ }})
	require.NoError(t, err)
	require.Len(t, res.Results, 4)
	assert.Equal(t, map[Case]int{overVerbs: 8, overUCT: 8}, windows)

	v, u := res.Results[0].Sample, res.Results[1].Sample
	for _, s := range []Sample{v, u} {
		assert.Equal(t, 8, s.Reps+s.Interrupted)
		assert.True(t, s.Exact(), "%d..%d", s.Min, s.Max)
		assert.Zero(t, s.Syscalls)
		assert.Positive(t, s.Profile[Place{Part: Verbs, Function: "uct/ib/verbs.QPState.String"}])
	}
	assert.Zero(t, v.Profile.Part(UCT))
	assert.Positive(t, u.Profile[Place{Part: UCT, Function: "uct.IOVLen"}])
	assert.Equal(t, v.Profile.Part(Verbs), u.Profile.Part(Verbs), "both APIs make the same call")
	assert.Equal(t, u.Total(), u.Profile.Part(UCT)+v.Total())

	assert.Contains(t, res.Results[2].Skip, "stand-in has no get")
	assert.Contains(t, res.Results[3].Skip, "ucp")
}

func TestMeasure_SameCountEachTime(t *testing.T) {
	t.Setenv(standinEnv, "")
	j := standinJob(Case{Op: Put, API: UCT, Size: 8})
	first, err := count(t, j, ByLine)
	require.NoError(t, err)
	second, err := count(t, j, ByLine)
	require.NoError(t, err)
	assert.Equal(t, first.Results[0].Sample.Profile, second.Results[0].Sample.Profile)
}

// TestMeasure_Void: a case whose repetitions are all void is skipped with the reason.
func TestMeasure_Void(t *testing.T) {
	t.Setenv(standinEnv, "void")
	res, err := count(t, standinJob(Case{Op: Put, API: UCT, Size: 8}), ByLine)
	require.NoError(t, err)
	assert.Contains(t, res.Results[0].Skip, errVoid.Error())
}

func TestMeasure_ChildFails(t *testing.T) {
	for _, fault := range []string{"before", "op", "after", "close"} {
		t.Run(fault, func(t *testing.T) {
			t.Setenv(standinEnv, fault)
			_, err := count(t, standinJob(Case{Op: Put, API: UCT, Size: 8}), ByPart)
			assert.ErrorContains(t, err, "exit code 1")
			assert.ErrorContains(t, err, errStandin.Error())
		})
	}
}

// TestMeasure_ReturnsCompletedCases: the result has the cases that were completely counted.
func TestMeasure_ReturnsCompletedCases(t *testing.T) {
	t.Setenv(standinEnv, "")
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	overVerbs, overUCT := Case{Op: Put, API: Verbs, Size: 8}, Case{Op: Put, API: UCT, Size: 8}
	skipped := Case{Op: Get, API: UCT, Size: 8}
	m := measurer{args: []string{childName}, window: func(c Case) {
		if c == overUCT {
			cancel(why)
		}
	}}
	j := standinJob(skipped, overVerbs, overUCT, overVerbs)
	res, err := m.measure(ctx, j)
	if errors.Is(err, ptrace.ErrForbidden) || errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	}
	require.ErrorIs(t, err, why)
	require.Len(t, res.Results, 2)
	assert.Contains(t, res.Results[0].Skip, "stand-in has no get")
	assert.Equal(t, j.Reps, res.Results[1].Sample.Reps+res.Results[1].Sample.Interrupted)
	assert.Equal(t, "enough", res.Incomplete)
	assert.Equal(t, "enough", about(res)["incomplete"])
	var b bytes.Buffer
	require.NoError(t, writeTables(&b, res, plainText))
	assert.Contains(t, b.String(), "INCOMPLETE")
}

func TestMeasure_Canceled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	m := measurer{window: func(Case) {}, args: []string{childName}}
	_, err := m.measure(ctx, standinJob())
	if errors.Is(err, ptrace.ErrForbidden) || errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	}
	assert.ErrorIs(t, err, context.Canceled)
}

func TestRunChild_NotTraced(t *testing.T) {
	if ptrace.Traced() {
		t.Skip("this process is traced")
	}
	assert.ErrorIs(t, runChild(&bytes.Buffer{}, &bytes.Buffer{}, nil), errNotTraced)
}

// selfCheck is a measurer with one window of each check.
func selfCheck(empty, known int) *measurer {
	m := &measurer{collectors: make([]collector, tagCase)}
	m.collectors[tagEmpty].add(Profile{{Part: harness}: 20, {Part: UCT}: empty}, 0, noKinds)
	m.collectors[tagKnown].add(Profile{{Part: harness, Function: knownFunction}: known}, 0, noKinds)
	return m
}

func TestVerify(t *testing.T) {
	assert.NoError(t, selfCheck(0, ptrace.KnownLen).verify())
	assert.ErrorContains(t, selfCheck(3, ptrace.KnownLen).verify(), "empty operation counts 3")
	assert.ErrorContains(t, selfCheck(0, 41).verify(), "42 instructions counts 41")
	none := &measurer{collectors: make([]collector, tagCase)}
	assert.ErrorContains(t, none.verify(), "interrupted")
}

func TestCount_ForeignTag(t *testing.T) {
	m := selfCheck(0, 0)
	assert.ErrorContains(t, m.count(ptrace.Window{Tag: tagCase}), "tag 2")
}

func TestNote(t *testing.T) {
	results := []Result{{Sample: Sample{Reps: 1}}, {}, {Sample: Sample{Interrupted: 20}}}
	require.NoError(t, note([]skipped{{Case: 1, Reason: "no such thing"}}, results))
	assert.Equal(t, "", results[0].Skip)
	assert.Equal(t, "no such thing", results[1].Skip)
	assert.Contains(t, results[2].Skip, "all 20 repetitions")
	assert.ErrorContains(t, note([]skipped{{Case: 3}}, results), "case 3")
}

func TestDecodeReplies(t *testing.T) {
	all, err := decodeReplies([]byte(`{"Case":1,"Reason":"a"}` + "\n" + `{"Case":2,"Reason":"b"}` + "\n"))
	require.NoError(t, err)
	assert.Equal(t, []skipped{{1, "a"}, {2, "b"}}, all)
	_, err = decodeReplies([]byte("panic: x"))
	assert.ErrorContains(t, err, "reply")
}

func TestChildEnv(t *testing.T) {
	got := childEnv([]string{"A=1", "GOGC=50", "GODEBUG=gctrace=1", "GOMAXPROCS=8", "GUCX_TLS=rc", "GOMEMLIMIT=1GiB"})
	assert.Equal(t, []string{"A=1", "GUCX_TLS=rc", "GOMAXPROCS=1", "GOGC=off", "GODEBUG=asyncpreemptoff=1"}, got)
}
