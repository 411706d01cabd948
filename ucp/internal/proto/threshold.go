package proto

import (
	"fmt"

	"github.com/gucx/gucx/uct"
)

// Eager has the costs of eager messages.
type Eager struct {
	Cost  uct.Cost // cost of one call, with the copies of both sides
	One   int      // maximum data of one call, in bytes
	Piece int      // maximum data of a fragment, in bytes
	// Slowest is the bandwidth of the slowest part when fragments follow each other, a copy or
	// the link, in bytes per second.
	Slowest uint64
}

// Copies returns the costs of messages that both sides copy, at copied bytes per second
// each (0: m includes the copies), over a link of link bytes per second.
func Copies(m uct.Cost, link, copied uint64, one, piece int) Eager {
	if copied == 0 || link == 0 {
		return Eager{Cost: m, One: one, Piece: piece, Slowest: m.Bandwidth}
	}
	m.Bandwidth = scale(link, copied, copied+2*link)
	m.SharedBandwidth = 0
	return Eager{Cost: m, One: one, Piece: piece, Slowest: min(link, copied)}
}

// Time returns the time until n bytes are in the buffer of the receive, in picoseconds.
func (v *Eager) Time(n int) uint64 {
	if n <= max(v.One, v.Piece) {
		return v.Cost.Time(uint64(n))
	}
	rest := uint64(n - v.Piece)
	pieces := (rest + uint64(v.Piece) - 1) / uint64(v.Piece)
	follow := uct.Cost{Bandwidth: v.Slowest}
	return v.Cost.Time(uint64(v.Piece)) + follow.Time(rest) + pieces*uint64(max(v.Cost.Send, v.Cost.Recv))*1000
}

// announcing is the cost of a rendezvous at both sides in addition to the operations of
// transports, in picoseconds: ids, records, keys and credit. It was 290 ns on the CPU of experiment 0076 in docs/perf, and is 330 to 800 ns
// on that of experiment 0154.
const announcing = 450_000

// ShortestAnnounced is the minimum result of ThresholdOf, in bytes.
const ShortestAnnounced = 1 << 10

// Threshold is a length in bytes from which messages use rendezvous, and the reason for it.
type Threshold struct {
	From int
	Why  string
}

// ThresholdOf returns the length, from least to most, from which rendezvous takes no longer
// than eager. It returns most if there is none: the receiver grants credit
// for a few messages of that length, and longer ones would delay later messages. rndv returns the time of
// the data from the receive on, rts is the time of the RTS, both in picoseconds.
func ThresholdOf(least, most int, eager *Eager, rts uint64, rndv func(n int) uint64) Threshold {
	announced := func(n int) uint64 { return rts + rndv(n) + announcing }
	pays := func(n int) bool { return announced(n) <= eager.Time(n) }
	if !pays(most) {
		return Threshold{most, fmt.Sprintf("larger ones would delay later messages; %d ns, eager %d ns",
			announced(most)/1000, eager.Time(most)/1000)}
	}
	least = max(least, ShortestAnnounced)
	from := most
	for from > least && pays(max(from/2, least)) {
		from = max(from/2, least)
	}
	if below := max(from/2, least); below < from { // rendezvous pays at from, and not at below
		from = crossing(below, from, pays)
	}
	return Threshold{from, fmt.Sprintf("%d ns, eager %d ns", announced(from)/1000, eager.Time(from)/1000)}
}

// crossing returns a length n between no and yes for which pays(n) is true and pays(n-1) is false. pays(no) must be false and
// pays(yes) must be true.
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
