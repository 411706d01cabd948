package timing

import (
	"go/parser"
	"go/token"
	"math/rand/v2"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// traffic runs threads that post windows of messages and poll for their completions.
type traffic struct {
	threads, messages, list int
	shared                  bool // one page, one QP lock for all
	gather                  bool
}

func (c traffic) run(t testing.TB, p Params, seed uint64) ([]Ran, Stats) {
	t.Helper()
	m := newModel(t, p)
	page := m.NewPage()
	var steps []Step
	for i := range c.threads {
		if !c.shared {
			page = m.NewPage()
		}
		port := newPort(t, m, page)
		steps = append(steps, c.sender(port, uint32(even+i%2*512), uint64(i*64)))
	}
	ran, err := m.Run(seed, steps)
	require.NoError(t, err)
	return ran, m.Stats()
}

func (c traffic) sender(p *port, register uint32, addr uint64) Step {
	left := c.messages
	return func() (bool, error) {
		if left > 0 && int(p.next)-int(p.consumed) <= 32 {
			list := make([]WQE, min(c.list, left))
			for i := range list {
				list[i] = p.write(2)
				if c.gather {
					list[i] = p.gather(Span{addr, 2})
					p.next--
				}
			}
			left -= len(list)
			p.qp.Post(register, len(list) == 1, list)
			return false, nil
		}
		p.poll()
		return left == 0 && p.consumed == uint32(p.next), nil
	}
}

func lastEnd(ran []Ran) (end Time) {
	for _, r := range ran {
		end = max(end, r.End)
	}
	return end
}

// The same inputs and seed result in exactly the same run; another seed results in other start times.
func TestRun_Deterministic(t *testing.T) {
	c := traffic{threads: 16, messages: 200, list: 4, shared: true}
	ran, stats := c.run(t, ConnectX4(), 42)
	for range 3 {
		again, stats2 := c.run(t, ConnectX4(), 42)
		assert.Equal(t, ran, again)
		assert.Equal(t, stats, stats2)
	}
	other, _ := c.run(t, ConnectX4(), 43)
	assert.NotEqual(t, ran, other)
}

// The pipeline limits the message rate; with enough threads it is almost never idle.
func TestPipeline_WorkConserving(t *testing.T) {
	p := round()
	p.MessageGap, p.PollCall = 100*Nanosecond, 50*Nanosecond // the pipeline is slower than anything else
	c := traffic{threads: 16, messages: 80, list: 8}
	ran, stats := c.run(t, p, 1)
	n := Time(c.threads * c.messages)
	assert.Equal(t, n*p.MessageGap, stats.Pipeline)
	total := lastEnd(ran)
	assert.Greater(t, total, stats.Pipeline)
	// In addition to its work: the start, the path of the first message to it and of the last one back.
	assert.Less(t, total, stats.Pipeline+startSpread+8*Microsecond)
}

// costs are the fields of Params that are times.
func costs(p *Params) map[string]*Time {
	list := map[string]*Time{}
	v := reflect.ValueOf(p).Elem()
	for i := range v.NumField() {
		if f, ok := v.Field(i).Addr().Interface().(*Time); ok {
			list[v.Type().Field(i).Name] = f
		}
	}
	return list
}

// A higher cost never makes a run faster. This holds if requests arrive at each resource in an order that does
// not depend on costs: one thread, messages of one type. (Mixed ones may overtake each other, as on any
// machine.)
func TestCost_Monotone(t *testing.T) {
	kinds := map[string]func(p *port) (bool, []WQE){
		"BlueFlame": func(p *port) (bool, []WQE) { return true, []WQE{p.write(2)} },
		"gathered":  func(p *port) (bool, []WQE) { return true, []WQE{p.gather(Span{0x1000, 2})} },
		"list":      func(p *port) (bool, []WQE) { return false, []WQE{p.write(2), p.write(2), p.write(2)} },
		"long":      func(p *port) (bool, []WQE) { return true, []WQE{p.gather(Span{0x1000, 9000})} },
	}
	random := rand.New(rand.NewPCG(9, 9))
	base := round()
	for kind, next := range kinds {
		finish := func(p Params) Time {
			m := newModel(t, p)
			port := newPort(t, m, m.NewPage())
			left := 30
			_, err := m.Run(1, []Step{func() (bool, error) {
				blueFlame, list := next(port)
				port.qp.Post(even, blueFlame, list)
				left--
				return left == 0, nil
			}})
			require.NoError(t, err)
			return m.Now() // of the last completion
		}
		for name := range costs(&base) {
			for range 5 {
				p := base
				before := finish(p)
				*costs(&p)[name] += Time(1 + random.IntN(int(Microsecond)))
				assert.GreaterOrEqual(t, finish(p), before, "%s, %s", kind, name)
			}
		}
	}
}

// Sharing objects between threads never makes them faster.
func TestSharing_CostsTime(t *testing.T) {
	for _, list := range []int{1, 8} {
		alone, _ := traffic{threads: 8, messages: 160, list: list}.run(t, ConnectX4(), 1)
		together, stats := traffic{threads: 8, messages: 160, list: list, shared: true}.run(t, ConnectX4(), 1)
		assert.Greater(t, lastEnd(together), lastEnd(alone))
		assert.Positive(t, stats.PageWait)
	}
}

// A thread is never faster with more threads on the machine.
func TestThreads_ShareTheNIC(t *testing.T) {
	var last Time
	for _, n := range []int{1, 4, 16, 32} {
		ran, _ := traffic{threads: n, messages: 160, list: 16}.run(t, ConnectX4(), 1)
		mean := Time(0)
		for _, r := range ran {
			mean += (r.End - r.Begin) / Time(n)
		}
		// Polls are at discrete times, so the time of detection varies by a poll.
		assert.GreaterOrEqual(t, mean, last-last/50, "%d threads", n)
		last = mean
	}
}

// The package does not import packages with a clock or a scheduler.
func TestImports_NoClock(t *testing.T) {
	files, err := os.ReadDir(".")
	require.NoError(t, err)
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), f.Name(), nil, parser.ImportsOnly)
		require.NoError(t, err)
		for _, imp := range parsed.Imports {
			assert.NotContains(t, []string{`"time"`, `"runtime"`, `"os"`, `"golang.org/x/sys/unix"`}, imp.Path.Value, f.Name())
		}
	}
}

