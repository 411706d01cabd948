package wireup

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// Choice lists the pairs of resources that were considered for a role, best first, then those that
// cannot be used.
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
