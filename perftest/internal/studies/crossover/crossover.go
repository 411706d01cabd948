// Package crossover compares the protocol that ucp selects for a message by cost with all other possible protocols.
package crossover

import (
	"cmp"
	"slices"

	"github.com/gucx/gucx/perftest/internal/measure/result"
)

// Auto is the name of the selection by cost.
const Auto = "auto"

// key identifies a row.
type key struct {
	transport, memory, test string
	size                    int
}

// Row is a test of messages of one size over one transport. Times are nanoseconds per message: the minimum of the
// rounds.
type Row struct {
	Transport string             `json:"transport"`
	Memory    string             `json:"memory"`
	Test      string             `json:"test"`
	Size      int                `json:"size"`
	Uses      string             `json:"uses"` // protocol selected by auto, according to EP.Explain
	NS        map[string]float64 `json:"ns"`   // by protocol
	// Protocol with the shortest time, and additional time of auto, in percent.
	Best    string  `json:"best"`
	LossPct float64 `json:"loss_pct"`
}

// Table has a row for each transport, class of memory, test and size.
type Table struct {
	Rows  []Row
	index map[key]int
}

// Add adds records of runs in a class of memory. layer returns the protocol of a record, and uses the protocol that
// Explain shows for a test and a size. A time replaces a longer one of the same protocol.
func (t *Table) Add(memory string, records []result.Record, protocol func(layer string) string, uses func(test string, size int) string) {
	if t.index == nil {
		t.index = map[key]int{}
	}
	for _, r := range records {
		k := key{r.Transport, memory, r.Test, r.Size}
		i, known := t.index[k]
		if !known {
			i = len(t.Rows)
			t.index[k] = i
			t.Rows = append(t.Rows, Row{Transport: r.Transport, Memory: memory, Test: r.Test, Size: r.Size,
				Uses: uses(r.Test, r.Size), NS: map[string]float64{}})
		}
		t.Rows[i].add(protocol(r.Layer), r.LeastNS)
	}
}

func (r *Row) add(protocol string, ns float64) {
	if old, known := r.NS[protocol]; !known || ns < old {
		r.NS[protocol] = ns
	}
	r.Best = Auto
	for name, ns := range r.NS {
		if best := r.NS[r.Best]; best == 0 || ns < best || ns == best && name < r.Best {
			r.Best = name
		}
	}
	r.LossPct = 0
	if best := r.NS[r.Best]; best > 0 {
		r.LossPct = max(0, 100*(r.NS[Auto]/best-1))
	}
}

// Over returns the rows in which auto loses more than limit percent, with the greatest loss first.
func (t *Table) Over(limit float64) []Row {
	rows := slices.DeleteFunc(slices.Clone(t.Rows), func(r Row) bool { return r.LossPct <= limit })
	slices.SortStableFunc(rows, func(a, b Row) int { return cmp.Compare(b.LossPct, a.LossPct) })
	return rows
}

// SizesOver returns the sizes, ascending, at which auto loses more than limit percent in a test over a transport with a
// class of memory.
func (t *Table) SizesOver(limit float64, transport, memory, test string) (sizes []int) {
	for _, r := range t.Rows {
		if r.LossPct > limit && r.Transport == transport && r.Memory == memory && r.Test == test {
			sizes = append(sizes, r.Size)
		}
	}
	slices.Sort(sizes)
	return sizes
}

// Sizes returns the powers of two from least to most, and the means between them.
func Sizes(least, most int) (sizes []int) {
	for n := least; n <= most; n *= 2 {
		sizes = append(sizes, n)
		if m := n + n/2; m < most && n > 1 {
			sizes = append(sizes, m)
		}
	}
	return sizes
}