// Every parameter has an effect.
func TestParams_AllMatter(t *testing.T) {
	run := func(p Params) ([]Ran, Stats) {
		m := newModel(t, p)
		page := m.NewPage()
		port := &port{t: t, m: m}
		port.cq = m.NewCQ(true, func() uint32 { return port.consumed })
		port.qp = m.NewQP(QPConfig{Page: page, Sink: port, CQ: port.cq, QueueLocked: true, RegisterLocked: true})
		left := 24
		step := func() (bool, error) {
			if left > 0 {
				left--
				list := []WQE{port.gather(Span{0x1000, 9000}), port.gather(Span{uint64(left) * 64, 2}), port.write(50_000)}
				for range 9 {
					list = append(list, port.write(2))
				}
				port.qp.Post(even, false, list)
				m.Copy(left)
				return false, nil
			}
			port.poll()
			return int(port.consumed) == int(port.next), nil
		}
		ran, err := m.Run(1, []Step{step, step})
		require.NoError(t, err)
		return ran, m.Stats()
	}
	base := round()
	base.ReadTags, base.LinkBandwidth = 2, 1e10 // so that reads are the bottleneck
	base.Jitter = Nanosecond
	want, stats := run(base)
	v := reflect.ValueOf(base)
	for i := range v.NumField() {
		p := base
		f := reflect.ValueOf(&p).Elem().Field(i)
		f.SetInt(f.Int() * 2)
		ran, stats2 := run(p)
		assert.False(t, reflect.DeepEqual(want, ran) && stats == stats2, "%s has no effect", v.Type().Field(i).Name)
	}
}
