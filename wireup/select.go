package wireup

import (
	"cmp"
	"slices"

	"github.com/gucx/gucx/uct"
)

// Reacher reports whether local resource l can be connected to remote resource r;
// why names the criterion that failed. It must give the same answer each time.
type Reacher func(l, r int) (ok bool, why string)

// Candidate is a pair of resources that was considered for a purpose.
type Candidate struct {
	Local  int // index of the local resource
	Remote int // index of the remote resource; -1 if the peer has none of that transport
	// Score is in 1/s, higher is better; 0 if the pair cannot be used.
	Score float64
	// Why is the criterion that failed; empty if the pair can be used.
	Why string
}

// rmaSize is the message by which put and get lanes are compared, as in UCX: large
// enough that bandwidth counts and small enough that latency does too.
const rmaSize = 4096

// needs are the capabilities that both sides must have, by purpose.
var needs = [purposeEnd]uct.Caps{
	RMA: uct.CapPutBcopy | uct.CapGetBcopy | uct.CapPending,
	AMO: uct.CapAtomic64 | uct.CapPending,
	AM:  uct.CapAMBcopy | uct.CapPending,
	Aux: uct.CapAMBcopy | uct.CapPending | uct.CapConnectIface,
}

// minAuxBcopy is the least AM size that carries a handshake message: header, one
// lane, and the address of a worker with a handful of resources.
const minAuxBcopy = 512

// Cost is what a pair of resources costs for a purpose, in picoseconds: the terms
// of its score.
type Cost struct {
	Latency  uint64 // one way; the mean of both sides
	Overhead uint64 // of the CPU: the mean of both sides for rma and amo, the sum for am and aux
	Transfer uint64 // of rmaSize bytes at the smaller bandwidth; 0 but for rma
}

// CostOf is the cost of a pair for a purpose. It does not depend on who computes
// it. It is made of whole picoseconds: floating point may be rounded differently on
// another architecture.
func CostOf(p Purpose, l, r *Resource) Cost {
	c := Cost{
		Latency:  (uint64(l.Latency) + uint64(r.Latency)) * 500,
		Overhead: (uint64(l.Overhead) + uint64(r.Overhead)) * 500,
	}
	switch p {
	case RMA:
		c.Transfer = rmaSize * 1e12 / max(1, min(l.Bandwidth, r.Bandwidth))
	case AM, Aux:
		c.Overhead *= 2
	}
	return c
}

// Score is the figure of merit of a pair for a purpose, in 1/s: the inverse of the
// sum of its cost.
func Score(p Purpose, l, r *Resource) float64 {
	c := CostOf(p, l, r)
	return 1e12 / float64(max(c.Latency+c.Overhead+c.Transfer, 1))
}

// Rank lists the candidates for p, best first, then those that cannot be used
// with the criterion that failed. Ties are broken by priority, then by name, then
// by the indices with those of the worker with the smaller uuid first: both sides
// get the same order.
func Rank(p Purpose, local, remote *Address, reach Reacher) []Candidate {
	var cands []Candidate
	for l := range local.Resources {
		found := false
		for r := range remote.Resources {
			if local.Resources[l].Transport == remote.Resources[r].Transport {
				found = true
				cands = append(cands, judge(p, local, remote, l, r, reach))
			}
		}
		if !found {
			cands = append(cands, Candidate{Local: l, Remote: -1, Why: "the peer does not have this transport"})
		}
	}
	slices.SortFunc(cands, func(a, b Candidate) int { return compare(local, remote, a, b) })
	return cands
}

// judge applies the criteria in the order of their cost.
func judge(p Purpose, local, remote *Address, l, r int, reach Reacher) Candidate {
	c := Candidate{Local: l, Remote: r}
	if c.Why = unfit(p, &local.Resources[l], &remote.Resources[r]); c.Why != "" {
		return c
	}
	if ok, why := reach(l, r); !ok {
		c.Why = "unreachable: " + why
		return c
	}
	c.Score = Score(p, &local.Resources[l], &remote.Resources[r])
	return c
}

func unfit(p Purpose, l, r *Resource) string {
	caps := l.Caps & r.Caps
	switch {
	case p != Aux && (l.AuxOnly || r.AuxOnly):
		return "open for handshakes only"
	case !caps.Has(needs[p]):
		return "no " + (needs[p] &^ caps).String()
	case caps&(uct.CapConnectIface|uct.CapConnectEP) == 0:
		return "no way to connect"
	case caps&uct.CapLossy != 0:
		return "loses messages"
	case p == Aux && min(l.AMBcopy, r.AMBcopy) < minAuxBcopy:
		return "messages too short for a handshake"
	case p == AMO && l.Atomic.Domain != r.Atomic.Domain:
		return "atomic domains differ"
	case p == AMO && !(l.Atomic.Fetch64 & r.Atomic.Fetch64).Has(uct.AtomicCSwap):
		return "no 64-bit compare-and-swap"
	}
	return ""
}

func compare(local, remote *Address, a, b Candidate) int {
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
	if remote.UUID < local.UUID {
		first, second = second, first
	}
	return cmp.Or(first, second)
}
