package provider

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
)

// silicon is a fakeHW that looks like hardware: nobody tells it of stores to UAR
// pages, and pollers need not drive it.
type silicon struct {
	prm.Hardware
	fake *fakeHW
}

func (s silicon) AllocUAR(typ prm.UARType) (prm.UAR, error) {
	u, err := s.fake.AllocUAR(typ)
	u.Doorbell = nil
	return u, err
}

// On hardware the driver only stores; the device sees the register.
func TestHardware_StoresOnly(t *testing.T) {
	hw := newFakeHW()
	p, err := New(silicon{Hardware: hw, fake: hw}, mlx5.Config{})
	require.NoError(t, err)
	ctx, err := verbs.NewDevice("silicon0", func() (verbs.Provider, error) { return p, nil }).Open()
	require.NoError(t, err)
	r := &rig{t: t, hw: hw, prov: p.(*provider), ctx: ctx}
	r.pd, err = ctx.AllocPD()
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, r.pd.Close())
		require.NoError(t, ctx.Close())
	})
	assert.Same(t, ctx.Provider(), p)
	assert.Equal(t, prm.Hardware(silicon{Hardware: hw, fake: hw}), HardwareOf(ctx))

	ch := r.channel()
	cq := r.cq(verbs.CQInitAttr{Channel: ch, Depth: 5})
	assert.Equal(t, 7, cq.Depth())
	qp := r.qp(verbs.QPInitAttr{SendCQ: cq})
	q := qp.Provider().(*queuePair)
	look := func() ring { // at what lies in the register, as the device would
		d := &fakeDoorbell{hw: hw, page: q.sq.uuar.uar.Page}
		hw.record, hw.rings = true, nil
		w := binary.BigEndian.Uint64(ringBytes(qp, q.sq.pi-1, 8))
		d.Ring(q.sq.uuar.base+q.sq.uuar.toggle^prm.BFBufLen, w)
		return hw.rings[0]
	}
	post(t, qp, inlineWrite(3, 8))
	assert.Empty(t, poll(t, cq, 1), "nothing runs in the caller")
	got := look()
	assert.Equal(t, ringBytes(qp, 0, 64), got.bytes(64))
	assert.Equal(t, uint64(3), poll(t, cq, 1)[0].ID)
	post(t, qp, inlineWrite(4, 8), inlineWrite(5, 8))
	got = look()
	assert.Equal(t, ringBytes(qp, 2, 8), got.bytes(8))
	assert.Len(t, poll(t, cq, 4), 2)
	require.NoError(t, cq.Arm(false))
	assert.Equal(t, uint32(3), cq.Provider().(*compQueue).dbrec.Arm())
}
