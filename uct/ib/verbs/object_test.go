package verbs_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

func TestDevice(t *testing.T) {
	devs, err := softhca.Devices()
	require.NoError(t, err)
	require.NotEmpty(t, devs)
	failing := verbs.NewDevice("broken0", func() (verbs.Provider, error) { return nil, ucs.ErrNoMemory })
	_, err = failing.Open()
	assert.ErrorIs(t, err, ucs.ErrNoMemory)
	assert.EqualError(t, err, "broken0: open device: out of memory")
}

// Posting is refused before the QP is connected, with the state in the text.
func TestPost_RejectsWrongState(t *testing.T) {
	d := openDevice(t)
	a, b := d.side(verbs.QPInitAttr{}), d.side(verbs.QPInitAttr{})
	wr := []verbs.SendWR{write(1, a, b, 8)}
	refused := func(state string) {
		t.Helper()
		n, err := a.qp.PostSend(wr)
		assert.Zero(t, n)
		assert.ErrorIs(t, err, ucs.ErrInvalidState)
		assert.ErrorContains(t, err, "is in "+state)
	}
	refused("RESET")
	n, err := a.qp.PostRecv([]verbs.RecvWR{{}})
	assert.Zero(t, n)
	assert.ErrorIs(t, err, ucs.ErrInvalidState)
	a.initialise(anyone)
	refused("INIT")
	a.recv(64, 1)
	a.readyToReceive(b.qp.Number())
	refused("RTR")
	b.join(a.qp.Number(), defaultPath)
	b.post(send(1, b, 8))
	b.one()
	assert.Equal(t, uint64(1), a.one().ID, "RTR receives")
	a.readyToSend(7)
	a.post(wr...)
	a.one()
	require.NoError(t, a.qp.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPMaskState))
	refused("RESET")
}

func TestModify_Refused(t *testing.T) {
	d := openDevice(t)
	a := d.side(verbs.QPInitAttr{})
	const st = verbs.QPMaskState
	cases := []struct {
		name string
		attr verbs.QPAttr
		mask verbs.QPAttrMask
		want error
		text string
	}{
		{"jump", verbs.QPAttr{State: verbs.QPStateRTS}, st, ucs.ErrInvalidState, "no transition of RC from RESET"},
		{"missing", verbs.QPAttr{State: verbs.QPStateInit, Port: 1}, st | verbs.QPMaskPort, ucs.ErrInvalidParam, "missing AccessFlags|PKeyIndex"},
		{"extra", verbs.QPAttr{State: verbs.QPStateInit, Port: 1}, st | verbs.QPMaskPort | verbs.QPMaskPKeyIndex | verbs.QPMaskAccessFlags | verbs.QPMaskQKey, ucs.ErrInvalidParam, "not allowed QKey"},
		{"no such port", verbs.QPAttr{State: verbs.QPStateInit, Port: 9}, st | verbs.QPMaskPort | verbs.QPMaskPKeyIndex | verbs.QPMaskAccessFlags, ucs.ErrInvalidParam, "Port 9"},
		{"wrong current state", verbs.QPAttr{CurState: verbs.QPStateRTS}, verbs.QPMaskCurState, ucs.ErrInvalidState, "current state is RESET, not RTS"},
		{"ERR from RESET", verbs.QPAttr{State: verbs.QPStateErr}, st, ucs.ErrInvalidState, "no transition"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			err := a.qp.Modify(c.attr, c.mask)
			assert.ErrorIs(t, err, c.want)
			assert.ErrorContains(t, err, c.text)
			assert.ErrorContains(t, err, "modify qp 0x")
			assert.Equal(t, verbs.QPStateReset, a.qp.State())
		})
	}
	a.initialise(anyone)
	err := a.qp.Modify(verbs.QPAttr{State: verbs.QPStateRTR, PathMTU: verbs.MTU1024, DestQPN: 5, AH: verbs.AHAttr{Port: 1}},
		st|verbs.QPMaskAV|verbs.QPMaskPathMTU|verbs.QPMaskDestQPN|verbs.QPMaskRQPSN|verbs.QPMaskMaxDestRD|verbs.QPMaskMinRNRTimer)
	assert.ErrorIs(t, err, ucs.ErrInvalidParam)
	assert.ErrorContains(t, err, "needs a GID")
}

func TestQuery(t *testing.T) {
	a, b := pair(t, defaultPath)
	q := a.qp.Query()
	assert.Equal(t, verbs.QPStateRTS, q.State)
	assert.Equal(t, b.qp.Number(), q.DestQPN)
	assert.Equal(t, verbs.MTU4096, q.PathMTU)
	assert.Equal(t, uint8(7), q.RNRRetry)
	assert.Equal(t, anyone, q.AccessFlags)
	assert.Equal(t, a.qp.Cap(), q.Cap)
	assert.GreaterOrEqual(t, q.Cap.MaxInline, 64)
	require.NoError(t, a.qp.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPMaskState))
	assert.Equal(t, verbs.QPAttr{Cap: a.qp.Cap()}, a.qp.Query())
}

