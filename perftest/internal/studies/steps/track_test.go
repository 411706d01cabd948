package steps

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/perftest/internal/studies/rclink"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/endpoint"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

const testDepth = 4

// open creates lanes over QPs that are connected to themselves, and a put for each thread.
func open(t *testing.T, threads int, plan endpoint.Plan) (*Lanes, verbs.SendWR) {
	t.Helper()
	dev, err := softhca.NewDevice(softhca.Config{Fabric: softhca.FabricLoop})
	require.NoError(t, err)
	cfg := endpoint.Config{Plan: plan}
	cfg.Cap.MaxSendWR = testDepth
	set, err := endpoint.Open(dev, threads, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, set.Close()) })
	mr, err := set.Endpoints[0].PD.RegMR(make([]byte, 8), rclink.AllAccess)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, mr.Close()) })
	joined := map[*verbs.QP]bool{}
	for _, e := range set.Endpoints {
		if qp := e.QPs[0]; !joined[qp] {
			joined[qp] = true
			addr, err := rclink.Local(qp)
			require.NoError(t, err)
			require.NoError(t, rclink.Connect(qp, addr))
		}
	}
	return NewLanes(set, testDepth, false), verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGList: []verbs.SGE{mr.SGE(0, 8)},
		RemoteAddr: mr.Addr(), RKey: mr.RKey()}
}

// A QP of one thread has room for its depth, and a shared QP has that room for all its threads together. A poll credits
// the thread of the work request.
func TestTrack(t *testing.T) {
	for name, c := range map[string]struct {
		plan   endpoint.Plan
		second int // posts of the second thread, after the first has filled its QP
	}{
		"own":       {endpoint.Dynamic.Plan(2), testDepth},
		"shared CQ": {endpoint.Dynamic.Plan(2).WithCQ(2), testDepth},
		"shared QP": {endpoint.MPIThreads.Plan(2), 0},
	} {
		t.Run(name, func(t *testing.T) {
			l, wr := open(t, 2, c.plan)
			for i, want := range []int{testDepth, c.second} {
				posted := 0
				for range testDepth + 1 {
					ok, err := l.Tracks[i][0].Post(wr)
					require.NoError(t, err)
					if !ok {
						break
					}
					posted++
				}
				assert.Equal(t, want, posted)
				assert.Equal(t, int64(want), l.Tracks[i][0].Outstanding())
			}
			for l.Tracks[0][0].Outstanding() > 0 {
				_, err := l.Pollers[0].Poll()
				require.NoError(t, err)
			}
			ok, err := l.Tracks[0][0].Post(wr)
			require.NoError(t, err)
			assert.True(t, ok)
			for i := range l.Tracks {
				for l.Tracks[i][0].Outstanding() > 0 {
					_, err := l.Pollers[i].Poll()
					require.NoError(t, err)
				}
			}
		})
	}
}

func TestPoll_Failure(t *testing.T) {
	l, wr := open(t, 1, endpoint.Dynamic.Plan(1))
	wr.RKey++
	_, err := l.Tracks[0][0].Post(wr)
	require.NoError(t, err)
	for err == nil {
		_, err = l.Pollers[0].Poll()
	}
	assert.ErrorContains(t, err, "work request 0")
}

// counts is a Counter that counts its calls.
type counts struct{ adds, loads int }

func (c *counts) Add()  { c.adds++ }
func (c *counts) Load() { c.loads++ }

// Only shared objects call the model.
func TestLanes_Meter(t *testing.T) {
	for name, c := range map[string]struct {
		plan endpoint.Plan
		want int
	}{
		"own":       {endpoint.Dynamic.Plan(2), 0},
		"shared CQ": {endpoint.Dynamic.Plan(2).WithCQ(2), 2},
		"shared QP": {endpoint.MPIThreads.Plan(2), 3},
	} {
		l, wr := open(t, 2, c.plan)
		var made []*counts
		l.Meter(func() Counter {
			made = append(made, &counts{})
			return made[len(made)-1]
		})
		assert.Len(t, made, c.want, name)
		_, err := l.Tracks[0][0].Post(wr)
		require.NoError(t, err)
		for l.Tracks[0][0].Outstanding() > 0 {
			_, err := l.Pollers[0].Poll()
			require.NoError(t, err)
		}
		adds := 0
		for _, m := range made {
			adds += m.adds
		}
		assert.Equal(t, map[string]int{"own": 0, "shared CQ": 1, "shared QP": 3}[name], adds, name)
	}
}

func TestShared_Subtract(t *testing.T) {
	var s Shared
	s.Set(5)
	assert.True(t, s.Subtract(3))
	assert.False(t, s.Subtract(3))
	assert.Equal(t, int64(2), s.Load())
	assert.Equal(t, int64(4), s.Add(2))
}
