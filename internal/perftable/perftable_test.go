package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPage_IsOfTheResults: the tables of the page are those that the results give.
func TestPage_IsOfTheResults(t *testing.T) {
	const root = "../.."
	want, err := rewritten(root)
	require.NoError(t, err)
	have, err := os.ReadFile(filepath.Join(root, page))
	require.NoError(t, err)
	assert.Equal(t, string(want), string(have), "run make perf-tables")
	assert.Len(t, place.FindAll(have, -1), 1)
}

func TestTable(t *testing.T) {
	out, err := table([]byte(`{"program":"perftest instructions"}
{"op":"put","layer":"verbs","instructions":3}
{"op":"put","layer":"uct","instructions":4}
{"op":"tag","layer":"ucp","switch":"sm","instructions":5}
{"op":"put","layer":"ucp","switch":"sm","instructions":0}
`))
	require.NoError(t, err)
	assert.Equal(t, "| operation | verbs | uct rc | ucp sm |\n|---|---:|---:|---:|\n| `put` | 3 | 4 | – |\n| `tag` | – | – | 5 |\n", string(out))
	_, err = table([]byte("no results\n"))
	assert.Error(t, err)
}
