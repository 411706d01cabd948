package wireup

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
)

// Explain lists, for each role, the candidates with their scores (per second,
// higher is better) and what these are made of, or the criterion that failed. Those that
// are chosen have a star, and their part of the work where several share it.
func Explain(local, remote *Address, reach Reacher, rails Rails) string {
	var b strings.Builder
	fmt.Fprintf(&b, "worker %#x to worker %#x\n", local.UUID(), remote.UUID())
	for role := range Role(roleEnd) {
		explainRole(&b, role, local, remote, reach, rails)
	}
	return b.String()
}

func explainRole(b *strings.Builder, role Role, local, remote *Address, reach Reacher, rails Rails) {
	fmt.Fprintf(b, "%s: score is 1 / (%s)\n", role, role.terms())
	cands := Rank(role, local, remote, reach)
	if len(cands) == 0 {
		b.WriteString("  no transport is open\n")
	}
	chosen := choose(role, local, remote, cands, rails, func(int, int) bool { return false })
	var sum uint64
	for _, c := range chosen {
		sum += c.Bandwidth
	}
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, c := range cands {
		mark, result := " ", c.Why
		if c.Why == "" {
			l, r := &local.Resources[c.Local], &remote.Resources[c.Remote]
			result = fmt.Sprintf("score %.0f\t%v", c.Score, CostOf(role, l, r))
			if slices.Contains(chosen, c) {
				mark = "*"
				if len(chosen) > 1 {
					result += fmt.Sprintf(", %d%% of the work", 100*c.Bandwidth/sum)
				}
			}
		}
		fmt.Fprintf(t, "%s %s\t%s\t%s\n", mark, resourceName(local, c.Local), resourceName(remote, c.Remote), result)
	}
	t.Flush() // a strings.Builder does not fail
}

// resourceName names a resource. The device of a peer's resource is unknown on this side.
func resourceName(a *Address, i int) string {
	if i < 0 {
		return "-"
	}
	r := &a.Resources[i]
	if r.Device == "" {
		return fmt.Sprintf("%s[%d]", r.Transport, i)
	}
	return fmt.Sprintf("%s/%s[%d]", r.Transport, r.Device, i)
}
