package ranksmodel

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/softhca/timing"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/perftest/internal/studies/ranks"
	"github.com/gucx/gucx/uct"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func counts(t *testing.T) *Counts {
	t.Helper()
	c, err := DefaultCounts()
	require.NoError(t, err)
	return c
}

func study(t *testing.T) *Study {
	t.Helper()
	return &Study{Params: timing.ConnectX6(), Counts: counts(t), Clock: 2.6e9, CPI: []float64{1}, Transports: []string{"rc", "rc_mlx5"},
		Tests: Tests(), Sizes: []int{8, 2048}, Ranks: 4, Nodes: 4, Iterations: 2}
}

// TestRun: the data of all tests is correct, each row depends only on its inputs, and fewer instructions take less time.
func TestRun(t *testing.T) {
	testenv.SkipRace(t, "in virtual time one goroutine runs at a time")
	s := study(t)
	require.NoError(t, s.Check())
	rows, err := s.Run(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, rows, s.Cases())
	again, err := s.Run(t.Context(), nil)
	require.NoError(t, err)
	assert.Equal(t, rows, again)
	for i, r := range rows {
		assert.Equal(t, s.Transports[i%2], r.Transport)
		assert.Positive(t, r.LeastNS)
		assert.LessOrEqual(t, r.LeastNS, r.MeanNS)
		assert.LessOrEqual(t, r.MeanNS, r.MostNS)
		if r.Transport == "rc" {
			assert.Zero(t, r.Change)
		}
		if r.Size == 8 && r.Transport == "rc_mlx5" {
			assert.Negative(t, r.Change, "%+v", r)
		}
	}
	var out strings.Builder
	require.NoError(t, Sheet(nil, nil, rows).Write(&out, "table"))
	assert.Contains(t, out.String(), "alltoall")
}

// TestRun_PingPong: a message takes the instructions of sender and receiver, and the time of the device in the model.
func TestRun_PingPong(t *testing.T) {
	testenv.SkipRace(t, "in virtual time one goroutine runs at a time")
	s := study(t)
	var err error
	pp, err := ParseTest("pingpong")
	require.NoError(t, err)
	s.Tests, s.Sizes, s.Ranks, s.Nodes, s.CPI = []Test{pp}, []int{8}, 2, 2, []float64{1, 2}
	rows, err := s.Run(t.Context(), nil)
	require.NoError(t, err)
	for k, name := range s.Transports {
		n, err := s.Counts.Of(name)
		require.NoError(t, err)
		// Twice the cycles add the instructions of a message once more. The measuring rank leaves the barrier earlier
		// than the other one, by up to the time of one message, divided by two messages.
		more := rows[2+k].MeanNS - rows[k].MeanNS
		cycles := float64(n.Short+n.Poll+n.Deliver) / s.Clock * 1e9
		assert.InDelta(t, 1.25*cycles, more, 0.26*cycles, name)
	}
	assert.Greater(t, rows[0].MeanNS, 1000.0, "wire and switch take more than 700 ns")
	assert.Less(t, rows[0].MeanNS, 4000.0)
}

func TestRun_Datagrams(t *testing.T) {
	testenv.SkipRace(t, "in virtual time one goroutine runs at a time")
	s := study(t)
	s.Transports, s.Sizes = []string{"ud", "ud_mlx5"}, []int{8, 20_000}
	rows, err := s.Run(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, rows, s.Cases())
	for _, r := range rows {
		assert.Positive(t, r.MeanNS)
	}
}

// TestRun_SharedNodes: ranks of one node reach each other over sm, which is much faster than their NIC, and rows depend
// only on their inputs.
func TestRun_SharedNodes(t *testing.T) {
	testenv.SkipRace(t, "in virtual time one goroutine runs at a time")
	s := study(t)
	s.Transports, s.Sizes = []string{"rc", "rc_mlx5", "ud"}, []int{8, 2048, 40_000}
	run := func(nodes int) []Row {
		s.Nodes = nodes
		require.NoError(t, s.Check())
		rows, err := s.Run(t.Context(), nil)
		require.NoError(t, err)
		require.Len(t, rows, s.Cases())
		return rows
	}
	shared := run(2)
	assert.Equal(t, shared, run(2))
	apart := run(4)
	for i, r := range shared {
		if r.Test == "pingpong" && r.Size == 8 {
			assert.Less(t, 3*r.MeanNS, apart[i].MeanNS, r.Transport)
		}
	}
}

// TestRun_SharedNodesPingPong: a message within a node takes its instructions and the transfer of a cache line.
func TestRun_SharedNodesPingPong(t *testing.T) {
	testenv.SkipRace(t, "in virtual time one goroutine runs at a time")
	s := study(t)
	pp, err := ParseTest("pingpong")
	require.NoError(t, err)
	s.Tests, s.Sizes, s.Ranks, s.Nodes, s.CPI, s.Transports = []Test{pp}, []int{8}, 2, 1, []float64{1, 2}, []string{"rc"}
	rows, err := s.Run(t.Context(), nil)
	require.NoError(t, err)
	n, err := s.Counts.OfSM()
	require.NoError(t, err)
	cycles := float64(n.Short+n.Deliver) / s.Clock * 1e9
	assert.InDelta(t, 1.25*cycles, rows[1].MeanNS-rows[0].MeanNS, 0.5*cycles)
	assert.Greater(t, rows[0].MeanNS, cycles+float64(s.Params.LineTransfer)/float64(timing.Nanosecond))
}

