// Package proto chooses the protocol of an operation for each length, with
// the reason. It is pure: its inputs are the attributes of a lane's transport and
// the configuration. Endpoints whose lanes are over the same transport share a table.
package proto

import (
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"

	"github.com/gucx/gucx/uct"
)

// Protocol is how an operation transfers its bytes.
type Protocol uint8

// Protocols.
const (
	None  Protocol = iota // the operation is not possible
	Short                 // the CPU copies the bytes before the call returns
	Bcopy                 // through a buffer of the transport
	Zcopy                 // the transport accesses the caller's memory, without a copy
	Rndv                  // rendezvous: the data follows when a receive has matched
)

var protocolNames = [...]string{"none", "short", "bcopy", "zcopy", "rndv"}

// String returns "short", "bcopy", "zcopy", "rndv" or "none".
func (p Protocol) String() string { return protocolNames[p] }

// Range is the protocol for lengths of Min to Max bytes.
type Range struct {
	Min, Max int
	Protocol Protocol
	// Piece is the maximum length of one call; a longer operation needs several calls.
	Piece int
	// Least is the minimum length of one call; Bcopy transfers a shorter rest.
	Least int
	Why   string
}

// Single reports whether one call is enough for all lengths of the range.
func (r *Range) Single() bool { return r.Max <= r.Piece }

// Table has the ranges of an operation in the order of their lengths, from 1 byte, without
// gaps, up to math.MaxInt.
type Table []Range

// Find returns the range of n bytes, n > 0.
func (t Table) Find(n int) *Range {
	for i := range t {
		if n <= t[i].Max {
			return &t[i]
		}
	}
	return &t[len(t)-1]
}

// Longest returns the maximum length that one call transfers by p; -1 if there is none.
func (t Table) Longest(p Protocol) int {
	longest := -1
	for i := range t {
		if t[i].Protocol == p && t[i].Single() {
			longest = t[i].Max
		}
	}
	return longest
}

// Shortest returns the minimum length that p transfers; math.MaxInt if there is none.
func (t Table) Shortest(p Protocol) int {
	for i := range t {
		if t[i].Protocol == p {
			return t[i].Min
		}
	}
	return math.MaxInt
}

// Variants has the calls of a transport for an operation.
type Variants struct {
	Short, Bcopy, Zcopy  bool
	Limits               uct.OpLimits
	BcopyCost, ZcopyCost uct.Cost // costs of Bcopy and Zcopy
}

// cheaper returns the minimum length up to n for which Zcopy is cheaper than Bcopy; n+1 if there is none.
func (v *Variants) cheaper(n int) int {
	return 1 + sort.Search(n, func(i int) bool { return v.ZcopyCost.Time(uint64(i)+1) < v.BcopyCost.Time(uint64(i)+1) })
}

// Config is the configuration of the user.
type Config struct {
	// ZcopyThresh is the length from which Zcopy is used if it is possible; 0 means
	// the length from which it is cheaper, by the declared costs of the transport.
	ZcopyThresh int
}

// Choose makes the table of an operation. If registered is false, the transport cannot
// access the buffer.
func Choose(v *Variants, registered bool, cfg Config) Table {
	l := &v.Limits
	var b builder
	if v.Short {
		b.add(Range{Max: l.MaxShort, Protocol: Short, Piece: l.MaxShort, Why: fmt.Sprintf("up to %d bytes in one call", l.MaxShort)})
	}
	thresh, why := v.cheaper(l.MaxBcopy), "cheaper than a copy"
	switch {
	case cfg.ZcopyThresh > 0:
		thresh, why = cfg.ZcopyThresh, "ZCOPY_THRESH="+strconv.Itoa(cfg.ZcopyThresh)
	case thresh > l.MaxBcopy:
		why = "longer than one bcopy of " + strconv.Itoa(l.MaxBcopy) + " bytes"
	}
	thresh = max(thresh, l.MinZcopy)
	zcopy := v.Zcopy && registered && l.MaxZcopy > 0
	limit := math.MaxInt
	if zcopy && v.Bcopy {
		limit = thresh - 1
	}
	if v.Bcopy {
		text := "one copy"
		if !zcopy && v.Zcopy {
			text = "the buffer is not registered"
		}
		b.pieces(Range{Protocol: Bcopy, Max: limit, Piece: l.MaxBcopy, Least: 1, Why: text})
	}
	if zcopy {
		b.pieces(Range{Protocol: Zcopy, Max: math.MaxInt, Piece: l.MaxZcopy, Least: max(l.MinZcopy, 1), Why: why})
	}
	if v.Short { // if there is no other protocol for larger lengths
		b.pieces(Range{Protocol: Short, Max: math.MaxInt, Piece: l.MaxShort, Why: "nothing else"})
	}
	b.add(Range{Max: math.MaxInt, Protocol: None, Piece: math.MaxInt, Why: "the transport has no call for it"})
	return b.table
}

// builder adds ranges one after the other.
type builder struct{ table Table }

// add appends a range, which begins after the last one.
func (b *builder) add(r Range) {
	r.Min = 1
	if n := len(b.table); n > 0 {
		if b.table[n-1].Max == math.MaxInt {
			return
		}
		r.Min = b.table[n-1].Max + 1
	}
	if r.Piece > 0 && r.Max >= r.Min {
		b.table = append(b.table, r)
	}
}

// pieces adds a range for one call, and a range for several.
func (b *builder) pieces(r Range) {
	one := r
	one.Max = min(r.Max, r.Piece)
	b.add(one)
	r.Why += "; in pieces of " + strconv.Itoa(r.Piece) + " bytes"
	b.add(r)
}

// String returns a line for each range; see Line.
func (t Table) String() string {
	var text strings.Builder
	for i := range t {
		r := &t[i]
		text.WriteString(Line(r.Min, r.Max, r.Protocol.String(), r.Why))
	}
	return text.String()
}

// Line describes a range: "    97..8256    bcopy  one copy"; each further reason, behind a semicolon, has a line
// of its own below. math.MaxInt stands for no limit.
func Line(least, most int, protocol, why string) string {
	to := strconv.Itoa(most)
	if most == math.MaxInt {
		to = "inf"
	}
	why = strings.ReplaceAll(why, "; ", fmt.Sprintf(";\n%34s", ""))
	return fmt.Sprintf("  %10d..%-12s %-6s %s\n", least, to, protocol, why)
}
