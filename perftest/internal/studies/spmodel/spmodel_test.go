package spmodel

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/softhca/timing"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/perftest/internal/studies/overlap"
	"github.com/gucx/gucx/perftest/internal/studies/protocol"
	"github.com/gucx/gucx/perftest/internal/studies/sp"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func class(t *testing.T, name string) sp.Class {
	t.Helper()
	c, err := sp.ParseClass(name)
	require.NoError(t, err)
	return c
}

func study(t *testing.T) Study {
	t.Helper()
	s := Study{Params: timing.ConnectXDDR(), Classes: []sp.Class{class(t, "W")}, Ranks: 9, Nodes: 3, Factors: []float64{1, 8}, Steps: 2}
	for _, name := range []string{"rput", "rget"} {
		p, err := overlap.Protocols().Find(name)
		require.NoError(t, err)
		s.Protocols = append(s.Protocols, p)
	}
	return s
}

// A prediction has all work of its ranks: computation grows with the factor, messages are those of the program, and
// each run has the same result.
func TestRun(t *testing.T) {
	testenv.SkipRace(t, "in virtual time one goroutine runs at a time")
	s := study(t)
	require.NoError(t, s.Check())
	steps := 0
	rows, refused, err := s.Run(t.Context(), func(string) { steps++ })
	require.NoError(t, err)
	assert.Empty(t, refused)
	require.Len(t, rows, s.Cases())
	assert.Equal(t, s.Cases(), steps)
	again, _, err := s.Run(t.Context(), nil)
	require.NoError(t, err)
	assert.Equal(t, rows, again)

	events, err := sp.Program(s.Classes[0], s.Ranks, 0)
	require.NoError(t, err)
	sends := 0
	for _, e := range events {
		if e.Kind == sp.PostSend {
			sends++
		}
	}
	for i, r := range rows {
		assert.Equal(t, s.Factors[i/2], r.Factor, "the rows of a factor must be adjacent")
		assert.Equal(t, s.Protocols[i%2].Name, r.Protocol)
		assert.Equal(t, sends, r.Messages)
		assert.Equal(t, 3, r.Nodes)
		assert.Greater(t, r.Seconds, r.Compute)
		assert.InDelta(t, r.Seconds, r.Compute+r.Rest, 1e-9)
		assert.InDelta(t, r.Seconds/rows[i-i%2].Seconds, r.Relative, 1e-12)
		assert.InEpsilon(t, rows[0].Compute*r.Factor, r.Compute, 1e-3)
	}
}

// With a NIC for each rank, messages wait less.
func TestRun_Nodes(t *testing.T) {
	testenv.SkipRace(t, "in virtual time one goroutine runs at a time")
	s := study(t)
	s.Protocols, s.Factors = s.Protocols[:1], s.Factors[:1]
	s.Nodes = 1
	one, _, err := s.Run(t.Context(), nil)
	require.NoError(t, err)
	s.Nodes = 0
	each, _, err := s.Run(t.Context(), nil)
	require.NoError(t, err)
	assert.Equal(t, 9, each[0].Nodes)
	assert.Greater(t, one[0].Rest, 2*each[0].Rest)
}

func TestRun_RefusedAndCanceled(t *testing.T) {
	s := study(t)
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	_, _, err := s.Run(ctx, nil)
	require.ErrorIs(t, err, gone)
	s.Protocols = protocol.List{{Name: "later", Env: []string{"GUCX_LATER=1"}}}
	rows, refused, err := s.Run(t.Context(), nil)
	require.NoError(t, err)
	assert.Empty(t, rows)
	require.Len(t, refused, 1)
	assert.Contains(t, refused[0].Reason, "LATER")
}

func TestCheck(t *testing.T) {
	for _, change := range []func(*Study){
		func(s *Study) { s.Classes = nil }, func(s *Study) { s.Protocols = nil }, func(s *Study) { s.Factors = nil },
		func(s *Study) { s.Factors = []float64{0} }, func(s *Study) { s.Factors = []float64{2 * maxFactor} },
		func(s *Study) { s.Steps = 0 }, func(s *Study) { s.Ranks = 5 }, func(s *Study) { s.Nodes = -1 }, func(s *Study) { s.Nodes = 10 },
	} {
		s := study(t)
		change(&s)
		assert.Error(t, s.Check())
	}
}
