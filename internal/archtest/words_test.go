package archtest

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
)

// TestWords checks that the tree does not use the words in Words.
func TestWords(t *testing.T) {
	testenv.SkipRace(t, "one goroutine reads all files")
	broken, err := CheckWords(os.DirFS("../.."), Words)
	require.NoError(t, err)
	for _, b := range broken {
		t.Error(b)
	}
}

func TestPartsOf(t *testing.T) {
	for name, want := range map[string][]string{
		"x": {"x"}, "newQPTable": {"new", "qp", "table"}, "HTTPServer2": {"http", "server"}, "a_b": {"a", "b"}, "takeAllEPs": {"take", "all", "eps"},
	} {
		assert.Equal(t, want, partsOf(name), name)
	}
}

// TestCheckWords checks words that are rejected in names and prose, only in names, and only in some folders.
func TestCheckWords(t *testing.T) {
	broken, err := CheckWords(tree(map[string]string{
		"ucp/a.go":               "package p\n\n// A stranger meets nobody.\nvar dropStrangers, askNobody = 1, `stranger`\n",
		"uct/sm/a.go":            "package p\n\nvar askQueue int // that it asks for\n",
		"docs/a.md":              "fine\nIt leaves word with whoever comes.\n",
		"ucp/testdata/a.go":      "package stranger",
		"internal/archtest/a.go": "package stranger",
	}), Words)
	require.NoError(t, err)
	assert.Equal(t, []string{
		`docs/a.md:2: "leaves word": write posts an event, or sets a word`,
		`docs/a.md:2: "whoever": write the caller, or who it is`,
		`ucp/a.go:3: "stranger": write untrusted peer`,
		`ucp/a.go:4: askNobody: write activate, cooldown, noAttention, invalidQPN`,
		`ucp/a.go:4: dropStrangers: write untrusted peer`,
		`uct/sm/a.go:3: askQueue: write targetOp, segments`,
	}, broken)
}
