package cli

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCompletion_ListsValuesOfFlags checks the completions of a shell for the given words.
func TestCompletion_ListsValuesOfFlags(t *testing.T) {
	for _, c := range []struct {
		words string // "|" is the beginning of the last word
		want  []string
	}{
		{"-x |rc", []string{"rc", "rc_mlx5"}},
		{"-x |sm,tc", []string{"sm,tcp"}},
		{"-t |put_lat,get_m", []string{"put_lat,get_mr"}},
		{"-t |put_lat,put_l", nil},
		{"-t |al", []string{"all"}},
		{"--layers |ucp-r", []string{"ucp-resolve", "ucp-resolve-idle-tx", "ucp-resolve-idle-ud"}},
		{"--layers |a", []string{"averbs"}},
		{"-D |", []string{"short", "bcopy", "zcopy", "contig", "iov", "generic"}},
		{"-f |", []string{"shm", "loop"}},
		{"-o |c", []string{"csv"}},
		{"-E |", []string{"poll", "sleep"}},
		{"-s |8", []string{"8", "8k", "8m", "8g"}},
		{"-s |1k-64", []string{"1k-64", "1k-64k", "1k-64m", "1k-64g"}},
		{"-s |", nil},
		{"-d |softhca", []string{"softhca0:1"}},
		{"-c |", []string{"auto", "off"}},
		{"--counters=|b", []string{"--counters=bpf"}},
		{"client -x |tc", []string{"tcp"}},
		{"info -t |ud", []string{"ud", "ud_mlx5"}},
		{"endpoints --categories |Static,MPI+", []string{"Static,MPI+threads"}},
		{"endpoints --uar-policy |", []string{"lazy", "static"}},
		{"msgrate --share |cq,q", []string{"cq,qp"}},
		{"msgrate --features |pos", []string{"postlist"}},
		{"dgemm --model |", []string{"connectx4"}},
		{"stencil -o |j", []string{"json"}},
		{"instructions --ops |fa", []string{"fadd", "fadd_window"}},
		{"instructions --fabric |s", []string{"shm"}},
		{"compare-ucx --only |self/am", []string{"self/am_lat/8/short"}},
	} {
		t.Run(c.words, func(t *testing.T) {
			before, last, _ := strings.Cut(c.words, "|")
			words := strings.Fields(before)
			if strings.HasSuffix(before, "=") {
				last = words[len(words)-1] + last
				words = words[:len(words)-1]
			}
			code, out, errs := perftest(t, with([]string{"__complete"}, append(words, last)...)...)
			require.Equal(t, exitOK, code, errs)
			lines := strings.Split(strings.TrimSpace(out), "\n")
			got := lines[:len(lines)-1] // the last line is the directive for the shell
			if c.want == nil {
				assert.Empty(t, got)
				return
			}
			require.Len(t, got, len(c.want))
			for i, w := range c.want { // flags with short forms complete only their value
				c.want[i] = strings.TrimPrefix(w, "--counters=")
				got[i] = strings.TrimPrefix(got[i], "--counters=")
			}
			assert.Equal(t, c.want, got)
		})
	}
}
