package kernel

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

// ring is a kernel with numbers that circulate: each rank adds the number of the previous rank.
type ring struct {
	c     *Comm
	value [1]uint64
	wrong bool // on rank 1, after one step
}

func (r *ring) Step() error {
	if r.c.Size() == 1 {
		r.value[0] = 2 // the sum of all ranks after a step
		return nil
	}
	in := make([]uint64, 1)
	n := r.c.Size()
	if err := r.c.Irecv((r.c.Rank()+n-1)%n, 0, ucpgroup.Bytes(in)); err != nil {
		return err
	}
	if err := r.c.Isend((r.c.Rank()+1)%n, 0, ucpgroup.Bytes(r.value[:])); err != nil {
		return err
	}
	if err := r.c.WaitAll(); err != nil {
		return err
	}
	r.value = [1]uint64(in)
	if r.wrong && r.c.Rank() == 1 {
		r.value[0]++
	}
	return nil
}

func (r *ring) Result() (Result, error) {
	v := []int64{int64(r.value[0])}
	err := r.c.SumInts(v)
	return Result{State: uint64(v[0]), Values: []Value{{Name: "sum", Title: "sum", Number: float64(v[0])}}}, err
}

// makeRing returns a maker of rings; the values of a ring add up to 2. If wrong[i] is set, the i-th kernel of a rank has a
// wrong result.
func makeRing(wrong ...bool) Maker {
	made := 0
	return func(c *Comm) (Kernel, error) {
		r := &ring{c: c}
		if c.Rank() < 2 {
			r.value[0] = 1
		}
		if made < len(wrong) {
			r.wrong = wrong[made]
		}
		made++
		return r, nil
	}
}

// together runs a study on n ranks, each with a study of newStudy.
func together(t *testing.T, n int, newStudy func() *Study) (rows [][]Row, errs []error) {
	t.Helper()
	owner, err := gucx.Open()
	require.NoError(t, err)
	defer func() { require.NoError(t, owner.Close()) }()
	rows, errs = make([][]Row, n), make([]error, n)
	var wait sync.WaitGroup
	for q, b := range ucpgroup.InProcess(n) {
		w, err := owner.NewWorker(ucp.WorkerConfig{})
		require.NoError(t, err)
		defer func() { require.NoError(t, w.Close()) }()
		s := newStudy()
		wait.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), testenv.Watchdog)
			defer cancel()
			g, err := ucpgroup.New(ctx, w, b)
			if err == nil {
				rows[q], errs[q] = s.Run(ctx, []Way{{"one", g.World()}, {"two", g.World()}}, nil)
				err = g.Close(ctx)
			}
			errs[q] = errors.Join(errs[q], err)
		})
	}
	wait.Wait()
	return rows, errs
}

func TestRun(t *testing.T) {
	rows, errs := together(t, 3, func() *Study { return &Study{New: makeRing(), Iterations: 15, Warmup: 2, Turn: 2, Check: true} })
	require.NoError(t, errors.Join(errs...))
	assert.Equal(t, rows[0], rows[1])
	assert.Equal(t, rows[0], rows[2])
	require.Len(t, rows[0], 2)
	for _, r := range rows[0] {
		assert.Positive(t, r.BestNS)
		assert.LessOrEqual(t, r.BestNS, r.MedianNS)
		assert.LessOrEqual(t, r.BestNS, r.MeanNS)
		assert.Equal(t, 1.0, r.Messages)
		assert.Equal(t, 8.0, r.Bytes)
		assert.Zero(t, r.Sums)
		assert.Greater(t, r.Waiting, 0.0)
		assert.LessOrEqual(t, r.Waiting, 1.0)
		assert.True(t, r.Checked)
		assert.Equal(t, uint64(2), r.Result.State)
	}
	assert.Zero(t, rows[0][0].Change)
	assert.LessOrEqual(t, rows[0][1].ChangeLow, rows[0][1].ChangeHigh)
	for _, format := range []string{"table", "csv"} {
		var out strings.Builder
		require.NoError(t, Sheet(nil, ResultLines(rows[0]), "About.", rows[0]).Write(&out, format))
		assert.Contains(t, out.String(), "two")
	}
	assert.Contains(t, ResultLines(rows[0])[0], "sum 2, state 0000000000000002, the same over each transport and on one rank")
}

// TestRun_DetectsWrongResult: all ranks report a result that differs between transports, or from that of one rank.
func TestRun_DetectsWrongResult(t *testing.T) {
	for _, wrong := range [][]bool{{false, true}, {true, true}} {
		for range testenv.Rounds(1, 50) {
			_, errs := together(t, 3, func() *Study { return &Study{New: makeRing(wrong...), Iterations: 1, Warmup: 2, Turn: 1, Check: true} })
			for q, err := range errs {
				require.ErrorIs(t, err, ErrResult, "rank %d", q)
			}
		}
	}
}

// TestRun_Unchecked: without the check there is no run of a single rank.
func TestRun_Unchecked(t *testing.T) {
	rows, errs := together(t, 2, func() *Study { return &Study{New: makeRing(true, true), Iterations: 1, Warmup: 2, Turn: 1} })
	require.NoError(t, errors.Join(errs...))
	assert.False(t, rows[0][0].Checked)
	assert.NotContains(t, ResultLines(rows[0])[0], "one rank")
}

func TestCheckFlags(t *testing.T) {
	require.NoError(t, (&Study{Iterations: 1, Warmup: 2, Turn: 1}).CheckFlags())
	for _, s := range []Study{{Iterations: 0, Warmup: 2, Turn: 1}, {Iterations: 1, Warmup: 1, Turn: 1}, {Iterations: 1, Warmup: 2}} {
		assert.ErrorIs(t, s.CheckFlags(), ErrStudy)
	}
	assert.Equal(t, 2*12, (&Study{Iterations: 10, Warmup: 2}).Steps(2))
	assert.Equal(t, 3*12, (&Study{Iterations: 10, Warmup: 2, Check: true}).Steps(2))
}
