package selection

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// Reacher reports whether local resource l can be connected to remote resource r;
// why names the criterion that failed. The result must not change.
type Reacher func(l, r int) (ok bool, why string)

// Candidate is a pair of resources that was considered for a role.
type Candidate struct {
	Local  int // index of the local resource
	Remote int // index of the remote resource; -1 if the peer has none of that transport
	// Score is in 1/s, higher is better; 0 if the pair cannot be used.
	Score float64
	// Bandwidth for the role in bytes per second; 0 if the pair cannot be used.
	Bandwidth uint64
	// Why is the criterion that failed; empty if the pair can be used.
	Why string
}

// needs are the capabilities that both sides must have, by role.
var needs = [...]uct.Caps{
	wireup.RMA:   uct.CapPutBcopy | uct.CapGetBcopy | uct.CapPending,
	wireup.RMABW: uct.CapPutZcopy | uct.CapGetZcopy | uct.CapPending,
	wireup.AMO:   uct.CapAtomic64 | uct.CapPending,
	wireup.AM:    uct.CapAMBcopy | uct.CapPending,
	wireup.AMBW:  uct.CapAMBcopy | uct.CapPending,
	wireup.Aux:   uct.CapAMBcopy | uct.CapPending | uct.CapConnectIface,
}

// minAuxBcopy is the smallest AM size in bytes for a handshake message: header, one
// lane, and the address of a worker with a few resources.
const minAuxBcopy = 512

// Rails limits the number of lanes of the bandwidth roles; 0 means one.
type Rails struct {
	RMA int // of RMABW
	AM  int // of AMBW
}

// MaxRails is the upper limit of the fields of Rails; larger values count as MaxRails.
const MaxRails = 4

// Of returns how many lanes a role may have.
func (n Rails) Of(role wireup.Role) int {
	switch role {
	case wireup.RMABW:
		return max(1, min(n.RMA, MaxRails))
	case wireup.AMBW:
		return max(1, min(n.AM, MaxRails))
	}
	return 1
}

// maxRatio is the largest ratio of the bandwidth of the best lane of a role to that of another one, as in UCX.
// A slower lane would carry too little data to justify its handshake.
const maxRatio = 4

// Chosen returns the pairs that a role would have, best first.
func Chosen(role wireup.Role, local, remote *wireup.Address, reach Reacher, rails Rails) []Candidate {
	return Choose(role, local, remote, Rank(role, local, remote, reach), rails, func(int, int) bool { return false })
}

// Choose returns the best candidates of a role, at most as many as the role may have lanes,
// without the excluded ones. Both sides choose the same ones.
func Choose(role wireup.Role, local, remote *wireup.Address, ranked []Candidate, rails Rails, excluded func(l, r int) bool) (chosen []Candidate) {
	for _, c := range ranked {
		if len(chosen) == rails.Of(role) || c.Why != "" {
			break
		}
		if !excluded(c.Local, c.Remote) && addsBandwidth(local, remote, chosen, c) {
			chosen = append(chosen, c)
		}
	}
	return chosen
}

// addsBandwidth reports whether a pair adds bandwidth to the chosen ones: it uses another
// device and the same transport. Different transports may share a link, for example tcp over the
// network of a RoCE device, or the CPU that copies the data.
func addsBandwidth(local, remote *wireup.Address, chosen []Candidate, c Candidate) bool {
	l, r := &local.Resources[c.Local], &remote.Resources[c.Remote]
	for i, x := range chosen {
		xl, xr := &local.Resources[x.Local], &remote.Resources[x.Remote]
		if shareDevice(local, l, xl) || shareDevice(remote, r, xr) {
			return false
		}
		if l.Transport != xl.Transport {
			return false
		}
		if i == 0 && c.Bandwidth <= (x.Bandwidth-1)/maxRatio { // c.Bandwidth*maxRatio may overflow
			return false
		}
	}
	return true
}

