// Package quantity reads numbers and lists of them on a command line.
//
// A list has numbers and ranges with commas between them: "8,1k", "1-1m", "1-1m/4". A range multiplies by
// 2, or by the number behind the slash, and includes its upper end only if a step hits it. Of sizes k, m
// and g are powers of 1024; of counts, powers of 1000.
package quantity

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/gucx/gucx/ucs/config"
)

// Sizes parses a list of sizes in bytes, each in the range from least to most. The result is ascending, without
// duplicates.
func Sizes(list string, least, most int) (sizes []int, err error) {
	sizes, err = parseList(list, func(text string) (int, error) { return parseSize(text, least, most) })
	if err != nil {
		return nil, err
	}
	slices.Sort(sizes)
	return slices.Compact(sizes), nil
}

// Error is an invalid text with the expected form.
type Error struct{ Wanted string }

// Error implements error.
func (e *Error) Error() string { return "want " + e.Wanted }

var (
	errRange  = &Error{"LOW-HIGH or LOW-HIGH/FACTOR, with LOW of 1 or more and a factor of 2 or more"}
	errFactor = &Error{"a range before the factor"}
	errSize   = &Error{"a number of bytes, with k, m or g"}
	errCount  = &Error{"a whole number"}
	errLarge  = &Error{"a smaller number"}
)

func parseList(list string, parse func(string) (int, error)) (numbers []int, err error) {
	for _, part := range strings.Split(list, ",") {
		more, err := parseRange(part, parse)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", part, err)
		}
		numbers = append(numbers, more...)
	}
	return numbers, nil
}

func parseRange(part string, parse func(string) (int, error)) (numbers []int, err error) {
	bounds, factorText, hasFactor := strings.Cut(part, "/")
	loText, hiText, isRange := strings.Cut(bounds, "-")
	switch {
	case !isRange && hasFactor:
		return nil, errFactor
	}
	lo, err := parse(loText)
	if err != nil || !isRange {
		return []int{lo}, err
	}
	hi, err := parse(hiText)
	if err != nil {
		return nil, err
	}
	factor := 2
	if hasFactor {
		if factor, err = parseCount(factorText); err != nil {
			return nil, err
		}
	}
	if factor < 2 || lo < 1 || hi < lo {
		return nil, errRange
	}
	for n := lo; n <= hi; n *= factor {
		numbers = append(numbers, n)
		if n > math.MaxInt/factor {
			break
		}
	}
	return numbers, nil
}

// parseSize parses one size in the grammar of the environment.
func parseSize(text string, least, most int) (int, error) {
	var m config.MemSize
	if m.UnmarshalText([]byte(text)) != nil {
		return 0, errSize
	}
	n := m.Bytes(0)
	if n > uint64(most) || int(n) < least {
		return 0, fmt.Errorf("outside %d..%d", least, most)
	}
	return int(n), nil
}

var units = map[byte]int{'k': 1e3, 'm': 1e6, 'g': 1e9}

// parseCount parses a number.
func parseCount(text string) (int, error) {
	unit := 1
	if n := len(text); n > 0 && units[text[n-1]|0x20] > 0 {
		unit = units[text[n-1]|0x20]
		text = text[:n-1]
	}
	n, err := strconv.Atoi(text)
	switch {
	case errors.Is(err, strconv.ErrRange) || n > math.MaxInt/unit || n < math.MinInt/unit:
		return 0, errLarge
	case err != nil:
		return 0, errCount
	}
	return n * unit, nil
}

// Count adds a flag with a number, such as 20k or 1m.
func Count(f *pflag.FlagSet, to *int, name, letter string, value int, usage string) {
	*to = value
	f.VarP((*count)(to), name, letter, usage)
}

type count int

func (c *count) String() string { return strconv.Itoa(int(*c)) }
func (c *count) Type() string   { return "number" }
func (c *count) Set(text string) (err error) {
	n, err := parseCount(text)
	if err == nil {
		*c = count(n)
	}
	return err
}

// Counts adds a flag with a list of numbers, such as 1,2,4 or 1-16. If the flag occurs several times, the lists are
// joined.
func Counts(f *pflag.FlagSet, to *[]int, name, letter string, value []int, usage string) {
	*to = value
	f.VarP(&list{to: to, parse: func(text string) ([]int, error) { return parseList(text, parseCount) }}, name, letter, usage)
}

// SizeList adds a flag with a list of sizes in bytes from 1 to most.
func SizeList(f *pflag.FlagSet, to *[]int, most int, name, letter string, value []int, usage string) {
	*to = value
	f.VarP(&list{to: to, parse: func(text string) ([]int, error) { return Sizes(text, 1, most) }}, name, letter, usage)
}

// list implements pflag.Value and pflag.SliceValue.
type list struct {
	to    *[]int
	set   bool
	parse func(string) ([]int, error)
}

func (l *list) Type() string   { return "numbers" }
func (l *list) String() string { return strings.Join(l.GetSlice(), ",") }

func (l *list) Set(text string) error {
	numbers, err := l.parse(text)
	switch {
	case err != nil:
		return err
	case l.set:
		*l.to = append(*l.to, numbers...)
	default:
		*l.to, l.set = numbers, true
	}
	return nil
}

// Append implements pflag.SliceValue.
func (l *list) Append(text string) error {
	numbers, err := l.parse(text)
	*l.to = append(*l.to, numbers...)
	return err
}

// Replace implements pflag.SliceValue.
func (l *list) Replace(texts []string) error {
	numbers, err := l.parse(strings.Join(texts, ","))
	if err == nil {
		*l.to = numbers
	}
	return err
}

// GetSlice implements pflag.SliceValue.
func (l *list) GetSlice() []string {
	texts := []string{}
	if l.to == nil {
		return texts
	}
	for _, n := range *l.to {
		texts = append(texts, strconv.Itoa(n))
	}
	return texts
}
