package handover

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/cma"
	"github.com/gucx/gucx/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// TestMeasure: the figures stay for the process, also if goroutines ask at once.
func TestMeasure(t *testing.T) {
	const askers = 4
	got := make(chan Costs, askers)
	for range askers {
		go func() { got <- Measure() }()
	}
	c := Measure()
	for range askers {
		assert.Equal(t, c, <-got)
	}
	t.Logf("%+v", c)
}

// TestMeasure_InTime: with time enough there is every figure that the machine permits, and all data
// has come across.
func TestMeasure_InTime(t *testing.T) {
	if runtime.GOMAXPROCS(0) < 2 || runtime.NumCPU() < 2 {
		assert.Equal(t, assumed(), measure(time.Now, testenv.Watchdog))
		return
	}
	p := newPair(time.Now, testenv.Watchdog)
	defer p.order(leave)
	for i := range p.own {
		p.own[i] = byte(i * 7)
	}
	var l least
	assert.True(t, p.run(&l))
	assert.Equal(t, p.own, p.src)
	assert.Equal(t, p.own[len(p.own)-ring:], p.ring, "what was fed last")
	assert.Equal(t, p.own, p.dst)
	assert.Positive(t, l.read)
	assert.Positive(t, l.pass)
	assert.Positive(t, l.echo)
	permitted := cma.ReadSelf(p.dst[:1], p.src) == nil
	assert.Equal(t, permitted, l.few > 0)
	assert.Equal(t, permitted, l.block > 0)
}

// TestMeasure_TooLate: costs are assumed when the time is over, whatever the other processor is at.
func TestMeasure_TooLate(t *testing.T) {
	at := time.Now()
	for ticks := 1; ticks < 8; ticks++ { // of the first run, before something is passed
		n := 0
		clock := func() time.Time { // stands still, and then it is late
			if n++; n > ticks {
				return at.Add(2 * time.Hour)
			}
			return at
		}
		p := newPair(clock, time.Hour)
		var l least
		assert.False(t, p.run(&l))
		p.order(leave)
		assert.Zero(t, l.pass)
		assert.Equal(t, assumed(), l.costs())
	}
}

// TestPair_FeedYields: a garbage collection does not wait for a feed that nobody drains, also where
// goroutines are stopped only in calls.
func TestPair_FeedYields(t *testing.T) {
	const child = "GUCX_TEST_FEED"
	if os.Getenv(child) == "" {
		ctx, cancel := context.WithTimeout(t.Context(), testenv.Watchdog)
		defer cancel()
		cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestPair_FeedYields$")
		cmd.Env = append(os.Environ(), child+"=1", "GODEBUG=asyncpreemptoff=1", "GOMAXPROCS=2")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	p := newPair(time.Now, testenv.Watchdog)
	n := p.order(feed)
	for p.fed.v.Load() < ring/segment {
		runtime.Gosched()
	}
	runtime.GC()
	assert.NotEqual(t, n, p.done.v.Load())
	p.order(leave)
}

func TestLeast_Costs(t *testing.T) {
	const us = time.Microsecond
	for _, tc := range []struct {
		name string
		l    least
		want Costs
	}{
		{"all", least{8 * us, 64 * us, 3 * us, 18 * us, 64 * us}, Costs{Line: us, Read: 8_192_000_000, Pass: 2_048_000_000, Call: 2 * us, Kernel: 4_096_000_000, Measured: true}},
		{"the kernel must not", least{8 * us, 64 * us, 0, 0, 6400}, Costs{Line: 100, Read: 8_192_000_000, Pass: 2_048_000_000, Measured: true}},
		{"nothing", least{}, assumed()},
		{"nothing was passed", least{read: us, echo: us}, assumed()},
		{"nothing has come back", least{read: us, pass: us}, assumed()},
		{"the clock is coarse", least{us, us, 5 * us, 5 * us, us}, assumed()},
		{"a call takes nothing", least{8 * us, 64 * us, us, 30 * us, 1}, Costs{Line: 1, Read: 8_192_000_000, Pass: 2_048_000_000, Call: 1, Kernel: 2_118_620_689, Measured: true}},
	} {
		t.Run(tc.name, func(t *testing.T) { assert.Equal(t, tc.want, tc.l.costs()) })
	}
}
