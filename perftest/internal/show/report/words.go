package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gucx/gucx/perftest/internal/measure/result"
)

// inWords describes the differences between layers for each test, at one size: a sentence per line, with the transport
// if there are several. It omits layers that differ from the one below by no more than the rounds differ from each
// other.
func inWords(records []result.Record) string {
	var lines []string
	transports := result.Transports(records)
	for _, test := range result.Tests(records) {
		for _, transport := range transports {
			line := sentence(atOneSize(test, transport, records))
			if line != "" && len(transports) > 1 {
				line = transport + ": " + line
			}
			if line != "" {
				lines = append(lines, line)
			}
		}
	}
	return strings.Join(lines, "\n")
}

// wordSize is the size in bytes of the sentences: small operations show the cost of layers best.
const wordSize = 8

// atOneSize returns the records of a test and transport at wordSize, or at the smallest available size.
func atOneSize(test, transport string, records []result.Record) (chosen []result.Record) {
	size := math.MaxInt
	for _, r := range records {
		if r.Test == test && r.Transport == transport && (r.Size == wordSize || size != wordSize && r.Size < size) {
			size = r.Size
		}
	}
	for _, r := range records {
		if r.Test == test && r.Transport == transport && r.Size == size {
			chosen = append(chosen, r)
		}
	}
	return chosen
}

// sentence compares the layers of records of one test and size, from the highest to the lowest.
func sentence(records []result.Record) string {
	var parts []string
	for _, r := range slices.Backward(records) {
		if !r.Added() {
			continue
		}
		parts = append(parts, added(&r, len(parts) == 0))
	}
	if len(parts) == 0 {
		return ""
	}
	return strings.Join(parts, "; ") + "."
}

// least is the difference in nanoseconds below which no number is given.
const least = 0.5

// added describes the difference between a layer and the one below; with the operation if named is set.
func added(r *result.Record, named bool) string {
	what := ""
	if named {
		what = " " + operation(r)
	}
	ns, pct := math.Abs(r.OverNS), math.Abs(r.OverPct)
	upper, lower := written(r.Layer), written(r.Over)
	switch {
	case ns < least:
		return fmt.Sprintf("%s adds less than 1 ns%s over %s", upper, prefixed(" to", what), lower)
	case r.OverNS < 0:
		return fmt.Sprintf("%s is %s ns (%s to %s), %.0f %%, faster than %s%s", upper, formatWhole(ns), formatWhole(-r.OverHiNS), formatWhole(-r.OverLoNS), pct, lower, prefixed(" in", what))
	}
	return fmt.Sprintf("%s adds %s ns (%s to %s), %.0f %%,%s over %s", upper, formatWhole(ns), formatWhole(r.OverLoNS), formatWhole(r.OverHiNS), pct, prefixed(" to", what), lower)
}

// written returns the name of a layer in text: "verbs" and "averbs" are not abbreviations, and ucp-resolve is a variant
// of a layer.
func written(layer string) string {
	if strings.HasSuffix(layer, "verbs") || isVariant(layer) {
		return layer
	}
	return strings.ToUpper(layer)
}

// prefixed prepends a word to a text that is not empty.
func prefixed(word, text string) string {
	if text == "" {
		return ""
	}
	return word + text
}

// formatWhole formats nanoseconds without insignificant digits.
func formatWhole(ns float64) string {
	if math.Abs(ns) < 9.95 {
		return fmt.Sprintf("%.1f", ns)
	}
	return fmt.Sprintf("%.0f", ns)
}

// operation describes the measured operation: "an 8-byte put".
func operation(r *result.Record) string {
	name := nouns[r.Test]
	if name == "" {
		name, _, _ = strings.Cut(r.Test, "_")
	}
	if r.Size == 0 {
		return "a " + name
	}
	text := fmt.Sprintf("%s %s-byte %s", article(r.Size), strconv.Itoa(r.Size), name)
	if !r.Latency() {
		text += fmt.Sprintf(" in windows of %d", r.Window)
	}
	return text
}

// nouns are the operations of tests whose names do not begin with them.
var nouns = map[string]string{
	"put_pp": "put of a ping-pong", "am_lat": "message of a ping-pong", "am_bw": "message", "am_mr": "message",
	"add_lat": "atomic add", "add_mr": "atomic add", "fadd_lat": "fetch-and-add", "fadd_mr": "fetch-and-add",
	"cswap_lat": "compare-and-swap", "cswap_mr": "compare-and-swap",
}

// article returns the article of a number: an 8, an 11, an 18, an 80 and more.
func article(n int) string {
	text := strconv.Itoa(n)
	for len(text) > 3 { // thousands come first
		text = text[:len(text)-3]
	}
	if text[0] == '8' || text == "11" || text == "18" {
		return "an"
	}
	return "a"
}
