package cli

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPaper_Refuses(t *testing.T) {
	refuses(t, "paper", map[string]string{
		"":                 "want a paper",
		"nature":           `paper "nature": there are endpoints`,
		"endpoints 99":     `figure "99" of endpoints`,
		"endpoints -o pdf": `unknown output format "pdf"`,
	})
}

func TestPaper_ListsCommands(t *testing.T) {
	code, out, errs := perftest(t, "paper", "all", "--list")
	require.Equal(t, exitOK, code, errs)
	assert.Contains(t, out, "$ perftest dgemm --model connectx4 --tile-rows 16")
}

// A figure is measured once; further output formats use the results of the file.
func TestPaper_ResultsFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results.json")
	for range 2 {
		code, out, errs := perftest(t, "paper", "endpoints", "table1", "-q", "--results", file, "-o", "csv")
		require.Equal(t, exitOK, code, errs)
		assert.Contains(t, out, "endpoints,table1,CQ of depth 64,8.4 KiB,9.0 KiB,")
	}
}
