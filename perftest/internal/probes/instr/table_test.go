package instr

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/perftest/internal/show/sheet"
)

// example is a measurement with every kind of cell.
func example() *Measurement {
	sample := func(min, max int, p Profile) Sample {
		return Sample{Profile: p, Reps: 20, Min: min, Max: max}
	}
	post, copied := Place{Part: Verbs, Function: "uct/ib/verbs.(*QP).PostSend"}, Place{Part: Verbs, Function: "runtime.memmove"}
	put := Place{Part: UCT, Function: "uct/ib/rc.(*EP).PutShort"}
	up := Place{Part: UCP, Function: "ucp.(*EP).Put"}
	ring := Place{Part: Device, Function: "uct/ib/verbs/softhca.(*uarPage).Ring"}
	own := Place{Part: harness, Function: "perftest/internal/probes/instr.op"}
	return &Measurement{Fabric: "loop", Reps: 20, Results: []Result{
		{Case: Case{Op: Put, API: Verbs, Size: 8}, Sample: sample(60, 60, Profile{post: 50, copied: 10, ring: 25, own: 9})},
		{Case: Case{Op: Put, API: UCT, Size: 8}, Sample: sample(100, 130, Profile{post: 50, copied: 10, put: 40, ring: 25, own: 9})},
		{Case: Case{Op: Put, API: UCP, Size: 8}, Sample: sample(130, 130, Profile{post: 50, copied: 10, put: 40, up: 30, ring: 25, own: 9})},
		{Case: Case{Op: Put, API: UCP, Size: 8, Switch: "resolve"}, Sample: sample(142, 142, Profile{post: 50, copied: 10, put: 40, up: 42, ring: 25})},
		{Case: Case{Op: Idle, API: Verbs}, Skip: "no progress here"},
		{Case: Case{Op: Idle, API: UCT}, Sample: sample(12, 12, Profile{put: 12})},
	}}
}

func TestWriteTables(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, writeTables(&b, example(), plainText))
	assert.Equal(t, strings.TrimLeft(`
┌────────────────────────────────────────┬───────┬─────┬─────┬─────────┐
│ put, 8 B                               │ verbs │ uct │ ucp │     ucp │
│                                        │       │     │     │ resolve │
├────────────────────────────────────────┼───────┼─────┼─────┼─────────┤
│ ucp                                    │       │     │  30 │      42 │
│   ucp.(*EP).Put                        │       │     │  30 │      42 │
│ uct                                    │       │  40 │  40 │      40 │
│   uct/ib/rc.(*EP).PutShort             │       │  40 │  40 │      40 │
│ verbs                                  │    60 │  60 │  60 │      60 │
│   uct/ib/verbs.(*QP).PostSend          │    50 │  50 │  50 │      50 │
│   runtime.memmove                      │    10 │  10 │  10 │      10 │
├────────────────────────────────────────┼───────┼─────┼─────┼─────────┤
│ total                                  │    60 │ 100 │ 130 │     142 │
│ added                                  │       │ +40 │ +30 │     +12 │
│ least                                  │       │ 100 │     │         │
│ most                                   │       │ 130 │     │         │
├────────────────────────────────────────┼───────┼─────┼─────┼─────────┤
│ device                                 │    25 │  25 │  25 │      25 │
│   uct/ib/verbs/softhca.(*uarPage).Ring │    25 │  25 │  25 │      25 │
│ with device                            │    85 │ 125 │ 155 │     167 │
└────────────────────────────────────────┴───────┴─────┴─────┴─────────┘

┌────────────────────────────┬───────┬─────┐
│ idle                       │ verbs │ uct │
├────────────────────────────┼───────┼─────┤
│ uct                        │       │  12 │
│   uct/ib/rc.(*EP).PutShort │       │  12 │
├────────────────────────────┼───────┼─────┤
│ total                      │       │  12 │
└────────────────────────────┴───────┴─────┘
verbs: not counted: no progress here
`, "\n"), b.String())
}

