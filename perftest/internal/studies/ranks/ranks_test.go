package ranks

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/ucpgroup"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// together runs a study on n ranks and returns the rows of each.
func together(t *testing.T, s *Study, n int) (rows [][]Row, errs []error) {
	owner, err := gucx.Open()
	require.NoError(t, err)
	defer func() { require.NoError(t, owner.Close()) }()
	rows, errs = make([][]Row, n), make([]error, n)
	var wait sync.WaitGroup
	for q, b := range ucpgroup.InProcess(n) {
		w, err := owner.NewWorker(ucp.WorkerConfig{})
		require.NoError(t, err)
		defer func() { require.NoError(t, w.Close()) }()
		wait.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), testenv.Watchdog)
			defer cancel()
			g, err := ucpgroup.New(ctx, w, b)
			if err == nil {
				rows[q], errs[q] = s.Run(ctx, []Way{{"one", g.World()}, {"two", g.World()}}, nil)
				err = Leave(ctx, []*ucpgroup.Group{g}, errs[q])
			}
			errs[q] = errors.Join(errs[q], err)
		})
	}
	wait.Wait()
	return rows, errs
}

func TestStudy(t *testing.T) {
	s := &Study{Tests: Tests(), Sizes: []int{1, 9000}, Iterations: 2, Warmup: 2}
	require.NoError(t, s.Check(3, 2))
	rows, errs := together(t, s, 3)
	require.NoError(t, errors.Join(errs...))
	require.Len(t, rows[0], 2*s.Cases())
	assert.Equal(t, rows[0], rows[1])
	assert.Equal(t, rows[0], rows[2])
	for _, r := range rows[0] {
		assert.Positive(t, r.LeastNS, "%+v", r)
		assert.LessOrEqual(t, r.LeastNS, r.MeanNS, "%+v", r)
		assert.LessOrEqual(t, r.MeanNS, r.MostNS, "%+v", r)
		assert.Positive(t, r.BestNS, "%+v", r)
		assert.LessOrEqual(t, r.BestNS, r.LeastNS, "%+v", r)
	}
	var out strings.Builder
	require.NoError(t, Sheet(nil, nil, rows[0]).Write(&out, "md"))
	assert.Contains(t, out.String(), "allreduce")
}

// TestSheet: with several protocols the sheet has their difference from the fastest one.
func TestSheet(t *testing.T) {
	rows := []Row{
		{Test: "ring", Size: 8, Protocol: "one", BestNS: 3000}, {Test: "ring", Size: 8, Protocol: "two", BestNS: 2000},
		{Test: "ring", Size: 9, Protocol: "one", BestNS: 1000}, {Test: "ring", Size: 9, Protocol: "two", BestNS: 1100},
	}
	var out strings.Builder
	require.NoError(t, Sheet(nil, nil, rows).Write(&out, "md"))
	for _, end := range []string{"3.00 | 50 |", "2.00 | 0 |", "1.00 | 0 |", "1.10 | 10 |"} {
		assert.Contains(t, out.String(), end)
	}
	out.Reset()
	require.NoError(t, Sheet(nil, nil, rows[:1]).Write(&out, "md"))
	assert.NotContains(t, out.String(), "+%")
	assert.NotContains(t, out.String(), "Protocol")
}

func TestProtocols(t *testing.T) {
	for _, p := range Protocols() {
		_, err := gucx.FromEnv(p.Env, gucx.Own{})
		require.NoError(t, err, p.Name)
	}
}

// TestStudy_DetectsWrongData: all ranks report a rank with wrong bytes.
func TestStudy_DetectsWrongData(t *testing.T) {
	bad := Test{Name: "bad", sized: true, prepare: func(c *ucpgroup.Comm, size int) (round, func() error) {
		round, check := bcast(c, size)
		if c.Rank() == 1 {
			return round, func() error { return CheckPayload(Payload(2, 2, size), 0, 3, 3, size) }
		}
		return round, check
	}}
	for range testenv.Rounds(5, 100) {
		_, errs := together(t, &Study{Tests: []Test{bad}, Sizes: []int{8}, Iterations: 1, Warmup: 2}, 5)
		for q, err := range errs {
			require.ErrorIs(t, err, ErrData, "rank %d", q)
		}
	}
}
