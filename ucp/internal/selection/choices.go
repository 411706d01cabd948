package selection

import (
	"fmt"
	"slices"

	"github.com/gucx/gucx/wireup"
)

// Choices lists, for each role, the candidates and which of them are chosen.
func Choices(local, remote *wireup.Address, reach Reacher, rails Rails) []wireup.Choice {
	var all []wireup.Choice
	for role := range wireup.Aux + 1 {
		all = append(all, choiceOf(role, local, remote, reach, rails))
	}
	return all
}

func choiceOf(role wireup.Role, local, remote *wireup.Address, reach Reacher, rails Rails) wireup.Choice {
	choice := wireup.Choice{Role: role, Terms: terms(role)}
	cands := Rank(role, local, remote, reach)
	chosen := Choose(role, local, remote, cands, rails, func(int, int) bool { return false })
	var sum uint64
	for _, c := range chosen {
		sum += c.Bandwidth
	}
	for _, c := range cands {
		p := wireup.Pair{Local: resourceName(local, c.Local), Remote: resourceName(remote, c.Remote), Score: c.Score, Why: c.Why}
		if c.Why == "" {
			p.Cost = costOf(role, &local.Resources[c.Local], &remote.Resources[c.Remote])
		}
		if p.Chosen = slices.Contains(chosen, c); p.Chosen && len(chosen) > 1 {
			p.Percent = int(100 * c.Bandwidth / sum)
		}
		choice.Pairs = append(choice.Pairs, p)
	}
	return choice
}

// resourceName names a resource. The device of a peer's resource is unknown on this side.
func resourceName(a *wireup.Address, i int) string {
	if i < 0 {
		return "-"
	}
	r := &a.Resources[i]
	if r.Device == "" {
		return fmt.Sprintf("%s[%d]", r.Transport, i)
	}
	return fmt.Sprintf("%s/%s[%d]", r.Transport, r.Device, i)
}