// TestBelow: rc and averbs are compared with verbs, a layer above with the one below it, and an
// alternative with its default.
func TestBelow(t *testing.T) {
	var g tableGroup
	for _, c := range []Case{{API: Verbs}, {API: AVerbs, Switch: "rc_mlx5"}, {API: UCT}, {API: UCT, Switch: "rc_mlx5"}, {API: UCP}} {
		g.columns = append(g.columns, Result{Case: c})
	}
	for i, want := range []int{-1, 0, 0, 2, 2} {
		base, ok := g.below(g.columns[i].Case)
		require.Equal(t, want >= 0, ok, i)
		if ok {
			assert.Equal(t, g.columns[want].Case, base.Case, i)
		}
	}
}

func TestWriteTables_FitATerminalOf80(t *testing.T) {
	m := example()
	long := Place{Part: UCT, Function: "uct/ib/internal/rccore.(*EP).someLongNameWithoutEnd[go.shape.struct{}].func1.2"}
	m.Results[1].Sample.Profile[long] = 7
	for _, transport := range transports[1:3] { // those of puts; the others have only messages
		m.Results = slices.Insert(m.Results, 2, Result{Case: Case{Op: Put, API: UCT, Size: 8, Switch: transport}, Sample: m.Results[1].Sample})
	}
	m.Results[len(m.Results)-2].Skip = strings.Repeat("a reason ", 20)
	var b bytes.Buffer
	require.NoError(t, writeTables(&b, m, plainText))
	assert.LessOrEqual(t, sheet.TextWidth(b.String()), 80, b.String())
	assert.Contains(t, b.String(), "func1.2", "a long name must be cut at its beginning")
}

func TestWriteTables_Markdown(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, writeTables(&b, example(), markdown))
	assert.Contains(t, b.String(), "| put, 8 B | verbs | uct | ucp | ucp resolve |\n| --- | ---:| ---:| ---:| ---:|\n")
	assert.Contains(t, b.String(), "| added |  | +40 | +30 | +12 |\n")
}

func TestWriteCSV(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, writeCSV(&b, example()))
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	assert.Equal(t, "op,size,layer,switch,fabric,part,function,line,instructions,branches,calls,indirect_calls,loads", lines[0])
	assert.Contains(t, lines, "put,8,ucp,resolve,loop,ucp,ucp.(*EP).Put,,42,0,0,0,0")
	assert.Len(t, lines, 1+3+4+5+5+0+1)
}

func TestWriteJSON(t *testing.T) {
	var b bytes.Buffer
	m := example()
	require.NoError(t, writeJSON(&b, m, about(m)))
	d := json.NewDecoder(&b)
	var head map[string]any
	require.NoError(t, d.Decode(&head))
	assert.Equal(t, "loop", head["fabric"])
	var all []record
	for d.More() {
		var r record
		require.NoError(t, d.Decode(&r))
		all = append(all, r)
	}
	require.Len(t, all, len(m.Results))
	assert.Equal(t, 130, all[2].Instructions)
	assert.Equal(t, map[string]int{"device": 25, "verbs": 60, "uct": 40, "ucp": 30}, all[2].Parts)
	assert.Equal(t, placeRecord{Part: "ucp", Function: "ucp.(*EP).Put", Instructions: 30}, all[2].Places[0])
	assert.Equal(t, 155, all[2].WithDevice)
	assert.Equal(t, 130, all[1].Max)
	assert.Equal(t, "no progress here", all[4].Skip)
}

func TestWriters_ReportWriteErrors(t *testing.T) {
	for name, write := range map[string]func(*Measurement) error{
		"table": func(m *Measurement) error { return writeTables(fullDisk{}, m, plainText) },
		"csv":   func(m *Measurement) error { return writeCSV(fullDisk{}, m) },
		"json":  func(m *Measurement) error { return writeJSON(fullDisk{}, m, about(m)) },
	} {
		t.Run(name, func(t *testing.T) { assert.ErrorIs(t, write(example()), errDiskFull) })
	}
}
