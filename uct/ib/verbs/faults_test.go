package verbs_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/offheap"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct/ib/internal/hwfault"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// Each call of the device fails in turn while every kind of object is created, used and
// closed: the function returns the error and has changed nothing, and succeeds when it is
// called again.
func TestDeviceError_EachCall(t *testing.T) {
	testenv.SkipRace(t, "one goroutine makes all calls")
	for name, policy := range map[string]mlx5.UARPolicy{"static": mlx5.UARStatic, "lazy": mlx5.UARLazy} {
		t.Run(name, func(t *testing.T) {
			soft, err := softhca.NewDevice(softhca.Config{Fabric: softhca.FabricLoop})
			require.NoError(t, err)
			r := &faultRun{t: t, lazy: policy == mlx5.UARLazy}
			r.dev = r.faults.Device(soft, mlx5.Config{UARPolicy: policy})
			r.faults.FailNone()
			r.all()
			for i, call := range r.faults.Calls() {
				r.name = fmt.Sprintf("call %d, %s", i, call)
				r.failed = 0
				r.faults.FailCall(i)
				r.all()
				_, injected := r.faults.Injected()
				require.True(t, injected, r.name)
				if !r.lazy || call != "AllocUAR" { // a QP shares a page then
					assert.Equal(t, 1, r.failed, "%s: functions that returned the error", r.name)
				}
			}
		})
	}
}

// faultRun is one run with one call that fails.
type faultRun struct {
	t      *testing.T
	faults hwfault.Faults
	dev    *verbs.Device
	ctx    *verbs.Context // nil before the device is open
	lazy   bool
	name   string // of the call that fails
	failed int    // functions that returned its error
}

// held is what a function could have left behind.
type held struct {
	live    map[string]int
	objects verbs.Resources // without UAR pages, some of which a context keeps
}

func (r *faultRun) held() held {
	h := held{live: r.faults.Live()}
	if r.ctx != nil {
		h.objects, _ = r.ctx.Resources()
		h.objects.UARPages, h.objects.UUARs, h.objects.UUARsUsed, h.objects.UUARsWasted = 0, 0, 0, 0
		h.objects.Bytes = verbs.ResourceBytes{}
	}
	delete(h.live, "UAR page")
	return h
}

// try calls do, a second time if it returns the injected error.
func (r *faultRun) try(what string, do func() error) {
	r.t.Helper()
	before := r.held()
	err := do()
	if err != nil {
		assert.ErrorIs(r.t, err, hwfault.ErrInjected, "%s: %s", r.name, what)
		r.failed++
		assert.Equal(r.t, before, r.held(), "%s: %s leaves behind", r.name, what)
		err = do()
	}
	require.NoError(r.t, err, "%s: %s again", r.name, what)
}

// made calls create, again after an error, and returns what it has made.
func made[T any](r *faultRun, what string, create func() (T, error)) (v T) {
	r.t.Helper()
	r.try(what, func() (err error) { v, err = create(); return err })
	return v
}

