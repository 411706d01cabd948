package paper

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var aRun = &Run{Args: "msgrate --share cq"}

// aPaper returns a paper with one figure of one command.
func aPaper() *Paper {
	return &Paper{Name: "a", Title: "A", Figures: []Figure{
		{ID: "1", Title: "Structure", How: Structure, Lesson: "Boxes.", Missing: "A drawing."},
		{ID: "2", Title: "Rates", How: Virtual, Lesson: "It falls.", Cases: []Case{
			{Name: "slower by", Value: over(pick(aRun, "ways=1", "rate"), pick(aRun, "ways=16", "rate")), Unit: Times, Paper: 10, Place: "section 1", Rule: within(0.3)},
			{Name: "cost", Value: change(pick(aRun, "ways=16", "rate"), pick(aRun, "ways=1", "rate")), Unit: Points, Says: "much", Rule: between(-1, -0.99)},
			{Name: "largest", Value: largest(aRun, "", "rate"), Unit: Millions},
		}, Plots: []Plot{{Run: aRun, Title: "Rates", X: "ways", Y: "rate", Scale: 1e-6, XLabel: "ways", YLabel: "M/s"}}},
	}}
}

const aResult = "ways,rate\n1,90000000\n16,10000000\n"

func TestRows_Outcomes(t *testing.T) {
	p := aPaper()
	rows := AllRows([]*Paper{p}, Results{})
	require.Len(t, rows, 4)
	assert.Equal(t, NotShown, rows[0].Outcome)
	assert.Equal(t, NotRun, rows[1].Outcome)

	table, err := parse(aResult)
	require.NoError(t, err)
	rows = AllRows([]*Paper{p}, Results{aRun.Command(): table})
	assert.Equal(t, []Outcome{NotShown, Holds, Misses, NoValue}, []Outcome{rows[0].Outcome, rows[1].Outcome, rows[2].Outcome, rows[3].Outcome})
	assert.Equal(t, []string{"9.00 x", "-88.9 %", "90.0 M/s"}, []string{rows[1].Ours, rows[2].Ours, rows[3].Ours})
	assert.InDelta(t, 0.9, rows[1].Ratio, 1e-9)
}

// A value with an interval holds, or misses, only if the complete interval does.
func TestRow_Interval(t *testing.T) {
	table, err := parse("layer,test,size,loop_ns,over_ns,over_lo_ns,over_hi_ns\nucp,put_lat,8,200,,,\n" +
		"a,put_lat,8,210,10,8,12\nb,put_lat,8,230,30,28,32\nc,put_lat,8,210,10,-1,12\nd,put_lat,8,210,10,0,0\ne,put_lat,8,290,90,-100,200\n")
	require.NoError(t, err)
	res := Results{aRun.Command(): table}
	for layer, want := range map[string]Row{
		"a": {Ours: "+5.0 % (+4.0 to +6.0)", Outcome: Holds},
		"b": {Ours: "+15.0 % (+14.0 to +16.0)", Outcome: Misses},
		"c": {Ours: "+5.0 % (-0.5 to +6.0)", Outcome: Noise},
		"d": {Ours: "+5.0 %", Outcome: Holds},
		"e": {Ours: "+45.0 % (-50.0 to +100.0)", Outcome: Noise},
	} {
		c := paired(Case{Rule: between(0, 0.1), Says: "little"}, aRun, "put_lat", layer, "ucp", "8")
		got := c.row(res)
		assert.Equal(t, want.Ours, got.Ours, layer)
		assert.Equal(t, want.Outcome, got.Outcome, layer)
	}
	c := paired(Case{Rule: between(0, 0.1)}, aRun, "put_lat", "a", "ucp", "8")
	c.Hi = pick(aRun, "layer=none", "over_hi_ns")
	assert.Equal(t, NoValue, c.row(res).Outcome)
	assert.Contains(t, c.row(res).Theirs, "0 rows")
}