// A parent does not close before its children, and says so.
func TestClose_Order(t *testing.T) {
	d := openDevice(t)
	ch, err := d.ctx.CreateCompChannel()
	require.NoError(t, err)
	cq, err := d.ctx.CreateCQ(verbs.CQInitAttr{Depth: 8, Channel: ch})
	require.NoError(t, err)
	pd, err := d.ctx.AllocPD()
	require.NoError(t, err)
	td := d.td()
	srq, err := pd.CreateSRQ(verbs.SRQInitAttr{MaxWR: 4, MaxSGE: 1})
	require.NoError(t, err)
	qp, err := pd.CreateQP(verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq, SRQ: srq, TD: td})
	require.NoError(t, err)
	mr, err := pd.RegMR(make([]byte, 4096), verbs.AccessLocalWrite)
	require.NoError(t, err)
	ah, err := pd.CreateAH(verbs.AHAttr{DGID: d.gid, SGIDIndex: d.gidIndex, Global: true, Port: 1})
	require.NoError(t, err)

	busy := func(name string, close func() error) {
		t.Helper()
		assert.ErrorIs(t, close(), ucs.ErrBusy, name)
	}
	parents := func() {
		t.Helper()
		busy("PD", pd.Close)
		busy("context", d.ctx.Close)
	}
	busy("CQ", cq.Close)
	busy("SRQ", srq.Close)
	if td != nil {
		busy("TD", td.Close)
	}
	busy("channel", ch.Close)
	parents()
	for _, close := range []func() error{qp.Close, srq.Close, mr.Close} {
		require.NoError(t, close())
		parents()
	}
	busy("channel", ch.Close)
	if td != nil {
		defer func() { require.NoError(t, td.Close()) }()
	}
	for _, close := range []func() error{ah.Close, cq.Close, ch.Close, pd.Close, qp.Close, cq.Close, mr.Close} {
		assert.NoError(t, close(), "children first, twice is once")
	}
	_, err = pd.CreateAH(verbs.AHAttr{DGID: d.gid, SGIDIndex: d.gidIndex, Global: true, Port: 1})
	assert.ErrorIs(t, err, ucs.ErrClosed)
	n, err := qp.PostSend([]verbs.SendWR{{}})
	assert.Zero(t, n)
	assert.ErrorIs(t, err, ucs.ErrInvalidState, "closed")
}

