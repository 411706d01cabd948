package cli

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/perftest/internal/studies/endpoints"
	"github.com/gucx/gucx/perftest/internal/studies/msgrate"
)

func TestEndpoints_Output(t *testing.T) {
	testenv.SkipShort(t, furtherRun)
	plot := filepath.Join(t.TempDir(), "a.svg")
	code, out, errs := perftest(t, with(strings.Fields("endpoints -q -n 64 --rounds 1 -t 1,2 -o json --plot"), plot)...)
	require.Equal(t, exitOK, code, errs)
	d := json.NewDecoder(strings.NewReader(out))
	d.DisallowUnknownFields()
	var c conditions
	require.NoError(t, d.Decode(&c))
	assert.Equal(t, []int{64, 1, 1}, []int{c.Messages, c.Postlist, c.Unsignaled})
	n := 0
	for ; d.More(); n++ {
		var r endpoints.Row
		require.NoError(t, d.Decode(&r))
		assert.Positive(t, r.Rate)
	}
	assert.Equal(t, 12, n)
	svg, err := os.ReadFile(plot)
	require.NoError(t, err)
	assert.Contains(t, string(svg), "2xDynamic")
}

func TestMsgrate_Output(t *testing.T) {
	testenv.SkipShort(t, furtherRun)
	for _, fabric := range []string{"loop", "shm"} {
		code, out, errs := perftest(t, strings.Fields("msgrate -q -n 64 --rounds 1 -t 2 --ways 1,2 --share cq,qp,none --features each -o csv -f "+fabric)...)
		require.Equal(t, exitOK, code, errs)
		rows, err := csv.NewReader(strings.NewReader(out)).ReadAll()
		require.NoError(t, err)
		assert.Len(t, rows, 1+3*5*2, fabric)
		assert.Equal(t, "share", rows[0][0])
		assert.Equal(t, []string{"cq", "all w/o postlist", "2", "2"}, rows[4][:4])
	}
}

// Each process is a sender with a separate target.
func TestMsgrate_Processes(t *testing.T) {
	testenv.SkipShort(t, furtherRun)
	plot := filepath.Join(t.TempDir(), "a.png")
	code, out, errs := perftest(t, with(strings.Fields("msgrate -q -n 64 --rounds 1 -t 4 --processes 2 --ways 1,2 --share ctx --features all -o json --plot"), plot)...)
	require.Equal(t, exitOK, code, errs)
	var p msgrate.Point
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 3)
	require.NoError(t, json.Unmarshal([]byte(lines[2]), &p))
	assert.Equal(t, []int{2, 4}, []int{p.Contexts, p.QPs})
}

func TestSharing_RejectsInvalidUsage(t *testing.T) {
	refuses(t, "", map[string]string{
		"msgrate --share td":                 "ctx-2xqps",
		"msgrate --features bluefire":        "blueflame",
		"msgrate --ways 0":                   "0-way",
		"msgrate -f ether":                   "ether",
		"msgrate -o xml":                     "table, md, csv, json",
		"msgrate --plot a.pdf":               ".svg or .png",
		"endpoints --plot no/such/a.png":     "no such file or directory",
		"msgrate --uar-policy eager":         "lazy, static",
		"msgrate --rounds 0":                 "--rounds 0: want one or more",
		"dgemm --seed 1":                     "--seed requires --model",
		"msgrate --model connectx9":          "connectx9",
		"endpoints --model x --processes 2":  "one process",
		"endpoints --categories MPI-nowhere": "MPI-everywhere, 2xDynamic",
		"msgrate -t 0":                       "--threads 0",
		"msgrate --processes 0":              "--processes 0",
		"msgrate --processes 3":              "not an equal number in each",
		"endpoints -s 0":                     "--size 0",
		"endpoints -p 0":                     "--postlist 0",
		"endpoints x":                        "unknown command",
		"msgrate --depth 65":                 "must be a multiple",
		"endpoints -p 3 --unsignaled 2":      "one must divide the other",
	})
}