func TestPick_NeedsOneRow(t *testing.T) {
	table, err := parse("a,b,v\n1,x,3\n1,y,4\n")
	require.NoError(t, err)
	res := Results{aRun.Command(): table}
	v, err := pick(aRun, "a=1,b=x", "v").of(res)
	require.NoError(t, err)
	assert.Equal(t, 3.0, v)
	_, err = pick(aRun, "a=1", "v").of(res)
	require.ErrorContains(t, err, "2 rows")
	v, err = sum(aRun, "a=1,b=x|y", "v").of(res)
	require.NoError(t, err)
	assert.Equal(t, 7.0, v)
}

func TestParse_Lines(t *testing.T) {
	table, err := parse("#\n# Resources of x: y\n#   QP, depth 64: 9000 bytes\n")
	require.NoError(t, err)
	assert.Equal(t, "9000", table.where("name=QP depth 64")[0]["value"])
}

func TestMeasure_ContinuesWithTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "r.json")
	papers := []*Paper{aPaper()}
	calls := 0
	run := func(context.Context, *Run) (string, error) { calls++; return aResult, nil }
	for range 2 {
		s, err := OpenStore(file, "c1", false)
		require.NoError(t, err)
		require.NoError(t, Measure(t.Context(), papers, s, run, nil))
		res, err := s.Results()
		require.NoError(t, err)
		assert.Len(t, res[aRun.Command()], 2)
	}
	assert.Equal(t, 1, calls)
	_, err := OpenStore(file, "c2", false)
	require.ErrorContains(t, err, "commit c1")
	_, err = OpenStore(file, "c2", true)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, []byte("{"), 0o600))
	_, err = OpenStore(file, "c1", false)
	require.Error(t, err)
}

func TestMeasure_FailureAndInterruption(t *testing.T) {
	s, err := OpenStore("", "c", false)
	require.NoError(t, err)
	broken := errors.New("no ptrace")
	err = Measure(t.Context(), []*Paper{aPaper()}, s, func(context.Context, *Run) (string, error) { return "", broken }, nil)
	require.ErrorIs(t, err, broken)
	ctx, cancel := context.WithCancel(t.Context())
	err = Measure(ctx, []*Paper{aPaper()}, s, func(context.Context, *Run) (string, error) { cancel(); return "", broken }, nil)
	require.ErrorIs(t, err, context.Canceled)
}

// Every figure has a command or the reason why it cannot be shown, and texts without the character that separates the
// cells of a Markdown table.
func TestPapers_AreComplete(t *testing.T) {
	for _, p := range Papers() {
		ids := map[string]bool{}
		for i := range p.Figures {
			f := &p.Figures[i]
			assert.False(t, ids[f.ID], "%s has two figures %s", p.Name, f.ID)
			ids[f.ID] = true
			assert.NotEmpty(t, f.Lesson, "%s %s", p.Name, f.ID)
			assert.True(t, len(f.Cases) > 0 || f.Missing != "", "%s %s: no case and no reason", p.Name, f.ID)
			for _, c := range f.Cases {
				assert.NotNil(t, c.Value.of, "%s %s %s", p.Name, f.ID, c.Name)
				assert.NotContains(t, c.Name+c.Says+c.Place, "|")
			}
		}
		_, err := p.Only([]string{"no such figure"})
		require.ErrorContains(t, err, "there are ")
	}
	_, err := Find("none")
	require.ErrorContains(t, err, "endpoints")
}

func TestPageAndHTML(t *testing.T) {
	table, err := parse(aResult)
	require.NoError(t, err)
	res := Results{aRun.Command(): table}
	var md, list, html bytes.Buffer
	require.NoError(t, Page(&md, []*Paper{aPaper()}, res))
	assert.Contains(t, md.String(), "| slower by | 9.00 x | 10.00 x | 0.9 | holds | section 1 |")
	assert.Contains(t, md.String(), "    perftest msgrate --share cq\n")
	require.NoError(t, List(&list, []*Paper{aPaper()}))
	assert.Contains(t, list.String(), "not shown: A drawing.")
	require.NoError(t, HTML(&html, []*Paper{aPaper()}, res, "c1"))
	assert.Equal(t, 1, strings.Count(html.String(), "<svg"))
	assert.NotContains(t, html.String(), "src=", "the report must not need other files")
}
