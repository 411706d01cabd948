package proto

import (
	"math"
	"strconv"
)

// Messages say how messages go over a transport, by their lengths in bytes.
type Messages struct {
	Short     int    // longest in one short call
	Copy      int    // longest by one copy
	Bare      int    // least and
	MostBare  int    // greatest length without a copy; Bare is math.MaxInt if there is none
	Piece     int    // longest fragment
	Announced int    // least length that is announced, and
	Why       string // that; may be empty
	// Scheme is how the data of an announced message of a length comes, and why.
	Scheme func(n int) (Scheme, string)
}

// longestExplained is the length from which on the scheme of an announced message is not
// looked at again, in bytes.
const longestExplained = 1 << 30

// Table lists the ranges of lengths of messages for which there is credit.
func (m *Messages) Table() Table {
	var b builder
	limit := m.Announced - 1
	b.add(Range{Max: min(m.Short, limit), Protocol: Short, Piece: m.Short, Why: "in one call"})
	b.add(Range{Max: min(m.Copy, m.Bare-1, limit), Protocol: Bcopy, Piece: m.Copy, Why: "one copy"})
	if m.Bare <= m.MostBare {
		b.add(Range{Max: min(m.MostBare, limit), Protocol: Zcopy, Piece: m.MostBare, Why: "cheaper than a copy"})
	}
	b.add(Range{Max: limit, Protocol: Bcopy, Piece: m.Piece, Why: "in fragments of " + strconv.Itoa(m.Piece) + " bytes"})
	m.announced(&b)
	return b.table
}

// announced adds the ranges of announced messages, to powers of two.
func (m *Messages) announced(b *builder) {
	scheme, why := m.Scheme(m.Announced)
	if m.Why != "" {
		why += "; announced from here on: " + m.Why
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
