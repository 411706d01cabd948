package affinity

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		in   string
		want []int
	}{
		{"0", []int{0}},
		{"1,0", []int{1, 0}},
		{"2-5,8", []int{2, 3, 4, 5, 8}},
		{"3-3", []int{3}},
		{"", nil},
		{"a", nil},
		{"-1", nil},
		{"5-2", nil},
		{"0,,1", nil},
		{"0-", nil},
		{"99999999", nil},
		{"0-99999999", nil},
	} {
		t.Run(c.in, func(t *testing.T) {
			got, err := Parse(c.in)
			assert.Equal(t, c.want, got)
			assert.Equal(t, c.want == nil, err != nil)
		})
	}
}

func TestParse_ReturnsCPUsInRange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		got, err := Parse(rapid.String().Draw(t, "list"))
		if err == nil {
			for _, c := range got {
				if c < 0 || c > maxCPU {
					t.Fatalf("CPU %d out of range", c)
				}
			}
		}
	})
}

func TestThread_BindsAndUndoes(t *testing.T) {
	cpus, err := Allowed()
	require.NoError(t, err)
	require.NotEmpty(t, cpus)
	want := cpus[len(cpus)-1]

	undo, err := Thread(want)
	require.NoError(t, err)
	var set unix.CPUSet
	require.NoError(t, unix.SchedGetaffinity(0, &set))
	assert.Equal(t, []int{want}, members(&set))

	undo()
	all, err := Allowed()
	require.NoError(t, err)
	assert.Equal(t, cpus, all)
}

func TestThread_RejectsUnknownCPU(t *testing.T) {
	_, err := Thread(maxCPU + 1)
	assert.ErrorContains(t, err, "outside")
	_, err = Thread(maxCPU)
	assert.Error(t, err, "a CPU that no test machine has")
}

func TestProcess_BindsEveryThread(t *testing.T) {
	cpus, err := Allowed()
	require.NoError(t, err)
	assert.NoError(t, Process(cpus))
	assert.Error(t, Process([]int{-1}))
}

func TestPair(t *testing.T) {
	allowed, err := Allowed()
	require.NoError(t, err)
	for _, c := range []struct {
		list string
		want []int
	}{
		{"off", nil},
		{fmt.Sprintf("%d,%d", allowed[0], allowed[0]), []int{allowed[0], allowed[0]}},
	} {
		t.Run(c.list, func(t *testing.T) {
			got, err := Pair(c.list)
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
		})
	}
	for _, bad := range []string{"", "x", fmt.Sprint(allowed[0]), "0,1,2", fmt.Sprintf("%d,%d", allowed[0], maxCPU)} {
		_, err := Pair(bad)
		assert.Error(t, err, bad)
	}
}

func TestPair_AutoSelectsTwoDifferentCPUs(t *testing.T) {
	allowed, err := Allowed()
	require.NoError(t, err)
	got, err := Pair("auto")
	require.NoError(t, err)
	if len(allowed) < 2 {
		assert.Empty(t, got)
		return
	}
	require.Len(t, got, 2)
	assert.NotEqual(t, got[0], got[1])
}