// all opens the device, creates one object of each kind, connects the QPs, and closes all.
func (r *faultRun) all() {
	bytes := offheap.InUse()
	r.ctx = nil
	ctx := made(r, "open device", r.dev.Open)
	r.ctx = ctx
	made(r, "query port", func() (verbs.PortAttr, error) { return ctx.QueryPort(1) })
	gid := made(r, "query GID", func() (verbs.GID, error) { return ctx.QueryGID(1, 0) })
	address := verbs.AHAttr{DGID: gid, Global: true, Port: 1}
	pd := made(r, "allocate PD", ctx.AllocPD)
	buf := made(r, "allocate buffer", func() (verbs.Buffer, error) { return ctx.AllocBuffer(4096) })
	inBuf := made(r, "register buffer", func() (*verbs.MR, error) { return pd.RegMR(buf.Bytes(), anyone) })
	mr := made(r, "register memory", func() (*verbs.MR, error) { return pd.RegMR(make([]byte, 4096), anyone) })
	loose := made(r, "allocate buffer", func() (verbs.Buffer, error) { return ctx.AllocBuffer(4096) })
	ah := made(r, "create AH", func() (*verbs.AH, error) { return pd.CreateAH(address) })
	td := made(r, "allocate TD", func() (*verbs.TD, error) { return ctx.AllocTD(verbs.TDInitAttr{Sharing: 1}) })
	even := made(r, "allocate TD", func() (*verbs.TD, error) { return ctx.AllocTD(verbs.TDInitAttr{Sharing: 2}) })
	odd := made(r, "allocate TD", func() (*verbs.TD, error) { return ctx.AllocTD(verbs.TDInitAttr{Sharing: 2}) })
	channel := made(r, "create channel", ctx.CreateCompChannel)
	cq := made(r, "create CQ", func() (*verbs.CQ, error) { return ctx.CreateCQ(verbs.CQInitAttr{Depth: 16, Channel: channel}) })
	srq := made(r, "create SRQ", func() (*verbs.SRQ, error) { return pd.CreateSRQ(verbs.SRQInitAttr{MaxWR: 4, MaxSGE: 1}) })
	r.try("arm SRQ", func() error { return srq.Modify(verbs.SRQAttr{Limit: 2}, verbs.SRQMaskLimit) })

	limits := verbs.QPCap{MaxSendWR: 4, MaxSendSGE: 1, MaxRecvWR: 4, MaxRecvSGE: 1}
	createQP := func(attr verbs.QPInitAttr) *verbs.QP {
		attr.SendCQ, attr.Cap = cq, limits
		return made(r, "create QP", func() (*verbs.QP, error) { return pd.CreateQP(attr) })
	}
	rc := createQP(verbs.QPInitAttr{Type: verbs.QPTypeRC, RecvCQ: cq, SRQ: srq})
	inTD := createQP(verbs.QPInitAttr{Type: verbs.QPTypeRC, RecvCQ: cq, TD: td})
	ud := createQP(verbs.QPInitAttr{Type: verbs.QPTypeUD, RecvCQ: cq})
	initiator := createQP(verbs.QPInitAttr{Type: verbs.QPTypeXRCSend})
	xrcd := made(r, "open XRC domain", func() (*verbs.XRCD, error) {
		return ctx.OpenXRCD(verbs.XRCDInitAttr{FD: verbs.PrivateXRCD})
	})
	xrcSRQ := made(r, "create XRC SRQ", func() (*verbs.SRQ, error) {
		return pd.CreateSRQ(verbs.SRQInitAttr{Type: verbs.SRQTypeXRC, XRCD: xrcd, CQ: cq, MaxWR: 4, MaxSGE: 1})
	})
	target := made(r, "create target", func() (*verbs.QP, error) {
		return xrcd.CreateQP(verbs.QPInitAttr{Type: verbs.QPTypeXRCRecv})
	})
	again := made(r, "open target", func() (*verbs.QP, error) { return xrcd.OpenQP(target.Number()) })

	r.connect(rc, inTD.Number(), address)
	r.connect(inTD, rc.Number(), address)
	r.connect(initiator, target.Number(), address)
	r.connect(target, initiator.Number(), address)
	const st = verbs.QPMaskState
	r.modify(ud, verbs.QPAttr{State: verbs.QPStateInit, Port: 1, QKey: udKey}, st|verbs.QPMaskPort|verbs.QPMaskPKeyIndex|verbs.QPMaskQKey)
	r.modify(ud, verbs.QPAttr{State: verbs.QPStateRTR}, st)
	r.modify(ud, verbs.QPAttr{State: verbs.QPStateRTS}, st|verbs.QPMaskSQPSN)
	r.modify(ud, verbs.QPAttr{State: verbs.QPStateErr}, st)
	r.modify(ud, verbs.QPAttr{State: verbs.QPStateReset}, st)

	for _, c := range []struct {
		what  string
		close func() error
	}{
		{"close target", again.Close}, {"close target", target.Close}, {"close XRC SRQ", xrcSRQ.Close},
		{"close XRC domain", xrcd.Close}, {"close initiator", initiator.Close}, {"close UD QP", ud.Close},
		{"close QP", inTD.Close}, {"close QP", rc.Close}, {"close SRQ", srq.Close}, {"close CQ", cq.Close},
		{"close channel", channel.Close}, {"close TD", odd.Close}, {"close TD", even.Close}, {"close TD", td.Close},
		{"close AH", ah.Close}, {"close MR", mr.Close}, {"close and free MR", func() error { return inBuf.CloseAndFree(buf) }},
		{"close buffer", loose.Close}, {"close PD", pd.Close},
	} {
		r.try(c.what, c.close)
	}
	if err := ctx.Close(); err != nil { // UAR pages may be free already, so r.try does not fit
		assert.ErrorIs(r.t, err, hwfault.ErrInjected, r.name)
		r.failed++
		require.NoError(r.t, ctx.Close(), "%s: close device again", r.name)
	}
	assert.Empty(r.t, r.faults.Live(), "%s: objects that are left", r.name)
	assert.Equal(r.t, bytes, offheap.InUse(), "%s: bytes outside the Go heap that are left", r.name)
}

// connect takes a QP from RESET to RTS.
func (r *faultRun) connect(qp *verbs.QP, dest uint32, address verbs.AHAttr) {
	rtr := verbs.QPMaskState | verbs.QPMaskAV | verbs.QPMaskPathMTU | verbs.QPMaskDestQPN | verbs.QPMaskRQPSN
	rts := verbs.QPMaskState | verbs.QPMaskSQPSN | verbs.QPMaskTimeout
	if qp.Type() != verbs.QPTypeXRCSend {
		rtr |= verbs.QPMaskMaxDestRD | verbs.QPMaskMinRNRTimer
	}
	if qp.Type() != verbs.QPTypeXRCRecv {
		rts |= verbs.QPMaskMaxRDAtomic | verbs.QPMaskRetryCnt | verbs.QPMaskRNRRetry
	}
	r.modify(qp, verbs.QPAttr{State: verbs.QPStateInit, Port: 1, AccessFlags: anyone},
		verbs.QPMaskState|verbs.QPMaskPort|verbs.QPMaskPKeyIndex|verbs.QPMaskAccessFlags)
	r.modify(qp, verbs.QPAttr{State: verbs.QPStateRTR, PathMTU: verbs.MTU4096, DestQPN: dest, MaxDestRD: 4, MinRNRTimer: 1, AH: address}, rtr)
	r.modify(qp, verbs.QPAttr{State: verbs.QPStateRTS, MaxRDAtomic: 4, Timeout: 8, RetryCnt: 2, RNRRetry: 7}, rts)
}

// modify requires that the state changes, or with an error does not.
func (r *faultRun) modify(qp *verbs.QP, attr verbs.QPAttr, mask verbs.QPAttrMask) {
	r.t.Helper()
	before := qp.State()
	r.try(fmt.Sprintf("modify %v QP to %v", qp.Type(), attr.State), func() error {
		err := qp.Modify(attr, mask)
		if errors.Is(err, hwfault.ErrInjected) {
			assert.Equal(r.t, before, qp.State(), "%s: state after the error", r.name)
		}
		return err
	})
	assert.Equal(r.t, attr.State, qp.State(), r.name)
}
