package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/gucx/gucx/perftest/internal/measure/result"
	"github.com/gucx/gucx/perftest/internal/show/sheet"
)

const (
	// fewest is the share of the operations below which neighboring bins are merged.
	fewest = 1e-3
	// barWidth is the length of the longest bar, in characters.
	barWidth = 10
)

// histograms writes a table for each test, size and transport whose records have distributions: a
// row for each bin, a column for each layer.
func histograms(records []result.Record, f form) (all []string) {
	type cell struct {
		test, transport string
		size            int
	}
	var order []cell
	groups := map[cell][]result.Record{}
	for _, r := range records {
		c := cell{r.Test, r.Transport, r.Size}
		if len(r.Histogram) == 0 || !r.Latency() {
			continue
		}
		if groups[c] == nil {
			order = append(order, c)
		}
		groups[c] = append(groups[c], r)
	}
	for _, c := range order {
		title := fmt.Sprintf("%s of %s over %s: share of the operations by their time", c.test, sizeText(c.size), c.transport)
		all = append(all, f.wrap(title)+"\n"+drawHistogram(groups[c], f))
	}
	return all
}

// drawHistogram writes the table of the layers of one cell.
func drawHistogram(layers []result.Record, f form) string {
	t := table.NewWriter()
	head := table.Row{"From", "To"}
	configs := []table.ColumnConfig{{Number: 1, Align: text.AlignRight, AlignHeader: text.AlignRight}, {Number: 2, Align: text.AlignRight, AlignHeader: text.AlignRight}}
	for _, r := range layers {
		head = append(head, r.Layer)
		configs = append(configs, table.ColumnConfig{Number: len(head), Align: text.AlignLeft})
	}
	t.AppendHeader(head)
	t.SetColumnConfigs(configs)
	bins := commonBins(layers)
	highest := 0.0
	for _, b := range bins {
		highest = max(highest, slices.Max(b.shares))
	}
	for _, b := range bins {
		row := table.Row{sheet.Nanoseconds(b.lo), sheet.Nanoseconds(b.hi)}
		for _, s := range b.shares {
			row = append(row, shareText(s, highest))
		}
		t.AppendRow(row)
	}
	if f.name == "md" {
		return t.RenderMarkdown()
	}
	return sheet.Draw(t, math.MaxInt)
}

// shareText formats a share in percent with a bar, which has its full length for the highest share.
func shareText(share, highest float64) string {
	if share == 0 {
		return ""
	}
	return fmt.Sprintf("%5.2f %s", 100*share, strings.Repeat("█", int(share/highest*barWidth+0.5)))
}

// binRow is a bin of all layers.
type binRow struct {
	lo, hi float64
	shares []float64 // share of the operations of each layer
}

// rare reports whether the bin is rare in each layer.
func (b *binRow) rare() bool { return slices.Max(b.shares) < fewest }

// commonBins lists the bins of layers in ascending order. Neighboring rare bins are merged.
func commonBins(layers []result.Record) (rows []binRow) {
	totals := make([]float64, len(layers))
	byBound := map[float64]*binRow{}
	var bounds []float64
	for i, r := range layers {
		for _, b := range r.Histogram {
			totals[i] += float64(b.Count)
			if byBound[b.LoNS] == nil {
				byBound[b.LoNS] = &binRow{lo: b.LoNS, hi: b.HiNS, shares: make([]float64, len(layers))}
				bounds = append(bounds, b.LoNS)
			}
			byBound[b.LoNS].shares[i] += float64(b.Count)
		}
	}
	slices.Sort(bounds)
	merging := false
	for _, lo := range bounds {
		b := byBound[lo]
		for i := range b.shares {
			b.shares[i] /= totals[i]
		}
		rare := b.rare()
		if !rare || !merging {
			rows = append(rows, *b)
			merging = rare
			continue
		}
		last := &rows[len(rows)-1]
		last.hi = b.hi
		for i, s := range b.shares {
			last.shares[i] += s
		}
	}
	return rows
}
