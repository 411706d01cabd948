package sheet

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

type row struct {
	Name string  `json:"name"`
	Rate float64 `json:"rate"`
}

func example() *Sheet[row] {
	return &Sheet[row]{
		Head: map[string]int{"cores": 2}, Lines: []string{"two cores"}, Legend: "Rates in MHz.",
		Columns: []Column[row]{
			{Name: "name", Title: "Name", Value: func(r row) any { return r.Name }},
			{Name: "rate", Title: "Rate", Value: func(r row) any { return r.Rate }, Text: func(v any) string { return fmt.Sprintf("%.1f", v) }},
		},
		Rows:  []row{{"a", 1.25}, {"a", 2}, {"b", 10}},
		Group: func(r row) string { return r.Name },
	}
}

func TestWrite(t *testing.T) {
	for format, want := range map[string]string{
		"table": "two cores\n\n Name  Rate \n────────────\n a      1.2 \n a      2.0 \n────────────\n b     10.0 \n\nRates in MHz.\n",
		"md":    "two cores\n\n| Name | Rate |\n|:--- | ---:|\n| a | 1.2 |\n| a | 2.0 |\n| b | 10.0 |\n\nRates in MHz.\n",
		"csv":   "name,rate\na,1.25\na,2\nb,10\n",
		"json":  `{"cores":2}` + "\n" + `{"name":"a","rate":1.25}` + "\n" + `{"name":"a","rate":2}` + "\n" + `{"name":"b","rate":10}` + "\n",
	} {
		var out bytes.Buffer
		require.NoError(t, example().Write(&out, format))
		assert.Equal(t, want, out.String(), format)
		assert.NoError(t, CheckFormat(format))
	}
	assert.ErrorContains(t, example().Write(&bytes.Buffer{}, "xml"), "table, md, csv, json")
}

// wide returns a sheet that is wider than 80 columns.
func wide(columns, rank int) *Sheet[row] {
	s := example()
	for i := range columns {
		s.Columns = append(s.Columns, Column[row]{Name: fmt.Sprint("n", i), Title: fmt.Sprintf("Column %02d", i), Rank: rank + i/5,
			Value: func(r row) any { return r.Rate }})
	}
	return s
}

func TestDraw_FitsTheWidth(t *testing.T) {
	for _, width := range []int{40, 80, 120, 1000} {
		var out bytes.Buffer
		require.NoError(t, wide(12, 1).drawn(&out, width))
		assert.LessOrEqual(t, TextWidth(out.String()), width)
		_, last, left := strings.Cut(strings.Join(strings.Fields(out.String()), " "), "Left out, for the width of the terminal: ")
		assert.Equal(t, width < 1000, left, width)
		assert.Contains(t, out.String(), "Name", "columns of rank 0 must remain")
		if width == 80 {
			assert.NotContains(t, last, "Column 00", "columns of the highest rank must be omitted first")
			assert.Contains(t, last, "Column 11")
			assert.Contains(t, last, "-o csv and json have all.")
		}
	}
}

func TestDraw_WithoutOtherFormats(t *testing.T) {
	s := wide(12, 1)
	s.Alone = true
	var out bytes.Buffer
	require.NoError(t, s.drawn(&out, 80))
	assert.Contains(t, out.String(), "Left out")
	assert.NotContains(t, out.String(), "csv")
}

func TestDraw_NeverOmitsRankZero(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, wide(12, -9).drawn(&out, 40))
	assert.Contains(t, out.String(), "Column 11")
	assert.NotContains(t, out.String(), "Left out")
}

func TestDraw_FoldsTexts(t *testing.T) {
	s := wide(3, 0)
	s.Columns = append(s.Columns, Column[row]{Title: "Calls", Fold: true, Value: func(row) any {
		return "sendto 1, recvfrom 1, epoll_pwait 0.5, futex 0.001, sched_yield 0.25"
	}})
	var out bytes.Buffer
	require.NoError(t, s.drawn(&out, 80))
	assert.LessOrEqual(t, TextWidth(out.String()), 80)
	assert.Contains(t, out.String(), "sched_yield 0.25")
	assert.NotContains(t, out.String(), "epoll_pwait 0.5, futex 0.001, sched_yield")
}

func TestWidth_WithoutATerminal(t *testing.T) {
	assert.Equal(t, 80, Width(&bytes.Buffer{}))
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	require.NoError(t, err)
	defer f.Close()
	assert.Equal(t, 80, Width(f))
}

func TestWidth_OfATerminal(t *testing.T) {
	f, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	defer f.Close()
	for columns, want := range map[uint16]int{132: 132, 20: leastWidth, 0: 80} {
		require.NoError(t, unix.IoctlSetWinsize(int(f.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: columns}))
		assert.Equal(t, want, Width(f))
	}
}

func TestWrap(t *testing.T) {
	assert.Equal(t, "one two\nthree\nfour", Wrap("one two three\nfour", 8))
	assert.Equal(t, "a\nlongerthanthat\nb", Wrap("a longerthanthat b", 6))
	assert.Equal(t, "  as it is", Wrap("  as it is", 80))
}

func TestNanoseconds(t *testing.T) {
	for want, ns := range map[string]float64{
		"0.0": 0, "-5.2": -5.24, "100": 100.4, "999999": 999_999.4, "1ms": 999_999.5, "1.04ms": 1_044_000, "-10ms": -9_996_000,
		"999ms": 999.4e6, "1s": 999.5e6, "12.3s": 12.3456e9, "999s": 999.4e9, "1000s": 999.5e9, "3600s": 3.6e12,
	} {
		assert.Equal(t, want, Nanoseconds(ns), ns)
	}
}

func TestDecimals(t *testing.T) {
	for _, c := range []struct {
		v    float64
		n    int
		want string
	}{
		{0, 2, "0.00"}, {25, 2, "25.00"}, {0.1, 2, "0.10"}, {0.0123, 2, "0.012"}, {0.00000123, 2, "1.2e-06"}, {-0.001, 2, "-0.001"},
		{191.4, 0, "191"}, {10, 0, "10"}, {2.34, 0, "2.3"}, {0.05, 3, "0.050"}, {0.005, 3, "0.005"},
	} {
		assert.Equal(t, c.want, Decimals(c.v, c.n), c)
	}
}
