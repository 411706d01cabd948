package provider

import (
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
)

// watchedHW is a fakeHW that wants to know which queue is polled, and remembers
// what the driver said of its locks.
type watchedHW struct {
	*fakeHW
	cqs   map[uint32]prm.CQParams
	qps   map[uint32]prm.QPParams
	polls map[uint32]*pollCount
}

// pollCount counts the polls of one queue.
type pollCount struct {
	n    int
	word uint32
}

func (p *pollCount) Attention() *uint32 { return &p.word }
func (p *pollCount) Drive()             { p.n++ }

func (h *watchedHW) CreateCQ(p prm.CQParams) (uint32, error) {
	n, err := h.fakeHW.CreateCQ(p)
	h.cqs[n] = p
	return n, err
}

func (h *watchedHW) CreateQP(p prm.QPParams) (uint32, error) {
	n, err := h.fakeHW.CreateQP(p)
	h.qps[n] = p
	return n, err
}

func (h *watchedHW) Poller(cqn uint32) prm.Pollable {
	if p := h.polls[cqn]; p != nil {
		return p
	}
	h.polls[cqn] = &pollCount{word: 1}
	return h.polls[cqn]
}

func openWatched(t *testing.T) (*watchedHW, *verbs.Context, *verbs.PD) {
	t.Helper()
	hw := &watchedHW{fakeHW: newFakeHW(), cqs: map[uint32]prm.CQParams{}, qps: map[uint32]prm.QPParams{}, polls: map[uint32]*pollCount{}}
	dev := verbs.NewDevice("watched0", func() (verbs.Provider, error) { return New(hw, mlx5.Config{}) })
	ctx, err := dev.Open()
	require.NoError(t, err)
	closeLast(t, ctx)
	pd, err := ctx.AllocPD()
	require.NoError(t, err)
	closeLast(t, pd)
	return hw, ctx, pd
}

// closeLast closes an object after those made later.
func closeLast(t *testing.T, c io.Closer) {
	t.Helper()
	t.Cleanup(func() { require.NoError(t, c.Close()) })
}

// Hardware that asks for it is told of each poll, by queue, locked or not.
func TestPoll_ReturnsQueue(t *testing.T) {
	hw, ctx, _ := openWatched(t)
	cqs := make([]*verbs.CQ, 0, 2)
	for _, single := range []bool{false, true} {
		cq, err := ctx.CreateCQ(verbs.CQInitAttr{Depth: 8, SingleThreaded: single})
		require.NoError(t, err)
		closeLast(t, cq)
		cqs = append(cqs, cq)
	}
	var wc [4]verbs.WC
	for i, cq := range cqs {
		for range 3 + i {
			require.Zero(t, cq.Poll(wc[:]))
		}
		n := cq.Provider().(*compQueue).cqn
		assert.Equal(t, 3+i, hw.polls[n].n)
		assert.Equal(t, i == 0, hw.cqs[n].Locked)
	}
}

// The device is told which locks a post takes.
func TestCreateQP_ReportsLocks(t *testing.T) {
	hw, ctx, pd := openWatched(t)
	cq, err := ctx.CreateCQ(verbs.CQInitAttr{Depth: 8})
	require.NoError(t, err)
	closeLast(t, cq)
	td, err := ctx.AllocTD(verbs.TDInitAttr{Sharing: 1})
	require.NoError(t, err)
	closeLast(t, td)
	attr := verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq, Cap: verbs.QPCap{MaxSendWR: 4, MaxSendSGE: 1}}
	locks := func(td *verbs.TD) [2]bool {
		attr.TD = td
		qp, err := pd.CreateQP(attr)
		require.NoError(t, err)
		closeLast(t, qp)
		p := hw.qps[qp.Number()]
		return [2]bool{p.QueueLocked, p.RegisterLocked}
	}
	assert.Equal(t, [2]bool{false, false}, locks(td))
	for range 4 { // the low-latency class serves one QP each
		assert.Equal(t, [2]bool{true, false}, locks(nil))
	}
	assert.Equal(t, [2]bool{true, true}, locks(nil), "then they share")
	assert.Equal(t, [2]bool{false, false}, locks(td))
}
