package verbs_test

import (
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/rxe"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// patience bounds waits that end at once unless something hangs.
const patience = testenv.Watchdog

const (
	bufLen = 64 << 10
	anyone = verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic
)

// device is an open software HCA on the loop fabric.
type device struct {
	t   testing.TB
	ctx *verbs.Context
	pd  *verbs.PD
	gid verbs.GID

	gidIndex uint8
}

func openDevice(t testing.TB) *device {
	t.Helper()
	dev := findDevice(t)
	d := &device{t: t}
	var err error
	d.ctx, err = dev.Open()
	require.NoError(t, err)
	d.closeLater(d.ctx.Close)
	d.pd, err = d.ctx.AllocPD()
	require.NoError(t, err)
	d.closeLater(d.pd.Close)
	gids, err := d.ctx.GIDs(1)
	require.NoError(t, err)
	e, ok := verbs.ChooseGID(gids)
	require.True(t, ok)
	d.gid, d.gidIndex = e.GID, e.Index
	return d
}

// deviceEnv names a device of the kernel to test with.
const deviceEnv = "GUCX_TEST_RXE"

// findDevice returns a software HCA on the loop fabric, or the device that deviceEnv names.
func findDevice(t testing.TB) *verbs.Device {
	t.Helper()
	name := os.Getenv(deviceEnv)
	if name == "" {
		dev, err := softhca.NewDevice(softhca.Config{Fabric: softhca.FabricLoop})
		require.NoError(t, err)
		return dev
	}
	devices, err := rxe.Devices()
	require.NoError(t, err)
	i := slices.IndexFunc(devices, func(d *verbs.Device) bool { return d.Name() == name })
	require.GreaterOrEqual(t, i, 0, "no device %s", name)
	return devices[i]
}

func (d *device) closeLater(f func() error) {
	d.t.Cleanup(func() { require.NoError(d.t, f()) })
}

func (d *device) mr(pd *verbs.PD, access verbs.Access) *verbs.MR {
	d.t.Helper()
	buf, err := d.ctx.AllocBuffer(bufLen)
	require.NoError(d.t, err)
	d.closeLater(buf.Close)
	mr, err := pd.RegMR(buf.Bytes(), access)
	require.NoError(d.t, err)
	d.closeLater(mr.Close)
	return mr
}

func (d *device) otherPD() *verbs.PD {
	d.t.Helper()
	pd, err := d.ctx.AllocPD()
	require.NoError(d.t, err)
	d.closeLater(pd.Close)
	return pd
}

// td is a thread domain; nil where the device has none.
func (d *device) td() *verbs.TD {
	d.t.Helper()
	td, err := d.ctx.AllocTD(verbs.TDInitAttr{})
	if !d.ctx.HasTD() {
		require.ErrorIs(d.t, err, ucs.ErrUnsupported)
		return nil
	}
	require.NoError(d.t, err)
	return td
}

func (d *device) cq(attr verbs.CQInitAttr) *verbs.CQ {
	d.t.Helper()
	attr.Depth = max(attr.Depth, 256)
	cq, err := d.ctx.CreateCQ(attr)
	require.NoError(d.t, err)
	d.closeLater(cq.Close)
	return cq
}

func (d *device) srq(attr verbs.SRQInitAttr) *verbs.SRQ {
	d.t.Helper()
	srq, err := d.pd.CreateSRQ(attr)
	require.NoError(d.t, err)
	d.closeLater(srq.Close)
	return srq
}

// side is one end of a connection.
type side struct {
	*device
	mr *verbs.MR
	cq *verbs.CQ
	qp *verbs.QP
}

func (d *device) side(attr verbs.QPInitAttr) *side {
	d.t.Helper()
	s := &side{device: d, mr: d.mr(d.pd, anyone)}
	if attr.SendCQ == nil {
		attr.SendCQ = d.cq(verbs.CQInitAttr{})
	}
	s.cq, attr.RecvCQ = attr.SendCQ, attr.SendCQ
	if attr.Type == 0 {
		attr.Type = verbs.QPTypeRC
	}
	attr.Cap = verbs.QPCap{MaxSendWR: 32, MaxRecvWR: 32, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInline: 64}
	var err error
	s.qp, err = d.pd.CreateQP(attr)
	require.NoError(d.t, err)
	d.closeLater(s.qp.Close)
	return s
}

// path is how two QPs are connected.
type path struct {
	access verbs.Access
	rnr    uint8
}

var defaultPath = path{access: anyone, rnr: 7}

func (s *side) initialise(access verbs.Access) {
	s.t.Helper()
	require.NoError(s.t, s.qp.Modify(verbs.QPAttr{State: verbs.QPStateInit, Port: 1, AccessFlags: access},
		verbs.QPMaskState|verbs.QPMaskPort|verbs.QPMaskPKeyIndex|verbs.QPMaskAccessFlags))
}

func (s *side) readyToReceive(dest uint32) {
	s.t.Helper()
	require.NoError(s.t, s.qp.Modify(verbs.QPAttr{State: verbs.QPStateRTR, PathMTU: verbs.MTU4096, DestQPN: dest,
		MaxDestRD: 4, MinRNRTimer: 1, AH: verbs.AHAttr{DGID: s.gid, SGIDIndex: s.gidIndex, Global: true, Port: 1}},
		verbs.QPMaskState|verbs.QPMaskAV|verbs.QPMaskPathMTU|verbs.QPMaskDestQPN|verbs.QPMaskRQPSN|
			verbs.QPMaskMaxDestRD|verbs.QPMaskMinRNRTimer))
}

func (s *side) readyToSend(rnr uint8) {
	s.t.Helper()
	require.NoError(s.t, s.qp.Modify(verbs.QPAttr{State: verbs.QPStateRTS, MaxRDAtomic: 4, Timeout: 8, RetryCnt: 2, RNRRetry: rnr},
		verbs.QPMaskState|verbs.QPMaskSQPSN|verbs.QPMaskMaxRDAtomic|verbs.QPMaskTimeout|
			verbs.QPMaskRetryCnt|verbs.QPMaskRNRRetry))
}

func (s *side) join(dest uint32, p path) {
	s.t.Helper()
	s.initialise(p.access)
	s.readyToReceive(dest)
	s.readyToSend(p.rnr)
}

// pair is two connected RC QPs.
func pair(t testing.TB, p path) (a, b *side) {
	t.Helper()
	d := openDevice(t)
	a, b = d.side(verbs.QPInitAttr{}), d.side(verbs.QPInitAttr{})
	a.join(b.qp.Number(), p)
	b.join(a.qp.Number(), p)
	return a, b
}

const udKey = 0x1234

// datagramSide is a UD QP in RTS.
func (d *device) datagramSide(attr verbs.QPInitAttr) *side {
	d.t.Helper()
	attr.Type = verbs.QPTypeUD
	s := d.side(attr)
	const st = verbs.QPMaskState
	require.NoError(d.t, s.qp.Modify(verbs.QPAttr{State: verbs.QPStateInit, Port: 1, QKey: udKey}, st|verbs.QPMaskPort|verbs.QPMaskPKeyIndex|verbs.QPMaskQKey))
	require.NoError(d.t, s.qp.Modify(verbs.QPAttr{State: verbs.QPStateRTR}, st))
	require.NoError(d.t, s.qp.Modify(verbs.QPAttr{State: verbs.QPStateRTS}, st|verbs.QPMaskSQPSN))
	return s
}

func (s *side) post(wr ...verbs.SendWR) {
	s.t.Helper()
	n, err := s.qp.PostSend(wr)
	require.NoError(s.t, err)
	require.Equal(s.t, len(wr), n)
}

// recv posts receives of n bytes each with the given IDs.
func (s *side) recv(n int, ids ...uint64) {
	s.t.Helper()
	for i, id := range ids {
		_, err := s.qp.PostRecv([]verbs.RecvWR{{ID: id, SGList: []verbs.SGE{s.mr.SGE(i*n, n)}}})
		require.NoError(s.t, err)
	}
}

// await polls for n completions.
func (s *side) await(n int) []verbs.WC {
	s.t.Helper()
	return await(s.t, s.cq, n)
}

func await(t testing.TB, cq *verbs.CQ, n int) []verbs.WC {
	t.Helper()
	wc := make([]verbs.WC, n+1)
	have := 0
	testenv.ProgressWithin(t, patience, func() bool {
		k := cq.Poll(wc[have:])
		require.GreaterOrEqual(t, k, 0, "the CQ has overrun")
		have += k
		return have >= n
	})
	require.Equal(t, n, have, "more completions than there should be: %+v", wc)
	return wc[:n]
}

// one is the only completion.
func (s *side) one() verbs.WC {
	s.t.Helper()
	return s.await(1)[0]
}

// quiet makes sure that no completion waits.
func (s *side) quiet() {
	s.t.Helper()
	var wc [1]verbs.WC
	require.Zero(s.t, s.cq.Poll(wc[:]), "%+v", wc[0])
}

// awaitState waits for the device to move the QP.
func (s *side) awaitState(want verbs.QPState) {
	s.t.Helper()
	testenv.ProgressWithin(s.t, patience, func() bool { return s.qp.State() == want })
}

// write is a signaled RDMA write of n bytes from a to b.
func write(id uint64, a, b *side, n int) verbs.SendWR {
	return verbs.SendWR{ID: id, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled,
		SGList: []verbs.SGE{a.mr.SGE(0, n)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}
}

func send(id uint64, a *side, n int) verbs.SendWR {
	return verbs.SendWR{ID: id, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGList: []verbs.SGE{a.mr.SGE(0, n)}}
}
