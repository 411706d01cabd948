package provider

import (
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
)

func TestRaw_IsWhatTheDeviceGot(t *testing.T) {
	r := newRig(t, mlx5.Config{})
	ch := r.channel()
	cq := r.cq(verbs.CQInitAttr{Depth: 64, Channel: ch, SingleThreaded: true})
	srq := r.srq(verbs.SRQInitAttr{MaxWR: 7, MaxSGE: 1})
	td, err := r.ctx.AllocTD(verbs.TDInitAttr{})
	require.NoError(t, err)
	qp := r.closedQP(verbs.QPInitAttr{SendCQ: cq, SRQ: srq, TD: td,
		Cap: verbs.QPCap{MaxSendWR: 16, MaxSendSGE: 2}})

	q, err := RawQPOf(qp)
	require.NoError(t, err)
	dev := r.fake(qp)
	assert.Equal(t, qp.Number(), q.QPN)
	assert.Equal(t, dev.sq.Base(), q.SQ.Buf)
	assert.Equal(t, dev.sq.Count(), q.SQ.Count)
	assert.EqualValues(t, prm.BBLen, q.SQ.Stride)
	assert.Equal(t, dev.dbrec, q.DBRec)
	assert.Zero(t, q.RQ.Count)
	assert.Equal(t, qp.Provider().(*queuePair).sq.uuar.uar.Page, q.UAR.Page)
	assert.EqualValues(t, prm.UUAR0, q.UAR.Off)
	assert.EqualValues(t, prm.BFBufLen, q.UAR.BFLen)
	assert.EqualValues(t, prm.BFBufLen, q.UAR.Step)
	assert.NotNil(t, q.UAR.Doorbell)

	c, err := RawCQOf(cq)
	require.NoError(t, err)
	assert.EqualValues(t, 128, c.CQEs.Count)
	assert.Equal(t, r.hw.cqs[c.CQN].view.Base(), c.CQEs.Buf)
	assert.EqualValues(t, prm.CQArm, c.UAR.Off)
	assert.NotNil(t, c.Device)
	assert.Zero(t, c.Events.Load())

	s, err := RawSRQOf(srq)
	require.NoError(t, err)
	assert.Equal(t, srq.Number(), s.SRQN)
	assert.EqualValues(t, 8, s.Entries.Count)
	assert.EqualValues(t, 32, s.Entries.Stride)
	assert.EqualValues(t, 7, s.Tail)

	post(t, qp, inlineWrite(1, 8))
	require.NoError(t, qp.Close())
	require.NoError(t, td.Close())
	assert.Zero(t, c.DBRec.CI(), "closing a QP leaves the queue to its poller")
}

func TestRaw_OwnReceiveQueueAndAV(t *testing.T) {
	r := newRig(t, mlx5.Config{})
	td, err := r.ctx.AllocTD(verbs.TDInitAttr{})
	require.NoError(t, err)
	qp := r.closedQP(verbs.QPInitAttr{Type: verbs.QPTypeUD, TD: td})
	q, err := RawQPOf(qp)
	require.NoError(t, err)
	assert.Equal(t, r.fake(qp).rq.view.Base(), q.RQ.Buf)
	assert.EqualValues(t, 16, q.RQ.Count)
	assert.EqualValues(t, 32, q.RQ.Stride)
	av, err := RawAV(r.ah())
	require.NoError(t, err)
	var parsed prm.AV
	dest := *av
	prm.PutAVDest(&dest, 1, 2)
	require.True(t, parsed.Load(&dest))
	assert.EqualValues(t, 2, parsed.QPN)
	require.NoError(t, qp.Close())
	require.NoError(t, td.Close())
}

func TestRaw_SharedRegister(t *testing.T) {
	r := newRig(t, mlx5.Config{TotalUUARs: 4, LowLatUUARs: 1})
	own, err := RawQPOf(r.qp(verbs.QPInitAttr{})) // takes the register that is nobody else's
	require.NoError(t, err)
	assert.Nil(t, own.UAR.Shared)
	var raws [2]RawQP
	for i := range raws {
		qp := r.qp(verbs.QPInitAttr{})
		raws[i], err = RawQPOf(qp)
		require.NoError(t, err)
		require.NotNil(t, raws[i].UAR.Shared)
	}
	u := raws[0].UAR
	for range 2 { // the buffers take turns, in whichever queue
		assert.Equal(t, u.Off, u.Shared.Take())
		u.Shared.Give()
		other := raws[1].UAR.Shared
		if raws[1].UAR.Off != u.Off {
			other = u.Shared // the policy found it another one
		}
		assert.Equal(t, u.Off+u.BFLen, other.Take())
		other.Give()
	}
}

// foreign is a provider without mlx5 queues.
type foreign struct {
	verbs.Provider
	inner verbs.Provider
}

type strangeQP struct{ verbs.QPProvider }
type strangeCQ struct{ verbs.CQProvider }
type strangeSRQ struct{ verbs.SRQProvider }
type strangeAH struct{ io.Closer }

func (s foreign) CreateCQ(cq *verbs.CQ, a verbs.CQInitAttr) (verbs.CQProvider, error) {
	p, err := s.inner.CreateCQ(cq, a)
	return strangeCQ{p}, err
}

func (s foreign) CreateSRQ(srq *verbs.SRQ, a verbs.SRQInitAttr) (verbs.SRQProvider, error) {
	p, err := s.inner.CreateSRQ(srq, a)
	return strangeSRQ{p}, err
}

func (s foreign) CreateAH(pd *verbs.PD, a verbs.AHAttr) (io.Closer, error) {
	p, err := s.inner.CreateAH(pd, a)
	return strangeAH{p}, err
}

func (s foreign) CreateQP(*verbs.QP, verbs.QPInitAttr) (verbs.QPProvider, verbs.QPCap, error) {
	return strangeQP{}, verbs.QPCap{}, nil
}

func TestRaw_OtherProvider(t *testing.T) {
	p, err := New(newFakeHW(), mlx5.Config{})
	require.NoError(t, err)
	ctx, err := verbs.NewDevice("other0", func() (verbs.Provider, error) { return foreign{p, p}, nil }).Open()
	require.NoError(t, err)
	defer func() { require.NoError(t, ctx.Close()) }()
	pd, err := ctx.AllocPD()
	require.NoError(t, err)
	defer func() { require.NoError(t, pd.Close()) }()
	cq, err := ctx.CreateCQ(verbs.CQInitAttr{Depth: 4})
	require.NoError(t, err)
	defer func() { require.NoError(t, cq.Close()) }()
	srq, err := pd.CreateSRQ(verbs.SRQInitAttr{MaxWR: 4, MaxSGE: 1})
	require.NoError(t, err)
	defer func() { require.NoError(t, srq.Close()) }()
	ah, err := pd.CreateAH(verbs.AHAttr{Port: 1, Global: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, ah.Close()) }()

	_, errCQ := RawCQOf(cq)
	_, errSRQ := RawSRQOf(srq)
	_, errAH := RawAV(ah)
	for _, err := range []error{errCQ, errSRQ, errAH, notOurs("QP", strangeQP{})} {
		assert.ErrorIs(t, err, errors.ErrUnsupported)
		assert.ErrorContains(t, err, "provider provider has no", "named by its package, which is this one here")
	}
}