// shareDevice reports whether two resources of an address use one device. Two transports may
// open it as two memory domains.
func shareDevice(a *wireup.Address, x, y *wireup.Resource) bool {
	twice := x.Transport != y.Transport && a.MDs[x.MD].Component == a.MDs[y.MD].Component
	return (x.MD == y.MD || twice) && bytes.Equal(x.DeviceAddr, y.DeviceAddr)
}

// Rank lists the candidates for role, best first, then those that cannot be used,
// with the criterion that failed. Ties are broken by priority, then by name, then
// by the indices of the worker with the smaller UUID, then by the other indices. Both sides
// compute the same order.
func Rank(role wireup.Role, local, remote *wireup.Address, reach Reacher) []Candidate {
	var cands []Candidate
	for l := range local.Resources {
		found := false
		for r := range remote.Resources {
			if local.Resources[l].Transport == remote.Resources[r].Transport {
				found = true
				cands = append(cands, evaluate(role, local, remote, l, r, reach))
			}
		}
		if !found {
			cands = append(cands, Candidate{Local: l, Remote: -1, Why: "the peer does not have this transport"})
		}
	}
	slices.SortFunc(cands, func(a, b Candidate) int { return compare(local, remote, a, b) })
	return cands
}

// evaluate applies the criteria to a pair, the cheapest first, and computes its score.
func evaluate(role wireup.Role, local, remote *wireup.Address, l, r int, reach Reacher) Candidate {
	c := Candidate{Local: l, Remote: r}
	if c.Why = Unfit(role, &local.Resources[l], &remote.Resources[r]); c.Why != "" {
		return c
	}
	if ok, why := reach(l, r); !ok {
		c.Why = "unreachable: " + strings.TrimPrefix(why, ucs.ErrUnreachable.Error()+": ")
		return c
	}
	c.Score = score(role, &local.Resources[l], &remote.Resources[r])
	c.Bandwidth = Bandwidth(role, &local.Resources[l], &remote.Resources[r])
	return c
}

// Unfit returns the criterion by which a pair of resources cannot have a role; empty if there is none. It does not
// check whether they reach each other.
func Unfit(role wireup.Role, l, r *wireup.Resource) string {
	caps := l.Caps & r.Caps
	switch {
	case role != wireup.Aux && (l.AuxOnly || r.AuxOnly):
		return "open for handshakes only"
	case !caps.Has(needs[role]):
		return "no " + (needs[role] &^ caps).String()
	case caps&(uct.CapConnectIface|uct.CapConnectEP) == 0:
		return "both sides must be able to connect"
	case caps&uct.CapLossy != 0:
		return "loses messages"
	case role == wireup.Aux && min(l.AMBcopy, r.AMBcopy).Bytes() < minAuxBcopy:
		return "messages too small for a handshake"
	case role == wireup.AMO && l.Domain != r.Domain:
		return "atomic domains differ"
	case role == wireup.AMO && !(l.Fetch64 & r.Fetch64).Has(uct.AtomicCSwap):
		return "no 64-bit compare-and-swap"
	}
	return ""
}

func compare(local, remote *wireup.Address, a, b Candidate) int {
	la, lb := &local.Resources[a.Local], &local.Resources[b.Local]
	if c := cmp.Compare(b.Score, a.Score); c != 0 {
		return c
	}
	if a.Remote >= 0 && b.Remote >= 0 {
		pa := int(la.Priority) + int(remote.Resources[a.Remote].Priority)
		pb := int(lb.Priority) + int(remote.Resources[b.Remote].Priority)
		if c := cmp.Compare(pb, pa); c != 0 {
			return c
		}
	}
	if c := cmp.Compare(la.Transport, lb.Transport); c != 0 {
		return c
	}
	first, second := cmp.Compare(a.Local, b.Local), cmp.Compare(a.Remote, b.Remote)
	if remote.UUID() < local.UUID() {
		first, second = second, first
	}
	return cmp.Or(first, second)
}
