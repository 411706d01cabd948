package main

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

const sums = "./testdata/sums"

// TestMeasure checks the outcome of each mutant of a small package.
func TestMeasure(t *testing.T) {
	testenv.SkipShort(t, "builds and runs test binaries")
	p, err := load(sums)
	require.NoError(t, err)
	const limit = "sum > Most => sum >= Most" // not covered by the tests
	o := options{pkg: sums, n: 1000, slack: 5 * time.Second}
	for !hasMutant(choose(p.find(), o.n, o.seed), limit) {
		o.seed++
	}
	var out bytes.Buffer
	all, err := measure(&out, o)
	require.NoError(t, err)
	want := map[string]outcomeKind{
		"sum > Most => sum <= Most":        caughtByOwn,
		"sum > Most => sum >= Most":        survived,
		"err != nil => err == nil":         caughtByOwn,
		"err != nil => false":              caughtByOwn,
		"n > 0 => n <= 0":                  caughtByOwn,
		"n > 0 => n >= 0":                  caughtByOwn,
		"n-- => (dropped)":                 caughtByOwn, // it hangs
		"steps++ => (dropped)":             caughtByOwn,
		"func NotTested => return at once": unreached,
		"n + 1 => n - 1":                   unreached,
		"1 => 1 + 1":                       unreached,
		"func check => return at once":     caughtByOwn,
		"func Add => return at once":       caughtByOwn,
		"func Count => return at once":     caughtByOwn,
		"a + b => a - b":                   caughtByOwn,
		"0 => 0 + 1":                       caughtByOwn,
	}
	for _, m := range all {
		name := m.was + " => " + m.is
		kind, ok := want[name]
		if assert.True(t, ok, "unexpected mutant %v", m) {
			assert.Equal(t, kind, m.outcome.kind, "%v: %v", m, m.outcome)
		}
		if name == "n-- => (dropped)" {
			assert.Equal(t, "hangs", m.outcome.by)
		}
	}
	assert.Contains(t, out.String(), limit+": survived")
	assert.Contains(t, out.String(), "\ncaught ")
	assert.Contains(t, out.String(), "left out, as they fail without a mutant: TestBaseline\n")
}

func hasMutant(all []*mutant, name string) bool {
	return slices.ContainsFunc(all, func(m *mutant) bool { return m.was+" => "+m.is == name })
}

// TestFind checks the list of mutants of a package, and that chosen mutants do not overlap.
func TestFind(t *testing.T) {
	testenv.SkipShort(t, "runs the go command")
	p, err := load(sums)
	require.NoError(t, err)
	all := p.find()
	seen := map[string]int{}
	for _, m := range all {
		seen[m.was+" => "+m.is]++
	}
	assert.Equal(t, 2, seen["a + b => a - b"])
	for _, name := range []string{"err != nil => false", "sum > Most => sum >= Most", "n-- => (dropped)", "func Add => return at once"} {
		assert.Equal(t, 1, seen[name], name)
	}
	for seed := range uint64(20) {
		chosen := choose(all, 5, seed)
		require.Len(t, chosen, 5)
		for i, m := range chosen {
			assert.Equal(t, i+1, m.id)
			if i > 0 && chosen[i-1].file == m.file {
				assert.Less(t, chosen[i-1].to, m.from)
			}
		}
		assert.Equal(t, chosen, choose(all, 5, seed), "the seed decides")
	}
	assert.Len(t, choose(all, 1, 1), 1)
}

func TestLoad_NoPackage(t *testing.T) {
	testenv.SkipShort(t, "runs the go command")
	_, err := load("./testdata/none")
	assert.Error(t, err)
}

func TestParseIDs(t *testing.T) {
	for in, want := range map[string][]int{"": nil, "3": {3}, "3,12-14": {3, 12, 13, 14}, "5-5": {5}} {
		got, err := parseIDs(in)
		require.NoError(t, err, in)
		assert.Equal(t, want, got, in)
	}
	for _, in := range []string{"0", "x", "3-", "-3", "4-3", "1,,2", "1-5000"} {
		_, err := parseIDs(in)
		assert.Error(t, err, in)
	}
}
