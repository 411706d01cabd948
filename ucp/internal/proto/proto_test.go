package proto

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/uct"
)

// device returns variants like those of a transport over a device.
func device() *Variants {
	return &Variants{Short: true, Bcopy: true, Zcopy: true, Limits: uct.OpLimits{MaxShort: 96, MaxBcopy: 8192, MaxZcopy: 1 << 30}}
}

func TestChoose(t *testing.T) {
	type row struct {
		min, max int
		protocol Protocol
	}
	for _, tc := range []struct {
		name       string
		edit       func(v *Variants)
		registered bool
		cfg        Config
		want       []row
	}{
		{"registered", func(*Variants) {}, true, Config{},
			[]row{{1, 96, Short}, {97, 8192, Bcopy}, {8193, 1 << 30, Zcopy}, {1<<30 + 1, math.MaxInt, Zcopy}}},
		{"cheaper", func(v *Variants) { // 10 ns more, and 1 ns for 100 bytes less
			v.BcopyCost, v.ZcopyCost = uct.Cost{Send: 20, Bandwidth: 50e9}, uct.Cost{Send: 30, Bandwidth: 100e9}
		}, true, Config{}, []row{{1, 96, Short}, {97, 1000, Bcopy}, {1001, 1 << 30, Zcopy}, {1<<30 + 1, math.MaxInt, Zcopy}}},
		{"always cheaper", func(v *Variants) { v.Short, v.BcopyCost = false, uct.Cost{Send: 1} }, true, Config{},
			[]row{{1, 1 << 30, Zcopy}, {1<<30 + 1, math.MaxInt, Zcopy}}},
		{"not registered", func(*Variants) {}, false, Config{},
			[]row{{1, 96, Short}, {97, 8192, Bcopy}, {8193, math.MaxInt, Bcopy}}},
		{"threshold", func(*Variants) {}, true, Config{ZcopyThresh: 100},
			[]row{{1, 96, Short}, {97, 99, Bcopy}, {100, 1 << 30, Zcopy}, {1<<30 + 1, math.MaxInt, Zcopy}}},
		{"threshold below short", func(*Variants) {}, true, Config{ZcopyThresh: 10},
			[]row{{1, 96, Short}, {97, 1 << 30, Zcopy}, {1<<30 + 1, math.MaxInt, Zcopy}}},
		{"threshold above bcopy", func(*Variants) {}, true, Config{ZcopyThresh: 10000},
			[]row{{1, 96, Short}, {97, 8192, Bcopy}, {8193, 9999, Bcopy}, {10000, 1 << 30, Zcopy}, {1<<30 + 1, math.MaxInt, Zcopy}}},
		{"least zcopy", func(v *Variants) { v.Limits.MinZcopy = 200 }, true, Config{ZcopyThresh: 100},
			[]row{{1, 96, Short}, {97, 199, Bcopy}, {200, 1 << 30, Zcopy}, {1<<30 + 1, math.MaxInt, Zcopy}}},
		{"short is all", func(v *Variants) { v.Limits.MaxShort = math.MaxInt }, true, Config{}, []row{{1, math.MaxInt, Short}}},
		{"only short", func(v *Variants) { v.Bcopy, v.Zcopy = false, false }, true, Config{},
			[]row{{1, 96, Short}, {97, math.MaxInt, Short}}},
		{"only zcopy", func(v *Variants) { v.Bcopy, v.Short = false, false }, true, Config{},
			[]row{{1, 1 << 30, Zcopy}, {1<<30 + 1, math.MaxInt, Zcopy}}},
		{"nothing", func(v *Variants) { *v = Variants{} }, true, Config{}, []row{{1, math.MaxInt, None}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := device()
			tc.edit(v)
			table := Choose(v, tc.registered, tc.cfg)
			var got []row
			for _, r := range table {
				got = append(got, row{r.Min, r.Max, r.Protocol})
			}
			assert.Equal(t, tc.want, got, "\n%v", table)
		})
	}
}

// TestChoose_WithoutGaps: for any variants each length has one range, and a fragment of it fits into a call.
func TestChoose_WithoutGaps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		length := rapid.IntRange(1, 1000)
		v := &Variants{
			Short: rapid.Bool().Draw(t, "short"), Bcopy: rapid.Bool().Draw(t, "bcopy"), Zcopy: rapid.Bool().Draw(t, "zcopy"),
			Limits: uct.OpLimits{
				MaxShort: length.Draw(t, "max short"), MaxBcopy: length.Draw(t, "max bcopy"),
				MinZcopy: length.Draw(t, "min zcopy"), MaxZcopy: 1000 + length.Draw(t, "max zcopy"),
			},
		}
		table := Choose(v, rapid.Bool().Draw(t, "registered"), Config{ZcopyThresh: rapid.IntRange(0, 2000).Draw(t, "threshold")})
		next := 1
		for _, r := range table {
			require.Equal(t, next, r.Min)
			require.GreaterOrEqual(t, r.Max, r.Min)
			next = r.Max + 1
		}
		require.Equal(t, math.MaxInt, table[len(table)-1].Max)
		n := rapid.IntRange(1, 5000).Draw(t, "n")
		r := table.Find(n)
		assert.True(t, r.Min <= n && n <= r.Max)
		if one := table.Longest(r.Protocol); r.Single() {
			assert.GreaterOrEqual(t, one, n)
		}
	})
}

func TestTable_Text(t *testing.T) {
	table := Choose(device(), true, Config{})
	assert.Equal(t, 96, table.Longest(Short))
	assert.Equal(t, 8192, table.Longest(Bcopy))
	assert.Equal(t, 1<<30, table.Longest(Zcopy))
	assert.Equal(t, 8193, table.Shortest(Zcopy))
	assert.Equal(t, -1, table.Longest(None))
	assert.Contains(t, table.String(), "97..8192         bcopy  one copy\n")
	assert.Contains(t, table.String(), "8193..1073741824   zcopy  longer than one bcopy of 8192 bytes\n")
	assert.Contains(t, table.String(), "1073741825..inf          zcopy  longer than one bcopy of 8192 bytes;\n"+
		"                                  in pieces of 1073741824 bytes\n")
}
