package overlap

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/softhca/timing"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/perftest/internal/show/sheet"
	"github.com/gucx/gucx/perftest/internal/studies/protocol"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// protocols returns the protocols with the names.
func protocols(t *testing.T, names ...string) (list protocol.List) {
	t.Helper()
	for _, name := range names {
		p, err := Protocols().Find(name)
		require.NoError(t, err)
		list = append(list, p)
	}
	return list
}

func measure(t *testing.T, s Study) []Row {
	t.Helper()
	testenv.SkipRace(t, "in virtual time one goroutine runs at a time")
	s.Iterations, s.Warmup = 5, 3
	require.NoError(t, s.Check())
	steps := 0
	rows, refused, err := s.Run(t.Context(), Virtual(timing.ConnectXDDR()), func(string) { steps++ })
	require.NoError(t, err)
	require.Empty(t, refused)
	assert.Equal(t, s.Cases(), steps)
	assert.Len(t, rows, steps)
	return rows
}

// If the control messages of a rendezvous need a call of the side that computes, only their time on the wire
// overlaps, which is negligible from 32 KiB on. The receiver has no overlap at all, as it detects the message when it
// leaves the barrier. The sender of data that the receiver gets has full overlap.
func TestVirtual_Rendezvous(t *testing.T) {
	for _, r := range measure(t, Study{Protocols: protocols(t, "rput", "rget"), Sides: Sides(), Sizes: []int{EagerLimit, 32 << 10, 128 << 10}}) {
		label := []any{"%v %v %d", r.Side, r.Protocol, r.Size}
		most := 0.13
		if r.Size == EagerLimit {
			most = 0.25
		}
		switch {
		case r.Protocol == "rget" && r.Side == Isend:
			assert.Greater(t, r.Availability, 0.95, label...)
		case r.Side == Irecv:
			assert.Less(t, r.Availability, 0.1, label...)
		default:
			assert.Less(t, r.Availability, most, label...)
		}
		assert.Greater(t, float64(r.Iteration), enough*float64(r.Base), label...)
		assert.Equal(t, r.Iteration-r.Work, r.Overhead, label...)
	}
}

// Below the eager limit no side waits for a call of the other: the overhead is that of posts, polls and copies of
// the receiver.
func TestVirtual_Eager(t *testing.T) {
	for _, r := range measure(t, Study{Protocols: protocols(t, "rput", "rget"), Sides: Sides(), Sizes: []int{1, 256, EagerLimit / 2}}) {
		least := 0.88
		if r.Side != Isend && r.Size == EagerLimit/2 {
			least = 0.8
		}
		assert.Greater(t, r.Availability, least, "%v %v %d", r.Side, r.Protocol, r.Size)
		assert.Less(t, r.Availability, 1.0, "%v %v %d", r.Side, r.Protocol, r.Size)
	}
}

// With queues no side waits for a call of the other, and nothing is copied: the overhead is the same for each length. It
// is the cost of polling a completion, and on the sender also of the post, and is less than 5 % from 4 KiB on.
func TestVirtual_TupleQ(t *testing.T) {
	rows := measure(t, Study{Protocols: protocols(t, "tupleq"), Sides: Sides(), Sizes: []int{1, 1024, EagerLimit / 2, EagerLimit, 64 << 10, 128 << 10}})
	for i, r := range rows {
		label := []any{"%v %d", r.Side, r.Size}
		first := rows[i/6*6]
		assert.InDelta(t, first.Overhead, r.Overhead, float64(70*time.Nanosecond), label...)
		least := 0.95
		if r.Side != Irecv && r.Size < EagerLimit/2 {
			least = 0.9
		}
		assert.Greater(t, r.Availability, least, label...)
	}
}