func TestDgemm_Output(t *testing.T) {
	code, out, errs := perftest(t, strings.Fields("dgemm -q -N 8 --tile 4 --rounds 1 -t 1,3 -o csv")...)
	require.Equal(t, exitOK, code, errs)
	rows, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	require.NoError(t, err)
	assert.Len(t, rows, 1+12)
	assert.Equal(t, []string{"3", "MPI+threads"}, rows[12][:2])
	assert.Equal(t, []string{"gets_per_s", "gets_relative", "puts_per_s", "puts_relative"}, rows[0][4:8])
	for _, v := range rows[12][4:8] {
		assert.NotEqual(t, "0", v)
	}
	code, _, errs = perftest(t, "dgemm", "-N", "9", "--tile", "2")
	assert.Equal(t, exitUsage, code)
	assert.Contains(t, errs, "divisors of it")
}

func TestStencil_Output(t *testing.T) {
	code, out, errs := perftest(t, strings.Fields("stencil -q --rows 8 --cols 8 -n 3 --rounds 1 --hybrid 2.1,1.2 -o csv")...)
	require.Equal(t, exitOK, code, errs)
	rows, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	require.NoError(t, err)
	assert.Len(t, rows, 1+12)
	assert.Equal(t, []string{"ranks", "threads", "category"}, rows[0][:3])
	assert.Equal(t, []string{"1", "2", "MPI+threads"}, rows[12][:3])
	code, out, errs = perftest(t, strings.Fields("stencil -q --rows 8 --cols 8 -n 3 --rounds 1 --hybrid 2.2 --categories Dynamic,MPI+threads --processes -o csv")...)
	require.Equal(t, exitOK, code, errs)
	assert.Equal(t, 3, strings.Count(out, "\n"), out)
	refuses(t, "", map[string]string{
		"stencil --processes -f loop":     "shm fabric",
		"stencil --hybrid 4":              "ranks.threads",
		"stencil --hybrid 0.4":            "ranks.threads",
		"stencil --rows 9 --hybrid 1.1":   "9 rows",
		"stencil --points 3":              "want a divisor",
		"stencil --model connectx5":       "connectx4",
		"dgemm --model connectx4,Rails=0": "at least 1",
		"dgemm --categories none":         "MPI-everywhere",
		"dgemm -t 0":                      "0 threads",
		"endpoints -t 4,-1":               "--threads 4,-1: want a whole number",
		"stencil --cq -1":                 "-1 threads share",
		"stencil --cols 9 --hybrid 1.2":   "9 columns",
		"stencil --categories everything": "MPI-everywhere",
	})
}

// TestConditions_Lines: a table has a remark if medians are of fewer rounds, with the reason.
func TestConditions_Lines(t *testing.T) {
	s := sharing{rounds: 3}
	lines := strings.Join(s.conditions(t.Context(), nil).lines(3), "\n")
	assert.Contains(t, lines, "median of 3 rounds")
	assert.NotContains(t, lines, "INCOMPLETE")
	lines = strings.Join(s.conditions(t.Context(), errors.New("peer\ngone")).lines(1), "\n")
	assert.Contains(t, lines, "medians of 1 rounds or more, of 3\nINCOMPLETE, without what was not measured to its end: peer; gone")
}

// TestFinish: partial rows are written, and not plotted.
func TestFinish(t *testing.T) {
	broken, full := errors.New("broken"), errors.New("full")
	for _, c := range []struct {
		rows         int
		err, write   error
		plot         string
		wrote, drawn bool
		want         error
	}{
		{0, broken, nil, "a.svg", false, false, broken},
		{1, broken, nil, "a.svg", true, false, broken},
		{1, nil, full, "a.svg", true, false, full},
		{1, nil, nil, "a.svg", true, true, nil},
		{1, nil, nil, "", true, false, nil},
	} {
		wrote, drawn := false, false
		s := sharing{plot: c.plot}
		err := s.finish(c.rows, c.err, func() error { wrote = true; return c.write }, func() error { drawn = true; return nil })
		require.ErrorIs(t, err, c.want)
		assert.Equal(t, []bool{c.wrote, c.drawn}, []bool{wrote, drawn}, "%+v", c)
	}
}
