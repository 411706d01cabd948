package proto

import (
	"fmt"

	"github.com/gucx/gucx/uct"
)

// Eager is what messages take that are not announced.
type Eager struct {
	Cost  uct.Cost // of one call, with the copies of both sides
	One   int      // longest data of one call
	Piece int      // longest data of a fragment
	// Slowest is the bandwidth of what is slowest when fragments follow each other: a copy, or
	// the link.
	Slowest uint64
}

// Copies are the costs of messages that are copied by both sides, at copied bytes per second
// each (0: they are in m already), around a link of link bytes per second.
func Copies(m uct.Cost, link, copied uint64, one, piece int) Eager {
	if copied == 0 || link == 0 {
		return Eager{Cost: m, One: one, Piece: piece, Slowest: m.Bandwidth}
	}
	m.Bandwidth = scale(link, copied, copied+2*link)
	m.SharedBandwidth = 0
	return Eager{Cost: m, One: one, Piece: piece, Slowest: min(link, copied)}
}

// Time is what n bytes take until they are in the receive's buffer, in picoseconds.
func (v *Eager) Time(n int) uint64 {
	if n <= max(v.One, v.Piece) {
		return v.Cost.Time(uint64(n))
	}
	rest := uint64(n - v.Piece)
	pieces := (rest + uint64(v.Piece) - 1) / uint64(v.Piece)
	follow := uct.Cost{Bandwidth: v.Slowest}
	return v.Cost.Time(uint64(v.Piece)) + follow.Time(rest) + pieces*uint64(max(v.Cost.Send, v.Cost.Recv))*1000
}

// announcing is what both sides do for an announced message besides what the operations of
// transports cost, in picoseconds: IDs, records, keys and credit; see
// experiment 0076 in docs/perf.
const announcing = 290_000

// ShortestAnnounced is where ThresholdOf stops to look, in bytes.
const ShortestAnnounced = 1 << 10

// Threshold is a length from which on messages are announced, and why.
type Threshold struct {
	From int
	Why  string
}

// ThresholdOf is the length, from least to most, from which on announcing a message takes no longer
// than sending it at once. It is most if there is none: the receiver grants bytes
// for a few messages of that length, and longer ones would hold up those behind them. rndv is what
// the data takes from the receive on, in picoseconds, and tell what the announcement takes.
func ThresholdOf(least, most int, eager *Eager, tell uint64, rndv func(n int) uint64) Threshold {
	announced := func(n int) uint64 { return tell + rndv(n) + announcing }
	pays := func(n int) bool { return announced(n) <= eager.Time(n) }
	if !pays(most) {
		return Threshold{most, fmt.Sprintf("more would hold up what follows; %d ns, at once %d ns",
			announced(most)/1000, eager.Time(most)/1000)}
	}
	least = max(least, ShortestAnnounced)
	from := most
	for from > least && pays(max(from/2, least)) {
		from = max(from/2, least)
	}
	if below := max(from/2, least); below < from { // it pays at from, and not at below
		from = crossing(below, from, pays)
	}
	return Threshold{from, fmt.Sprintf("%d ns, at once %d ns", announced(from)/1000, eager.Time(from)/1000)}
}

// crossing is the least length found for which pays is true, between one for which it is not
// and one for which it is.
func crossing(no, yes int, pays func(n int) bool) int {
	for yes-no > 1 {
		if mid := no + (yes-no)/2; pays(mid) {
			yes = mid
		} else {
			no = mid
		}
	}
	return yes
}
