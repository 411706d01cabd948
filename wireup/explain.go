package wireup

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
)

// Choice lists the pairs of resources that were considered for a role, in the order of [Rank].
type Choice struct {
	Role  Role   `json:"role"`
	Terms string `json:"terms"` // the score of a pair is 1 / (Terms)
	Pairs []Pair `json:"pairs"`
}

// Pair is a pair of resources that was considered for a role.
type Pair struct {
	Local   string   `json:"local"`             // transport, device and index: "tcp/eth0[2]"
	Remote  string   `json:"remote"`            // the same without the device; "-" if the peer has none of that transport
	Chosen  bool     `json:"chosen"`            // the role uses the pair
	Percent int      `json:"percent,omitempty"` // its share of the data; 0 if the role has one pair
	Score   float64  `json:"score,omitempty"`   // in 1/s, higher is better; 0 if the pair cannot be used
	Cost    PairCost `json:"cost,omitzero"`     // the terms of the score
	Why     string   `json:"why,omitempty"`     // the criterion that failed; empty if the pair can be used
}

// Choices lists, for each role, the candidates and which of them are chosen.
func Choices(local, remote *Address, reach Reacher, rails Rails) []Choice {
	all := make([]Choice, roleEnd)
	for role := range Role(roleEnd) {
		all[role] = choiceOf(role, local, remote, reach, rails)
	}
	return all
}

func choiceOf(role Role, local, remote *Address, reach Reacher, rails Rails) Choice {
	choice := Choice{Role: role, Terms: role.terms()}
	cands := Rank(role, local, remote, reach)
	chosen := choose(role, local, remote, cands, rails, func(int, int) bool { return false })
	var sum uint64
	for _, c := range chosen {
		sum += c.Bandwidth
	}
	for _, c := range cands {
		p := Pair{Local: resourceName(local, c.Local), Remote: resourceName(remote, c.Remote), Score: c.Score, Why: c.Why}
		if c.Why == "" {
			p.Cost = CostOf(role, &local.Resources[c.Local], &remote.Resources[c.Remote])
		}
		if p.Chosen = slices.Contains(chosen, c); p.Chosen && len(chosen) > 1 {
			p.Percent = int(100 * c.Bandwidth / sum)
		}
		choice.Pairs = append(choice.Pairs, p)
	}
	return choice
}

// String lists the pairs, one per line, with the score and its terms, or with the criterion that
// failed. A star marks the chosen pairs.
func (c Choice) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: score is 1 / (%s)\n", c.Role, c.Terms)
	if len(c.Pairs) == 0 {
		b.WriteString("  no transport is open\n")
	}
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, p := range c.Pairs {
		mark, result := " ", p.Why
		if p.Why == "" {
			result = fmt.Sprintf("score %.0f\t%v", p.Score, p.Cost)
		}
		if p.Chosen {
			mark = "*"
		}
		if p.Percent > 0 {
			result += fmt.Sprintf(", %d%% of the data", p.Percent)
		}
		fmt.Fprintf(t, "%s %s\t%s\t%s\n", mark, p.Local, p.Remote, result)
	}
	t.Flush() // a strings.Builder does not fail
	return b.String()
}

// Explain returns the Choices as text.
func Explain(local, remote *Address, reach Reacher, rails Rails) string {
	var b strings.Builder
	fmt.Fprintf(&b, "worker %#x to worker %#x\n", local.UUID(), remote.UUID())
	for _, c := range Choices(local, remote, reach, rails) {
		b.WriteString(c.String())
	}
	return b.String()
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
