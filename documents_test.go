package gucx

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/archtest"
	"github.com/gucx/gucx/ucs/config"
)

// variableName finds variables, and what stands for all that begin so: GUCX_RC_*.
var variableName = regexp.MustCompile(`GUCX_[A-Z0-9_]+\*?`)

// ofTests are variables that the tests and benchmarks of single packages read.
var ofTests = []string{"GUCX_TEST_SOAK", "GUCX_TEST_SWEEP", "GUCX_TEST_CONNECTX", "GUCX_BENCH", "GUCX_UCP_IDLE", "GUCX_UCP_WAKE"}

// history names variables that are gone.
const history = "CHANGELOG.md"

// TestDocuments_Variables: documents name variables that there are.
func TestDocuments_Variables(t *testing.T) {
	cfg, err := FromEnv(nil, Own{})
	require.NoError(t, err)
	var printed strings.Builder
	require.NoError(t, config.Print(&printed, config.PrintOptions{}, cfg.Tables()...))
	known := "\n" + printed.String() + strings.Join(ofTests, "=\n") + "=\n"
	documents, err := archtest.Documents(os.DirFS("."))
	require.NoError(t, err)
	found := 0
	for _, d := range documents {
		if d == history {
			continue
		}
		text, err := os.ReadFile(d)
		require.NoError(t, err)
		for _, name := range variableName.FindAllString(string(text), -1) {
			found++
			want := "\n" + name + "="
			if prefix, all := strings.CutSuffix(name, "*"); all {
				want = "\n" + prefix
			}
			assert.True(t, strings.Contains(known, want), "%s: there is no %s", d, name)
		}
	}
	assert.NotZero(t, found)
}

// testName finds names of tests in documents.
var testName = regexp.MustCompile("`(Test[A-Z][A-Za-z0-9_]*)`")

// operations is the document whose claims name tests.
const operations = "docs/operations.md"

// TestDocuments_Operations: the tests that docs/operations.md names exist, and each row of its tables names one. A table
// without the column for it follows a paragraph that names one for all rows.
func TestDocuments_Operations(t *testing.T) {
	text, err := os.ReadFile(operations)
	require.NoError(t, err)
	missing := map[string]bool{}
	for _, m := range testName.FindAllStringSubmatch(string(text), -1) {
		missing["func "+m[1]+"("] = true
	}
	require.NotEmpty(t, missing)
	require.NoError(t, filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for name := range missing {
			if strings.Contains(string(source), name) {
				delete(missing, name)
			}
		}
		return err
	}))
	assert.Empty(t, missing, operations)
	rows, before := 0, ""
	for _, block := range strings.Split(string(text), "\n\n") {
		if table := strings.Split(strings.TrimSpace(block), "\n"); strings.HasPrefix(block, "| ") {
			if !strings.HasSuffix(table[0], "| tested by |") {
				assert.Regexp(t, testName, before, "the table %s", table[0])
				continue
			}
			for _, row := range table[2:] {
				rows++
				cells := strings.Split(row, " | ")
				assert.Regexp(t, testName, cells[len(cells)-1])
			}
		}
		before = block
	}
	assert.Greater(t, rows, 30)
}
