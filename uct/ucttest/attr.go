package ucttest

import (
	"errors"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/uct"
)

var attrChecks = []check{
	{
		name: "attr/sane",
		rule: "IfaceAttr does not change after open; a claimed variant has a limit, one that is not claimed has 0",
		run:  checkAttrSane,
	},
	{
		name: "attr/classes",
		rule: "a class interface is implemented iff one of its capability bits is set",
		run:  checkClasses,
	},
	{
		name: "attr/variants",
		rule: "a variant is claimed iff calling it does not return ErrUnsupported",
		run:  checkVariants,
	},
	{
		name: "attr/params",
		rule: "OpenIface refuses a Config of another type, an unknown transport or device, and a headroom outside 0..256",
		run:  checkOpenParams,
	},
	{
		name: "md/close-in-use",
		rule: "MD.Close returns an error, and the domain stays open, while an Iface or a Mem of it is open",
		run:  checkMDCloseInUse,
	},
}

func checkAttrSane(t T, p *Pair) {
	for _, s := range []*Side{p.A, p.B} {
		a := s.Iface.Attr()
		require.NotNil(t, a)
		before := *a
		assert.Equal(t, p.h.Transport, a.Resource.Transport)
		assert.Equal(t, s.device(t, p.h), a.Resource.Device)
		checkLimits(t, "am", a.Caps&uct.CapAM, uct.CapAMShort, uct.CapAMBcopy, uct.CapAMZcopy, a.AM)
		checkLimits(t, "put", a.Caps&uct.CapPut, uct.CapPutShort, uct.CapPutBcopy, uct.CapPutZcopy, a.Put)
		checkLimits(t, "get", a.Caps&uct.CapGet, uct.CapGetShort, uct.CapGetBcopy, uct.CapGetZcopy, a.Get)
		if a.Caps.Has(uct.CapAMShort) {
			assert.GreaterOrEqual(t, a.AM.MaxShort, 8, "am short carries an 8-byte header")
		}
		checkAtomicAttr(t, a)
		checkPerf(t, &a.Perf)
		assert.False(t, a.Caps.Has(uct.CapLossy), "a conforming transport is not lossy")
		assert.NotZero(t, a.Caps&(uct.CapConnectIface|uct.CapConnectEP), "no way to connect")
		checkAddrLens(t, p, s, a)
		_, wakes := s.Iface.(uct.Waker)
		assert.Equal(t, a.Caps.Has(uct.CapEventFD), wakes, "Waker iff CapEventFD")
		assert.GreaterOrEqual(t, a.MaxEPs, 0)
		p.settle()
		assert.Equal(t, before, *s.Iface.Attr(), "attributes changed")
		md := s.MD.Attr()
		require.NotNil(t, md)
		assert.NotEmpty(t, md.Component)
		assert.NotEmpty(t, md.Name)
		assert.GreaterOrEqual(t, md.RKeyLen, 0)
		_, registers := s.MD.(uct.Registrar)
		assert.Equal(t, registers, md.MaxReg > 0, "Registrar iff MaxReg > 0")
	}
}

func checkLimits(t T, class string, caps, short, bcopy, zcopy uct.Caps, l uct.OpLimits) {
	assert.Equal(t, caps.Has(short), l.MaxShort > 0, "%s: MaxShort %d", class, l.MaxShort)
	assert.Equal(t, caps.Has(bcopy), l.MaxBcopy > 0, "%s: MaxBcopy %d", class, l.MaxBcopy)
	assert.Equal(t, caps.Has(zcopy), l.MaxZcopy > 0, "%s: MaxZcopy %d", class, l.MaxZcopy)
	assert.Equal(t, caps.Has(zcopy), l.MaxIOV > 0, "%s: MaxIOV %d", class, l.MaxIOV)
	assert.GreaterOrEqual(t, l.MinZcopy, 0, "%s: MinZcopy", class)
	assert.LessOrEqual(t, l.MinZcopy, l.MaxZcopy, "%s: MinZcopy", class)
	assert.GreaterOrEqual(t, l.MaxHeader, 0, "%s: MaxHeader", class)
	assert.LessOrEqual(t, l.MaxHeader, l.MaxZcopy, "%s: MaxHeader", class)
	if class != "am" {
		assert.Zero(t, l.MaxHeader, "%s: only am has headers", class)
	}
}

