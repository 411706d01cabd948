package cli

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/archtest"
)

// commandLine matches perftest and its arguments, without the explanation.
var commandLine = regexp.MustCompile(`^(?:[A-Z_0-9]+=\S+ |taskset -c \S+ |chrt -r 1 |mpiexec -n \d+ |srun --mpi=pmi2 -n \d+ |go run )*(?:\S*/)?perftest( .*)?$`)

// requireFlags checks that the command and the flags of line exist. It returns false if line is not a command.
func requireFlags(t *testing.T, line string) bool {
	line, _, _ = strings.Cut(strings.TrimSpace(line), "  ")
	line, _, _ = strings.Cut(line, " # ")
	line = strings.TrimSuffix(line, " \\")
	found := commandLine.FindStringSubmatch(line)
	if found == nil || strings.ContainsAny(line, "[&>|") {
		return false
	}
	args := strings.Fields(strings.ReplaceAll(found[1], "'", ""))
	cmd, rest, err := Program{Name: defaultName}.newRoot(nil).Find(args)
	require.NoError(t, err, line)
	cmd.InitDefaultHelpFlag()
	err = cmd.ParseFlags(rest)
	if assert.NoError(t, err, line) {
		assert.NoError(t, cmd.ValidateArgs(cmd.Flags().Args()), line)
	}
	return true
}

// TestExamples_OfHelp: commands in the help use existing flags.
func TestExamples_OfHelp(t *testing.T) {
	root := Program{Name: defaultName}.newRoot(nil)
	for _, c := range append([]*cobra.Command{root}, root.Commands()...) {
		if c.Hidden || c.Name() == "help" || c.Name() == "completion" {
			continue
		}
		if c.IsAdditionalHelpTopicCommand() {
			continue
		}
		text, found := c.Example, 0
		if c == root {
			text += "\n" + examples
		}
		for line := range strings.SplitSeq(text, "\n") {
			if requireFlags(t, line) {
				found++
			}
		}
		assert.NotZero(t, found, "%s has no example", c.Name())
	}
}

// TestExamples_OfDocuments: commands on separate lines in documents use existing flags.
func TestExamples_OfDocuments(t *testing.T) {
	root := "../../.."
	documents, err := archtest.Documents(os.DirFS(root))
	require.NoError(t, err)
	found := 0
	for _, d := range documents {
		text, err := os.ReadFile(root + "/" + d)
		require.NoError(t, err)
		for line := range strings.SplitSeq(string(text), "\n") {
			if strings.HasPrefix(line, "    ") && requireFlags(t, line) {
				found++
			}
		}
	}
	assert.Greater(t, found, 30)
}
