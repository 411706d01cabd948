package sp

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func classOf(t testing.TB, name string) Class {
	t.Helper()
	c, err := ParseClass(name)
	require.NoError(t, err)
	return c
}

// runAlone runs a class on one rank and verifies it.
func runAlone(t *testing.T, name string) Result {
	t.Helper()
	r, err := NewRank(classOf(t, name), nil)
	require.NoError(t, err)
	res, err := r.Run(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, r.Class.Verify(res.Norms))
	return res
}

func TestRun_Alone(t *testing.T) {
	testenv.SkipRace(t, "one goroutine computes")
	classes := []string{"S"}
	if testenv.Soak() {
		classes = []string{"S", "W", "A"}
	}
	for _, name := range classes {
		t.Run(name, func(t *testing.T) { runAlone(t, name) })
	}
}

// Runs with cells of one size, and of two.
func TestRun_Ranks(t *testing.T) {
	for _, ranks := range []int{4, 25} {
		if ranks > 4 && testing.Short() {
			continue
		}
		t.Run(fmt.Sprint(ranks), func(t *testing.T) { runTogether(t, "S", ranks) })
	}
	if testenv.Soak() {
		for _, ranks := range []int{16, 36} {
			t.Run(fmt.Sprint(ranks), func(t *testing.T) { runTogether(t, "S", ranks) })
		}
		for _, ranks := range []int{4, 9, 49} {
			t.Run(fmt.Sprint("W/", ranks), func(t *testing.T) { runTogether(t, "W", ranks) })
		}
	}
}

// A run executes in each step the events of the program.
func TestRun_IsProgram(t *testing.T) {
	testenv.SkipShort(t, "runs 9 ranks; other tests run some, too")
	const ranks = 9
	class := classOf(t, "S")
	for i, res := range runTogether(t, class.Name, ranks) {
		events, err := Program(class, ranks, i)
		require.NoError(t, err)
		var want Result
		for _, e := range events {
			switch e.Kind {
			case Compute:
				want.Amount[e.Work] += class.Steps * e.Amount
			case PostSend:
				want.Sent += class.Steps
				want.Bytes += class.Steps * e.Bytes
			}
		}
		assert.Equal(t, want, Result{Amount: res.Amount, Sent: res.Sent, Bytes: res.Bytes})
	}
}

func TestRun_Canceled(t *testing.T) {
	r, err := NewRank(classOf(t, "S"), nil)
	require.NoError(t, err)
	steps := 0
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	_, err = r.Run(ctx, func() {
		if steps++; steps == 3 {
			cancel(why)
		}
	})
	assert.ErrorIs(t, err, why)
	assert.Equal(t, 3, steps)
}

func TestStep_NoAllocs(t *testing.T) {
	class := classOf(t, "S")
	l, err := newLayout(class.Grid, 4, 0)
	require.NoError(t, err)
	m := &meter{Comm: &mirror{ranks: 4}, worker: newField(l, class.Dt), layout: l}
	d, err := newDriver(l, m, m)
	require.NoError(t, err)
	testenv.NoAllocs(t, "step", func() {
		if err := d.step(); err != nil {
			panic(err)
		}
	})
}

func TestNewRank_Refuses(t *testing.T) {
	class := classOf(t, "S")
	for _, ranks := range []int{2, 8, 49} {
		_, err := NewRank(class, &mirror{ranks: ranks})
		assert.ErrorContains(t, err, fmt.Sprint(ranks, " ranks"))
	}
}

func TestVerify(t *testing.T) {
	class := classOf(t, "w")
	right := Norms{Residual: class.residual, Solution: class.solution}
	require.NoError(t, class.Verify(right))
	for _, factor := range []float64{1 + 3e-8, 1 - 3e-8, 0, math.NaN(), math.Inf(1)} {
		wrong := right
		wrong.Residual[3] *= factor
		assert.ErrorIs(t, class.Verify(wrong), ErrVerify)
		wrong = right
		wrong.Solution[4] *= factor
		assert.ErrorIs(t, class.Verify(wrong), ErrVerify)
	}
	_, err := ParseClass("D")
	assert.ErrorContains(t, err, `"D"`)
}

func BenchmarkStep(b *testing.B) {
	for _, name := range []string{"S", "W"} {
		b.Run(name, func(b *testing.B) {
			r, err := NewRank(classOf(b, name), nil)
			require.NoError(b, err)
			b.ReportAllocs()
			for b.Loop() {
				if err := r.driver.step(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
