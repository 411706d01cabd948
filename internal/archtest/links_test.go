package archtest

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
)

// TestLinks checks that the files exist that documents link to or name.
func TestLinks(t *testing.T) {
	testenv.SkipRace(t, "one goroutine reads all files")
	root := os.DirFS("../..")
	documents, err := Documents(root)
	require.NoError(t, err)
	require.Contains(t, documents, "docs/guide.md")
	for _, d := range documents {
		broken, err := CheckLinks(root, d)
		require.NoError(t, err)
		for _, b := range broken {
			t.Error(b)
		}
	}
}

func TestCheckLinks(t *testing.T) {
	broken, err := CheckLinks(tree(map[string]string{
		"ucp/internal/engine/spin.go": "package engine",
		"docs/a.md":                   "",
		"docs/b.md": "[here](a.md), [code](../ucp/internal), [part](a.md#part), [below](#below), [site](https://example.org)\n" +
			"[gone](c.md) and [gone](../a.md)\n" +
			"`engine/spin.go`, `ucp/internal/engine/spin.go`, `util.go`\n" +
			"`ucp/spin.go`\n",
	}), "docs/b.md")
	require.NoError(t, err)
	assert.Equal(t, []string{
		"docs/b.md:2: link to c.md, which is not there",
		"docs/b.md:2: link to ../a.md, which is not there",
		"docs/b.md:4: ucp/spin.go is not there",
	}, broken)
}