// The variant with copies has additional costs only below the limit, and only on the sender.
func TestVirtual_TupleQCopy(t *testing.T) {
	sizes := []int{64, EagerLimit / 2, 2 * EagerLimit}
	rows := measure(t, Study{Protocols: protocols(t, "tupleq", "tupleq_copy"), Sides: []Side{Isend, Irecv}, Sizes: sizes})
	for i, plain := range rows[:len(rows)/2] {
		copied := rows[len(rows)/2+i]
		label := []any{"%v %d", plain.Side, plain.Size}
		if plain.Side == Isend && plain.Size == EagerLimit/2 {
			assert.Greater(t, copied.Base, plain.Base+time.Microsecond, label...)
			assert.Greater(t, copied.Overhead, plain.Overhead+time.Microsecond, label...)
			continue
		}
		assert.InDelta(t, plain.Overhead, copied.Overhead, float64(100*time.Nanosecond), label...)
	}
}

func TestVirtual_Deterministic(t *testing.T) {
	s := Study{Protocols: protocols(t, "rput"), Sides: Sides(), Sizes: []int{1, 100_000}}
	assert.Equal(t, measure(t, s), measure(t, s))
}

// A protocol that this build does not have is rejected with the reason, and the others are measured.
func TestRun_RejectsUnknownProtocol(t *testing.T) {
	s := Study{Protocols: protocol.List{{Name: "later", Env: []string{"GUCX_TAG_PROTOCOL_OF_LATER=x"}}, protocols(t, "rget")[0]},
		Sides: []Side{Isend}, Sizes: []int{8}, Iterations: 1}
	rows, refused, err := s.Run(t.Context(), Virtual(timing.ConnectXDDR()), nil)
	require.NoError(t, err)
	assert.Len(t, rows, 1)
	require.Len(t, refused, 1)
	assert.Equal(t, "later", refused[0].Protocol)
	assert.Contains(t, refused[0].Reason, "TAG_PROTOCOL_OF_LATER")
}

func TestRun_Canceled(t *testing.T) {
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	s := Study{Protocols: protocols(t, "rget"), Sides: []Side{Isend}, Sizes: []int{8}, Iterations: 1}
	_, _, err := s.Run(ctx, Virtual(timing.ConnectXDDR()), nil)
	require.ErrorIs(t, err, gone)
}

func TestCheck(t *testing.T) {
	good := Study{Protocols: Protocols(), Sides: Sides(), Sizes: Sizes(1 << 20), Iterations: 1}
	require.NoError(t, good.Check())
	assert.Len(t, good.Sizes, 21)
	for _, change := range []func(*Study){
		func(s *Study) { s.Sizes = nil }, func(s *Study) { s.Sides = nil }, func(s *Study) { s.Protocols = nil },
		func(s *Study) { s.Iterations = 0 }, func(s *Study) { s.Warmup = -1 },
		func(s *Study) { s.Sizes = []int{0} }, func(s *Study) { s.Sizes = []int{MaxSize + 1} },
	} {
		s := good
		change(&s)
		assert.Error(t, s.Check())
	}
}

func TestParse(t *testing.T) {
	for _, name := range SideNames() {
		s, err := ParseSide(name)
		require.NoError(t, err)
		assert.Equal(t, Side(name), s)
	}
	_, err := ParseSide("middle")
	require.ErrorContains(t, err, "isend")
	_, err = Protocols().Find("eager")
	require.ErrorContains(t, err, "rput")
	assert.Equal(t, []string{"rput", "rget", "tupleq", "tupleq_copy"}, Protocols().Names())
}

// TestSheet_Width: without a terminal the table is at most 80 columns wide.
func TestSheet_Width(t *testing.T) {
	for _, long := range []time.Duration{123456789 * time.Nanosecond, 100 * time.Second} {
		r := Row{Side: "isend", Protocol: "tupleq_copy", Size: 1 << 20, Base: long, Iteration: long, Work: long, Overhead: -long,
			Availability: 12.34 * long.Seconds(), Program: long, Process: 2 * long}
		var out bytes.Buffer
		require.NoError(t, Sheet(nil, nil, []Row{r}, true).Write(&out, "table"))
		assert.LessOrEqual(t, sheet.TextWidth(out.String()), 80, out.String())
	}
}
