package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/perftest/internal/studies/paper"
)

// The pages of papers, and their results: the output of their commands.
const (
	paperPages   = "../../../docs/papers"
	paperResults = paperPages + "/results.json"
)

// paperPage matches the part of a page that perftest paper has written.
var paperPage = regexp.MustCompile(`(?s)<!-- perftest paper (\S+) -o page -->\n(.*?)<!-- end -->`)

// demoted moves headings one level down, as the page has a title.
func demoted(text string) string {
	return strings.ReplaceAll("\n"+text, "\n#", "\n##")
}

// The pages are equal to the stored results, which this test does not measure again.
func TestPaperPages(t *testing.T) {
	for _, p := range paper.Papers() {
		file := filepath.Join(paperPages, p.Name+".md")
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		store, err := paper.OpenStore(paperResults, "", true)
		require.NoError(t, err)
		assert.Empty(t, paper.Todo([]*paper.Paper{p}, store), "%s: commands without results", p.Name)
		res, err := store.Results()
		require.NoError(t, err)
		var b bytes.Buffer
		require.NoError(t, paper.Page(&b, []*paper.Paper{p}, res))
		want := demoted(b.String()) + "\n"
		at := paperPage.FindStringSubmatchIndex(string(text))
		require.NotNil(t, at, file)
		assert.Equal(t, p.Name, string(text[at[2]:at[3]]))
		if *rewrite {
			anew := string(text[:at[4]]) + want + string(text[at[5]:])
			require.NoError(t, os.WriteFile(file, []byte(anew), 0o644))
			continue
		}
		assert.Equal(t, want, string(text[at[4]:at[5]]), "%s differs from its results: go test -run TestPaperPages -rewrite", file)
	}
}

// quickCommands are the commands of a page that each test run repeats.
var quickCommands = []string{"perftest endpoints --resources", "perftest msgrate --model connectx4 --share none --ways 16", "perftest dgemm --model connectx4 --tile-rows 16"}

// Predictions in virtual time and counts are the same on each machine. Most commands take long, and run only in
// the soak. Numbers of instructions change with the code, and are then measured again with the page.
func TestPaperPages_CommandsPrintTheResults(t *testing.T) {
	testenv.SkipShort(t, "virtual time has one goroutine")
	store, err := paper.OpenStore(paperResults, "", true)
	require.NoError(t, err)
	again := 0
	for _, p := range paper.Papers() {
		for i := range p.Figures {
			f := &p.Figures[i]
			if f.How != paper.Virtual && f.ID != "2a" {
				continue
			}
			for _, r := range f.Runs() {
				if !quickCommand(r.Command()) && !testenv.Soak() || r.Lines {
					continue
				}
				code, out, errs := perftest(t, append(r.Words(), "-q", "-o", "csv")...)
				require.Equal(t, exitOK, code, errs)
				assert.Equal(t, store.Output[r.Command()], out, r.Command())
				again++
			}
		}
	}
	assert.NotZero(t, again)
}

func quickCommand(command string) bool {
	for _, q := range quickCommands {
		if strings.HasPrefix(command, q) {
			return true
		}
	}
	return false
}