func checkAtomicAttr(t T, a *uct.IfaceAttr) {
	m := a.Atomic
	assert.Equal(t, a.Caps.Has(uct.CapAtomic32), m.Post32|m.Fetch32 != 0, "atomic32 and its operations")
	assert.Equal(t, a.Caps.Has(uct.CapAtomic64), m.Post64|m.Fetch64 != 0, "atomic64 and its operations")
	assert.Equal(t, a.Caps&uct.CapAtomic != 0, m.Domain != uct.AtomicNone, "atomic domain")
	assert.False(t, (m.Post32 | m.Post64).Has(uct.AtomicCSwap), "compare-and-swap is not posted")
	known := uct.Ops(uct.AtomicAdd, uct.AtomicAnd, uct.AtomicOr, uct.AtomicXor, uct.AtomicSwap, uct.AtomicCSwap)
	assert.Zero(t, (m.Post32|m.Post64|m.Fetch32|m.Fetch64)&^known, "unknown operations")
}

func checkPerf(t T, f *uct.Perf) {
	assert.Positive(t, f.Latency)
	assert.GreaterOrEqual(t, f.LatencyPerEP, time.Duration(0))
	assert.Positive(t, f.Overhead)
	assert.Positive(t, f.Bandwidth)
	assert.GreaterOrEqual(t, f.SharedBandwidth, 0.0)
}

func checkAddrLens(t T, p *Pair, s *Side, a *uct.IfaceAttr) {
	if addr, ok := s.Iface.(uct.IfaceAddresser); ok {
		assert.Len(t, addr.DeviceAddr(nil), a.DeviceAddrLen, "device address")
		if a.Caps.Has(uct.CapConnectIface) {
			assert.Len(t, addr.IfaceAddr(nil), a.IfaceAddrLen, "iface address")
		}
	}
	if a.Caps.Has(uct.CapConnectEP) && !a.Caps.Has(uct.CapConnectIface) {
		assert.Len(t, p.AB.EP.(uct.EPConnector).EPAddr(nil), a.EPAddrLen, "ep address")
	}
}

func checkClasses(t T, p *Pair) {
	for _, l := range []*Link{p.AB, p.BA} {
		caps := l.From.Iface.Attr().Caps
		assert.Equal(t, caps&uct.CapAM != 0, l.AM != nil, "AMSender")
		assert.Equal(t, caps&uct.CapPut != 0, l.Put != nil, "Putter")
		assert.Equal(t, caps&uct.CapGet != 0, l.Get != nil, "Getter")
		assert.Equal(t, caps&uct.CapAtomic != 0, l.Atomics != nil, "Atomics")
		_, connects := l.EP.(uct.EPConnector)
		if caps.Has(uct.CapConnectEP) {
			assert.True(t, connects, "CapConnectEP without EPConnector")
		} else {
			assert.False(t, connects, "EPConnector without CapConnectEP")
		}
	}
}