// TestRun_Canceled: the error comes with the measured rows.
func TestRun_Canceled(t *testing.T) {
	testenv.SkipRace(t, "in virtual time one goroutine runs at a time")
	s := study(t)
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	steps := 0
	rows, err := s.Run(ctx, func(string, int) {
		if steps++; steps == 2 {
			cancel(gone)
		}
	})
	require.ErrorIs(t, err, gone)
	assert.Len(t, rows, 2)
}

// TestRun_DetectsWrongData: the run reports a rank with wrong bytes.
func TestRun_DetectsWrongData(t *testing.T) {
	testenv.SkipRace(t, "in virtual time one goroutine runs at a time")
	s := study(t)
	s.Tests = []Test{{Name: "bad", prepare: func(x *rank, size int) (func() error, func() error) {
		round, check := bcast(x, size)
		if x.r.ID() == 1 {
			return round, func() error { return ranks.CheckPayload(ranks.Payload(2, 2, size), 0, 3, 3, size) }
		}
		return round, check
	}}}
	_, err := s.Run(t.Context(), nil)
	require.ErrorIs(t, err, ranks.ErrData)
}

// TestCounts: direct verbs take fewer instructions for a small message, on both sides.
func TestCounts(t *testing.T) {
	c := counts(t)
	of := func(name string) Instructions {
		n, err := c.Of(name)
		require.NoError(t, err)
		return n
	}
	rc, direct := of("rc"), of("rc_mlx5")
	assert.Less(t, direct.Short, rc.Short)
	assert.Less(t, direct.Poll+direct.Deliver, rc.Poll+rc.Deliver)
	assert.Greater(t, rc.Bcopy, rc.Short)
	of("ud")
	of("ud_mlx5")
	shared, err := c.OfSM()
	require.NoError(t, err)
	assert.Less(t, shared.Short, direct.Short)
	assert.Less(t, shared.Deliver, direct.Poll+direct.Deliver)
	_, err = withoutSM(c).OfSM()
	require.ErrorIs(t, err, ErrCounts)
	_, err = c.Of("xrc")
	require.ErrorIs(t, err, ErrCounts)
	for _, text := range []string{"", "op,size\n", "op,size,layer,switch,part,instructions\nput,8,uct,,uct,many\n", "a\nb,c\n"} {
		_, err := ReadCounts(strings.NewReader(text))
		assert.ErrorIs(t, err, ErrCounts, "%q", text)
	}
}

func TestInstructions_Apply(t *testing.T) {
	p := timing.ConnectX6()
	n := Instructions{Short: 100, Bcopy: 150, Get: 90, Idle: 10, Poll: 20, Deliver: 30}
	s := n.apply(&p, 2)
	assert.Equal(t, []timing.Time{200, 0, 20, 40 + cacheRead}, []timing.Time{p.PostCall, p.WQEBuild, p.PollCall, p.CQERead})
	assert.Equal(t, timing.ConnectX6().RegisterWrite, p.RegisterWrite, "the register write must not depend on instructions")
	assert.Equal(t, timing.Time(60), s.Receive)
	assert.Equal(t, []timing.Time{200, 300, 180}, []timing.Time{s.Post[uct.AMShort], s.Post[uct.AMBcopy], s.Post[uct.GetZcopy]})
}

// withoutSM returns counts of a build before sm was counted.
func withoutSM(c *Counts) *Counts {
	less := &Counts{sum: maps.Clone(c.sum)}
	maps.DeleteFunc(less.sum, func(k count, _ int) bool { return k.transport == "sm" })
	return less
}

func TestCheck(t *testing.T) {
	for _, change := range []func(*Study){
		func(s *Study) { s.Tests = nil }, func(s *Study) { s.Sizes = nil }, func(s *Study) { s.Transports = nil }, func(s *Study) { s.CPI = nil },
		func(s *Study) { s.Ranks = 1 }, func(s *Study) { s.Ranks = mostRanks + 1 }, func(s *Study) { s.Nodes = 5 }, func(s *Study) { s.Nodes = 0 },
		func(s *Study) { s.Iterations = 0 }, func(s *Study) { s.Clock = 0 }, func(s *Study) { s.CPI = []float64{0} }, func(s *Study) { s.CPI = []float64{mostCPI + 1} },
		func(s *Study) { s.Nodes, s.Counts = 2, withoutSM(s.Counts) },
		func(s *Study) { s.Transports = []string{"xrc"} }, func(s *Study) { s.Transports = []string{"rc", "rc"} },
	} {
		s := study(t)
		change(s)
		assert.Error(t, s.Check())
	}
}
