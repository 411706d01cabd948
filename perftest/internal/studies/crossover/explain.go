package crossover

import (
	"math"
	"regexp"
	"strconv"
	"strings"
)

// Ranges are the protocols of messages by length, ascending.
type Ranges []Range

// Range is the protocol of messages of up to Max bytes.
type Range struct {
	Max      int
	Protocol string
}

// Find returns the protocol of n bytes; "" if there is none.
func (r Ranges) Find(n int) string {
	for _, x := range r {
		if n <= x.Max {
			return x.Protocol
		}
	}
	return ""
}

// Protocols has the ranges of active messages and of all other messages in a class of memory.
type Protocols struct{ Active, Others Ranges }

// Find returns the protocol of n bytes in a test; "" if there is none.
func (p *Protocols) Find(test string, n int) string {
	if strings.HasPrefix(test, "am_") {
		return p.Active.Find(n)
	}
	return p.Others.Find(n)
}

// headings are the titles of the tables of messages in the text of EP.Explain, by class of memory.
var headings = map[string]string{"alloc": "buffers of MemAlloc", "mapped": "buffers of MemMap", "plain": "buffers that are not registered"}

// rangeLine matches a line of such a table.
var rangeLine = regexp.MustCompile(`^ +\d+\.\.(\d+|inf) +(\w+) +(\w+)`)

// Explained returns the protocols of messages in a class of memory from the text of EP.Explain. A rendezvous has the name of
// its scheme. The text has a table of active messages if their protocols differ.
func Explained(text, memory string) *Protocols {
	p := &Protocols{Others: rangesBelow(text, "messages", memory), Active: rangesBelow(text, "active messages", memory)}
	if p.Active == nil {
		p.Active = p.Others
	}
	return p
}

// rangesBelow returns the ranges in the table of messages in a class of memory; nil if there is no such table.
func rangesBelow(text, messages, memory string) (ranges Ranges) {
	title := regexp.MustCompile(`(?m)^` + messages + ` over .*, ` + regexp.QuoteMeta(headings[memory]) + ":\n")
	at := title.FindStringIndex(text)
	if at == nil {
		return nil
	}
	table := text[at[1]:]
	for line := range strings.Lines(table) {
		m := rangeLine.FindStringSubmatch(line)
		switch {
		case m == nil && strings.HasPrefix(line, "  "):
			continue // another reason for the previous range
		case m == nil:
			return ranges
		}
		r := Range{Max: math.MaxInt, Protocol: m[2]}
		if m[1] != "inf" {
			r.Max, _ = strconv.Atoi(m[1]) // digits
		}
		if r.Protocol == "rndv" {
			r.Protocol = m[3]
		}
		ranges = append(ranges, r)
	}
	return ranges
}
