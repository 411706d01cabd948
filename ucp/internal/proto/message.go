package proto

import (
	"math"
	"strconv"
)

// Messages has the protocols of messages over a transport, by their lengths in bytes.
type Messages struct {
	Short     int    // maximum for one short call
	Copy      int    // maximum for one bcopy
	MinZcopy  int    // minimum for zcopy; math.MaxInt if there is none
	MaxZcopy  int    // maximum for zcopy
	Piece     int    // maximum of a fragment
	Announced int    // minimum for rendezvous
	Why       string // reason for Announced; may be empty
	// Scheme returns the scheme of a rendezvous message of a length, and the reason.
	Scheme func(n int) (Scheme, string)
}

// longestExplained is the maximum length for which Table computes the scheme of a rendezvous message, in
// bytes.
const longestExplained = 1 << 30

// Table lists the ranges of lengths of messages for which there is credit.
func (m *Messages) Table() Table {
	var b builder
	limit := m.Announced - 1
	b.add(Range{Max: min(m.Short, limit), Protocol: Short, Piece: m.Short, Why: "in one call"})
	b.add(Range{Max: min(m.Copy, m.MinZcopy-1, limit), Protocol: Bcopy, Piece: m.Copy, Why: "one copy"})
	if m.MinZcopy <= m.MaxZcopy {
		b.add(Range{Max: min(m.MaxZcopy, limit), Protocol: Zcopy, Piece: m.MaxZcopy, Why: "cheaper than a copy"})
	}
	b.add(Range{Max: limit, Protocol: Bcopy, Piece: m.Piece, Why: "in fragments of " + strconv.Itoa(m.Piece) + " bytes"})
	m.announced(&b)
	return b.table
}

// announced adds the ranges of rendezvous messages, with bounds at powers of two.
func (m *Messages) announced(b *builder) {
	scheme, why := m.Scheme(m.Announced)
	if m.Why != "" {
		why += "; threshold: " + m.Why
	}
	for n := 1; n <= longestExplained; n *= 2 {
		if n <= m.Announced {
			continue
		}
		if next, text := m.Scheme(n); next != scheme {
			b.add(Range{Max: n - 1, Protocol: Rndv, Piece: n, Why: scheme.String() + ", " + why})
			scheme, why = next, text
		}
	}
	b.add(Range{Max: math.MaxInt, Protocol: Rndv, Piece: math.MaxInt, Why: scheme.String() + ", " + why})
}
