package paper

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Table contains the rows of a command's results: a value for each column.
type Table []map[string]string

// Results are the tables of commands.
type Results map[string]Table

// errAbsent is the error if a command has not run.
var errAbsent = errors.New("not measured")

// Value computes a number from results.
type Value struct {
	runs []*Run
	of   func(Results) (float64, error)
}

// pick returns the number in a column of the only row of a run that has the given values: "share=cq,ways=16".
func pick(r *Run, where, column string) Value {
	return Value{[]*Run{r}, func(res Results) (float64, error) {
		table, ok := res[r.Command()]
		if !ok {
			return 0, errAbsent
		}
		rows := table.where(where)
		if len(rows) != 1 {
			return 0, fmt.Errorf("%s: %d rows with %s", r.Command(), len(rows), where)
		}
		return number(rows[0], column)
	}}
}

// sum adds a column over all rows of a run that have the given values; 0 if there are none.
func sum(r *Run, where, column string) Value {
	return Value{[]*Run{r}, func(res Results) (total float64, err error) {
		table, ok := res[r.Command()]
		if !ok {
			return 0, errAbsent
		}
		for _, row := range table.where(where) {
			v, err := number(row, column)
			if err != nil {
				return 0, err
			}
			total += v
		}
		return total, nil
	}}
}

// extreme returns the largest or smallest value of a column; better decides.
func extreme(r *Run, where, column string, better func(a, b float64) float64) Value {
	return Value{[]*Run{r}, func(res Results) (float64, error) {
		rows := res[r.Command()].where(where)
		if len(rows) == 0 {
			return 0, errAbsent
		}
		best, err := number(rows[0], column)
		for _, row := range rows[1:] {
			v, e := number(row, column)
			best, err = better(best, v), errors.Join(err, e)
		}
		return best, err
	}}
}

func largest(r *Run, where, column string) Value  { return extreme(r, where, column, math.Max) }
func smallest(r *Run, where, column string) Value { return extreme(r, where, column, math.Min) }

func number(row map[string]string, column string) (float64, error) {
	text, ok := row[column]
	if !ok {
		return 0, fmt.Errorf("no column %q", column)
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, fmt.Errorf("column %s: %w", column, err)
	}
	return v, nil
}

// where selects rows by a list of column=value; a column may have several values, separated by |.
func (t Table) where(list string) (rows Table) {
next:
	for _, row := range t {
		for cond := range strings.SplitSeq(list, ",") {
			name, values, _ := strings.Cut(cond, "=")
			if list != "" && !oneOf(row[name], values) {
				continue next
			}
		}
		rows = append(rows, row)
	}
	return rows
}

func oneOf(value, values string) bool {
	for v := range strings.SplitSeq(values, "|") {
		if v == value {
			return true
		}
	}
	return false
}

// calc combines two values.
func calc(a, b Value, f func(a, b float64) float64) Value {
	return Value{append(a.runs[:len(a.runs):len(a.runs)], b.runs...), func(res Results) (float64, error) {
		x, err := a.of(res)
		if err != nil {
			return 0, err
		}
		y, err := b.of(res)
		return f(x, y), err
	}}
}

func over(a, b Value) Value  { return calc(a, b, func(a, b float64) float64 { return a / b }) }
func minus(a, b Value) Value { return calc(a, b, func(a, b float64) float64 { return a - b }) }
func plus(a, b Value) Value  { return calc(a, b, func(a, b float64) float64 { return a + b }) }

// change returns the relative difference of a to b.
func change(a, b Value) Value { return calc(a, b, func(a, b float64) float64 { return a/b - 1 }) }

// scaled multiplies a value.
func scaled(a Value, by float64) Value {
	return Value{a.runs, func(res Results) (float64, error) {
		x, err := a.of(res)
		return by * x, err
	}}
}

// Unit is the format of numbers.
type Unit string

// Units.
const (
	Count    Unit = ""
	Times    Unit = "x"
	Percent  Unit = "%" // the value is a fraction of one
	Points   Unit = "change"
	Millions Unit = "M/s"
	KiB      Unit = "KiB"
	Micro    Unit = "us"
	Seconds  Unit = "s"
)

// Text formats a number.
func (u Unit) Text(v float64) string {
	switch u {
	case Count:
		return strconv.FormatFloat(math.Round(v*100)/100, 'f', -1, 64)
	case Times:
		return fmt.Sprintf("%.2f x", v)
	case Percent:
		return fmt.Sprintf("%.1f %%", 100*v)
	case Points:
		return fmt.Sprintf("%+.1f %%", 100*v)
	case Millions:
		return fmt.Sprintf("%.1f M/s", v/1e6)
	case KiB:
		return fmt.Sprintf("%.1f KiB", v/1024)
	}
	return fmt.Sprintf("%.2f %s", v, u)
}

// Bare formats a number without its unit.
func (u Unit) Bare(v float64) string {
	text, _, _ := strings.Cut(u.Text(v), " ")
	return text
}

// fixed is a number that the text of a figure explains.
func fixed(v float64) Value {
	return Value{of: func(Results) (float64, error) { return v, nil }}
}

// floor rounds down.
func floor(a Value) Value {
	return Value{a.runs, func(res Results) (float64, error) {
		x, err := a.of(res)
		return math.Floor(x), err
	}}
}
