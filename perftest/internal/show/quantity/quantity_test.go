package quantity

import (
	"io"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const most = 1 << 30

func TestSizes(t *testing.T) {
	for in, want := range map[string][]int{
		"8": {8}, "8,1k,8": {8, 1024}, "4-32": {4, 8, 16, 32}, "1-1k/4": {1, 4, 16, 64, 256, 1024},
		"3-10": {3, 6}, "1k-2k,1": {1, 1024, 2048}, "1M": {1 << 20}, "0": {0}, "0,1-4": {0, 1, 2, 4}, "8-1k": {8, 16, 32, 64, 128, 256, 512, 1024},
	} {
		got, err := Sizes(in, 0, most)
		require.NoError(t, err, in)
		assert.Equal(t, want, got, in)
	}
	for _, in := range []string{"", "8,", "x", "-1", "8-4", "8/2", "1-8/1", "1-8/x", "0-8", "2g", "8-"} {
		_, err := Sizes(in, 0, most)
		assert.Error(t, err, "%q", in)
	}
	_, err := Sizes("0", 1, most)
	assert.ErrorContains(t, err, "outside 1..")
}

func TestCount(t *testing.T) {
	for in, want := range map[string]int{"0": 0, "7": 7, "20k": 20_000, "1m": 1_000_000, "2M": 2_000_000, "-3": -3} {
		got, err := parseCount(in)
		require.NoError(t, err, in)
		assert.Equal(t, want, got, in)
	}
	for _, in := range []string{"", "k", "1kk", "x", "1.5k", "10000000000000000g", "1 k"} {
		_, err := parseCount(in)
		assert.Error(t, err, "%q", in)
	}
}

func newSet(n *int, counts, sizes *[]int) *pflag.FlagSet {
	f := pflag.NewFlagSet("test", pflag.ContinueOnError)
	f.SetOutput(io.Discard)
	Count(f, n, "iters", "n", 5, "")
	Counts(f, counts, "threads", "t", []int{16}, "")
	SizeList(f, sizes, most, "size", "s", []int{8, 1024}, "")
	return f
}

func TestFlags(t *testing.T) {
	var n int
	var counts, sizes []int
	f := newSet(&n, &counts, &sizes)
	assert.Equal(t, "16", f.Lookup("threads").DefValue)
	assert.Equal(t, "8,1024", f.Lookup("size").DefValue)
	require.NoError(t, f.Parse([]string{"-n", "1m", "-t", "1-8,3", "-t", "16", "-s", "8-32"}))
	assert.Equal(t, 1_000_000, n)
	assert.Equal(t, []int{1, 2, 4, 8, 3, 16}, counts)
	assert.Equal(t, []int{8, 16, 32}, sizes)
	for _, args := range [][]string{{"-n", "x"}, {"-t", "1,"}, {"-s", "0"}} {
		assert.Error(t, newSet(&n, &counts, &sizes).Parse(args), args)
	}
}

func TestFlags_Slices(t *testing.T) {
	var n int
	var counts, sizes []int
	v, ok := newSet(&n, &counts, &sizes).Lookup("threads").Value.(pflag.SliceValue)
	require.True(t, ok)
	require.NoError(t, v.Append("2"))
	assert.Equal(t, []string{"16", "2"}, v.GetSlice())
	require.NoError(t, v.Replace([]string{"1-4"}))
	assert.Equal(t, []int{1, 2, 4}, counts)
	assert.Error(t, v.Replace([]string{"x"}))
}