// checkVariants calls every variant of every implemented class.
func checkVariants(t T, p *Pair) {
	l, a := p.AB, p.A.Iface.Attr()
	try := func(name string, cap uct.Caps, post func() error) {
		t.Helper()
		err := p.push(t, post)
		if a.Caps.Has(cap) {
			assert.NoError(t, err, "%s is claimed", name)
		} else {
			assert.True(t, errors.Is(err, uct.ErrUnsupported), "%s is not claimed: %v", name, err)
		}
	}
	if l.AM != nil {
		newInbox(t, p.B, 0)
		try("am short", uct.CapAMShort, func() error { return sendShort(p, l, 0, make([]byte, 8)) })
		try("am bcopy", uct.CapAMBcopy, func() error { return sendBcopy(p, l, 0, make([]byte, min(8, max(1, a.AM.MaxBcopy)))) })
		try("am zcopy", uct.CapAMZcopy, func() error { return sendZcopy(0, 1)(p, l, 0, make([]byte, a.AM.MinZcopy)) })
	}
	if l.Put != nil {
		try("put short", uct.CapPutShort, func() error { return putShort(p, l, l.Raddr, l.Key, make([]byte, 1)) })
		try("put bcopy", uct.CapPutBcopy, func() error { return putBcopy(p, l, l.Raddr, l.Key, make([]byte, 1)) })
		try("put zcopy", uct.CapPutZcopy, func() error { return putZcopy(1)(p, l, l.Raddr, l.Key, make([]byte, max(1, a.Put.MinZcopy))) })
	}
	if l.Get != nil {
		try("get short", uct.CapGetShort, func() error { return getShort(p, l, l.Raddr, l.Key, &getOp{n: 1}) })
		try("get bcopy", uct.CapGetBcopy, func() error { return getBcopy(p, l, l.Raddr, l.Key, &getOp{n: 1}) })
		try("get zcopy", uct.CapGetZcopy, func() error { return getZcopy(1)(p, l, l.Raddr, l.Key, &getOp{n: max(1, a.Get.MinZcopy)}) })
	}
}

func checkOpenParams(t T, p *Pair) {
	type foreign struct{}
	for _, tc := range []struct {
		name   string
		change func(*uct.IfaceParams)
		want   error // nil: any
	}{
		{"config of another type", func(q *uct.IfaceParams) { q.Config = foreign{} }, uct.ErrInvalidParam},
		{"negative headroom", func(q *uct.IfaceParams) { q.RxHeadroom = -1 }, uct.ErrInvalidParam},
		{"headroom of 257", func(q *uct.IfaceParams) { q.RxHeadroom = 257 }, uct.ErrInvalidParam},
		{"unknown transport", func(q *uct.IfaceParams) { q.Transport = "nosuch" }, nil},
		{"unknown device", func(q *uct.IfaceParams) { q.Device = "nosuch:9" }, nil},
	} {
		params := p.A.params(t, p.h, p.opts)
		tc.change(&params)
		iface, err := p.A.MD.OpenIface(params)
		if err == nil {
			assert.NoError(t, iface.Close())
			t.Errorf("%s: accepted", tc.name)
			continue
		}
		if tc.want != nil {
			assert.ErrorIs(t, err, tc.want, tc.name)
		}
	}
	params := p.A.params(t, p.h, p.opts)
	params.RxHeadroom = 256
	md, err := p.h.OpenMD() // that of the pair may have room for one iface only
	require.NoError(t, err)
	iface, err := md.OpenIface(params)
	require.NoError(t, err, "headroom of 256")
	assert.NoError(t, iface.Close())
	assert.NoError(t, md.Close())
}

func checkMDCloseInUse(t T, p *Pair) {
	assert.Error(t, p.A.MD.Close(), "an iface is open")
	md, err := p.h.OpenMD()
	require.NoError(t, err)
	if alloc, ok := md.(uct.Allocator); ok {
		mem, err := alloc.Alloc(1, uct.AccessAll)
		require.NoError(t, err)
		assert.Error(t, md.Close(), "memory is open")
		assert.Len(t, mem.Bytes(), 1)
		mem.Bytes()[0] = 1
		assert.NoError(t, mem.Close())
	}
	assert.NoError(t, md.Close())
	if p.AB.AM != nil {
		in := newInbox(t, p.B, 0)
		v := anyAM(p.A.Iface.Attr())
		require.NoError(t, p.push(t, func() error { return v.send(p, p.AB, 0, pattern(1, 64)) }))
		p.until(t, "the refused close broke the iface", func() bool { return len(in.msgs) == 1 })
	}
}
