package archtest

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSnippets checks that the code in documents is the code of the examples.
func TestSnippets(t *testing.T) {
	for _, document := range []string{"README.md", "docs/guide.md"} {
		broken, err := CheckSnippets(os.DirFS("../.."), document)
		require.NoError(t, err)
		for _, b := range broken {
			t.Error(b)
		}
	}
}

// TestCheckSnippets checks that CheckSnippets accepts blocks with other indentation and omitted lines, and reports
// blocks whose lines differ or are in another order.
func TestCheckSnippets(t *testing.T) {
	broken, err := CheckSnippets(tree(map[string]string{
		"a.go": "func a() {\n\tone()\n\ttwo()\n\tthree()\n}\n",
		"doc.md": "```go a.go\none()\n\ttwo()\n```\n" +
			"```go a.go\none()\n// ...\nthree()\n```\n" +
			"```go a.go\nthree()\n// ...\none()\n```\n" +
			"```go a.go\none()\nthree()\n```\n" +
			"```go b.go\none()\n```\n" +
			"```go\none()\n```\n" +
			"```\nanything\n```\n",
	}), "doc.md")
	require.NoError(t, err)
	assert.Equal(t, []string{
		`doc.md:10: a.go has no such lines: "one()"`,
		`doc.md:15: a.go has no such lines: "one()"`,
		`doc.md:19: open b.go: file does not exist`,
		`doc.md:22: the snippet names no file`,
	}, broken)
}