func TestCreate_Refused(t *testing.T) {
	d, other := openDevice(t), openDevice(t)
	cq, foreign := d.cq(verbs.CQInitAttr{}), other.cq(verbs.CQInitAttr{})
	ch, err := other.ctx.CreateCompChannel()
	require.NoError(t, err)
	other.closeLater(ch.Close)
	td := other.td()
	if td != nil {
		other.closeLater(td.Close)
	}
	srq := other.srq(verbs.SRQInitAttr{MaxWR: 4})
	dev := d.ctx.QueryDevice()

	qp := func(change func(a *verbs.QPInitAttr)) func() error {
		return func() error {
			a := verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq}
			change(&a)
			_, err := d.pd.CreateQP(a)
			return err
		}
	}
	mr := func(buf []byte, access verbs.Access) func() error {
		return func() error { _, err := d.pd.RegMR(buf, access); return err }
	}
	ah := func(a verbs.AHAttr) func() error {
		return func() error { _, err := d.pd.CreateAH(a); return err }
	}
	cases := []struct {
		name string
		make func() error
		want error
	}{
		{"QP type", qp(func(a *verbs.QPInitAttr) { a.Type = 3 }), ucs.ErrInvalidParam},
		{"QP without CQ", qp(func(a *verbs.QPInitAttr) { a.RecvCQ = nil }), ucs.ErrInvalidParam},
		{"QP with a CQ of another context", qp(func(a *verbs.QPInitAttr) { a.SendCQ = foreign }), ucs.ErrInvalidParam},
		{"QP with an SRQ of another context", qp(func(a *verbs.QPInitAttr) { a.SRQ = srq }), ucs.ErrInvalidParam},
		{"QP with a TD of another context", qp(func(a *verbs.QPInitAttr) { a.TD = td }), ucs.ErrInvalidParam},
		{"QP too deep", qp(func(a *verbs.QPInitAttr) { a.Cap.MaxSendWR = dev.MaxQPWR + 1 }), ucs.ErrTooLong},
		{"QP with too much inline", qp(func(a *verbs.QPInitAttr) { a.Cap.MaxInline = dev.MaxInline + 1 }), ucs.ErrTooLong},
		{"QP with too many SGEs", qp(func(a *verbs.QPInitAttr) { a.Cap.MaxRecvSGE = dev.MaxSGE + 1 }), ucs.ErrTooLong},
		{"QP with negative depth", qp(func(a *verbs.QPInitAttr) { a.Cap.MaxRecvWR = -1 }), ucs.ErrInvalidParam},
		{"CQ of depth 0", func() error { _, err := d.ctx.CreateCQ(verbs.CQInitAttr{}); return err }, ucs.ErrInvalidParam},
		{"CQ too deep", func() error { _, err := d.ctx.CreateCQ(verbs.CQInitAttr{Depth: dev.MaxCQE + 1}); return err }, ucs.ErrTooLong},
		{"CQ with a channel of another context", func() error { _, err := d.ctx.CreateCQ(verbs.CQInitAttr{Depth: 1, Channel: ch}); return err }, ucs.ErrInvalidParam},
		{"SRQ of depth 0", func() error { _, err := d.pd.CreateSRQ(verbs.SRQInitAttr{}); return err }, ucs.ErrInvalidParam},
		{"SRQ too deep", func() error { _, err := d.pd.CreateSRQ(verbs.SRQInitAttr{MaxWR: dev.MaxSRQWR + 1}); return err }, ucs.ErrTooLong},
		{"SRQ with too many SGEs", func() error {
			_, err := d.pd.CreateSRQ(verbs.SRQInitAttr{MaxWR: 1, MaxSGE: dev.MaxSRQSGE + 1})
			return err
		}, ucs.ErrTooLong},
		{"SRQ with a TD of another context", func() error { _, err := d.pd.CreateSRQ(verbs.SRQInitAttr{MaxWR: 1, TD: td}); return err }, ucs.ErrInvalidParam},
		{"TD of level 3", func() error { _, err := d.ctx.AllocTD(verbs.TDInitAttr{Sharing: 3}); return err }, ucs.ErrInvalidParam},
		{"MR of nothing", mr(nil, 0), ucs.ErrInvalidParam},
		{"MR with remote write only", mr(make([]byte, 8), verbs.AccessRemoteWrite), ucs.ErrInvalidParam},
		{"MR with remote atomic only", mr(make([]byte, 8), verbs.AccessRemoteAtomic), ucs.ErrInvalidParam},
		{"MR with an unknown right", mr(make([]byte, 8), 0x40), ucs.ErrInvalidParam},
		{"buffer of nothing", func() error { _, err := d.ctx.AllocBuffer(0); return err }, ucs.ErrInvalidParam},
		{"AH without GID", ah(verbs.AHAttr{Port: 1}), ucs.ErrInvalidParam},
		{"AH of port 2", ah(verbs.AHAttr{Port: 2, Global: true}), ucs.ErrInvalidParam},
		{"AH with GID index 9", ah(verbs.AHAttr{Port: 1, Global: true, SGIDIndex: 9}), ucs.ErrInvalidParam},
		{"AH with a wide flow label", ah(verbs.AHAttr{Port: 1, Global: true, FlowLabel: 1 << 20}), ucs.ErrInvalidParam},
		{"AH with a service level of 5 bits", ah(verbs.AHAttr{Port: 1, Global: true, SL: 16}), ucs.ErrInvalidParam},
	}
	before, ok := d.ctx.Resources()
	require.Equal(t, os.Getenv(deviceEnv) == "", ok)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if td == nil && strings.Contains(c.name, "TD") {
				t.Skip("the device has no thread domains")
			}
			err := c.make()
			assert.ErrorIs(t, err, c.want)
			if strings.HasSuffix(c.name, "another context") {
				assert.ErrorContains(t, err, "of another context")
			}
		})
	}
	after, _ := d.ctx.Resources()
	assert.Equal(t, before, after)
}

// Keys change with each registration of the same memory.
func TestMR_KeysAreNotReused(t *testing.T) {
	d := openDevice(t)
	buf := make([]byte, 4096)
	seen := map[uint32]bool{}
	for range 100 {
		mr, err := d.pd.RegMR(buf, anyone)
		require.NoError(t, err)
		assert.False(t, seen[mr.RKey()], "%#x", mr.RKey())
		seen[mr.RKey()] = true
		assert.Equal(t, &buf[0], &mr.Bytes()[0])
		assert.Equal(t, anyone, mr.Access())
		assert.Same(t, d.pd, mr.PD())
		require.NoError(t, mr.Close())
	}
}
