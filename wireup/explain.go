package wireup

import (
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Explain lists, for each purpose, the candidates with their scores (per second,
// higher is better) and what these are made of, or the criterion that failed. The
// first usable one is chosen.
func Explain(local, remote *Address, reach Reacher) string {
	var b strings.Builder
	fmt.Fprintf(&b, "worker %#x to worker %#x\n", local.UUID, remote.UUID)
	for p := range purposeEnd {
		explainPurpose(&b, p, local, remote, reach)
	}
	return b.String()
}

func explainPurpose(b *strings.Builder, p Purpose, local, remote *Address, reach Reacher) {
	fmt.Fprintf(b, "%s:\n", p)
	cands := Rank(p, local, remote, reach)
	if len(cands) == 0 {
		b.WriteString("  no transport is open\n")
	}
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for i, c := range cands {
		mark, verdict := " ", c.Why
		if c.Why == "" {
			verdict = fmt.Sprintf("score %.0f\t%v", c.Score, CostOf(p, &local.Resources[c.Local], &remote.Resources[c.Remote]))
			if i == 0 {
				mark = "*"
			}
		}
		fmt.Fprintf(t, "%s %s\t%s\t%s\n", mark, resourceName(local, c.Local), resourceName(remote, c.Remote), verdict)
	}
	t.Flush() // a strings.Builder does not fail
}

// String lists the terms, in nanoseconds.
func (c Cost) String() string {
	ns := func(ps uint64) string { return strconv.FormatFloat(float64(ps)/1000, 'f', -1, 64) + " ns" }
	s := "latency " + ns(c.Latency) + " + overhead " + ns(c.Overhead)
	if c.Transfer > 0 {
		s += fmt.Sprintf(" + %d bytes %s", rmaSize, ns(c.Transfer))
	}
	return s
}

func resourceName(a *Address, i int) string {
	if i < 0 {
		return "-"
	}
	r := &a.Resources[i]
	return fmt.Sprintf("%s/%s[%d]", r.Transport, r.Device, i)
}
