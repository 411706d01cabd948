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
		rule: "Ops, Ext of the iface and Ext of the domain do not change; a class is in Ops iff one of its capability bits is set, an ability in Ext iff the attributes claim it",
		run:  checkClasses,
	},
	{
		name: "attr/costs",
		rule: "a claimed variant has a cost, which grows with the length or not at all; one that is not claimed has none, nor has registering where there is none",
		run:  checkCosts,
	},
	{
		name: "attr/variants",
		rule: "a variant is claimed iff calling it does not return ErrUnsupported",
		run:  checkVariants,
	},
	{
		name: "attr/params",
		rule: "OpenIface returns an error for a Config of another type, and for an unknown transport or device",
		run:  checkOpenParams,
	},
	{
		name: "md/close-in-use",
		rule: "MD.Close returns an error, and the domain stays open, while an Iface or a Mem of it is open",
		run:  checkMDCloseInUse,
	},
}

func checkAttrSane(t checkT, p *pair) {
	for _, s := range []*side{p.A, p.B} {
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
		checkQueueAttr(t, a)
		assert.False(t, a.Caps.Has(uct.CapLossy), "a conforming transport is not lossy")
		assert.NotZero(t, a.Caps&(uct.CapConnectIface|uct.CapConnectEP), "no way to connect")
		if a.Caps.Has(uct.CapAMWords) {
			assert.True(t, a.Caps.Has(uct.CapAMShort) && a.AM.MaxShort >= 16, "what CapAMWords goes with")
		}
		if a.Caps.Has(uct.CapNotify) {
			assert.True(t, a.Caps.Has(uct.CapPutBcopy|uct.CapPutZcopy|uct.CapConnectEP), "what CapNotify goes with")
		}
		checkAddrLens(t, p, s, a)
		p.settle()
		assert.Equal(t, before, *s.Iface.Attr(), "attributes changed")
		md := s.MD.Attr()
		require.NotNil(t, md)
		assert.NotEmpty(t, md.Component)
		assert.NotEmpty(t, md.Name)
		assert.GreaterOrEqual(t, md.RKeyLen, 0)
	}
}

func checkLimits(t checkT, class string, caps, short, bcopy, zcopy uct.Caps, l uct.OpLimits) {
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

func checkAtomicAttr(t checkT, a *uct.IfaceAttr) {
	m := a.Atomic
	assert.Equal(t, a.Caps.Has(uct.CapAtomic32), m.Post32|m.Fetch32 != 0, "atomic32 and its operations")
	assert.Equal(t, a.Caps.Has(uct.CapAtomic64), m.Post64|m.Fetch64 != 0, "atomic64 and its operations")
	assert.Equal(t, a.Caps&uct.CapAtomic != 0, m.Domain != uct.AtomicNone, "atomic domain")
	assert.False(t, (m.Post32 | m.Post64).Has(uct.AtomicCSwap), "compare-and-swap is not posted")
	known := uct.AtomicSet(uct.AtomicAdd, uct.AtomicAnd, uct.AtomicOr, uct.AtomicXor, uct.AtomicSwap, uct.AtomicCSwap)
	assert.Zero(t, (m.Post32|m.Post64|m.Fetch32|m.Fetch64)&^known, "unknown operations")
}

func checkQueueAttr(t checkT, a *uct.IfaceAttr) {
	q := a.Queue
	if !a.Caps.Has(uct.CapQueue) {
		assert.Zero(t, q, "queues are not claimed")
		return
	}
	for name, n := range map[string]int{
		"MaxMessage": q.MaxMessage, "MaxIOV": q.MaxIOV, "MaxDepth": q.MaxDepth, "MaxQueues": q.MaxQueues, "MaxConns": q.MaxConns,
	} {
		assert.Positive(t, n, "queue: %s", name)
	}
	assert.GreaterOrEqual(t, q.MaxRecvIOV, 2, "queue: a buffer and what takes the rest")
}

func checkAddrLens(t checkT, p *pair, s *side, a *uct.IfaceAttr) {
	if addr := s.Iface.Ext().Address; addr != nil {
		assert.Len(t, addr.DeviceAddr(nil), a.DeviceAddrLen, "device address")
		if a.Caps.Has(uct.CapConnectIface) {
			assert.Len(t, addr.IfaceAddr(nil), a.IfaceAddrLen, "iface address")
		}
	}
	if a.Caps.Has(uct.CapConnectEP) && !a.Caps.Has(uct.CapConnectIface) {
		assert.Len(t, p.AB.EP.Ops().Connect.EPAddr(nil), a.EPAddrLen, "ep address")
	}
}

func checkClasses(t checkT, p *pair) {
	for _, l := range []*link{p.AB, p.BA} {
		caps := l.From.Iface.Attr().Caps
		ops := l.EP.Ops()
		assert.Equal(t, caps&uct.CapAM != 0, ops.AM != nil, "AM and CapAM")
		assert.Equal(t, caps&uct.CapPut != 0, ops.Put != nil, "Put and CapPut")
		assert.Equal(t, caps&uct.CapGet != 0, ops.Get != nil, "Get and CapGet")
		assert.Equal(t, caps&uct.CapAtomic != 0, ops.Atomics != nil, "Atomics and CapAtomic")
		assert.Equal(t, caps.Has(uct.CapConnectEP), ops.Connect != nil, "Connect and CapConnectEP")
		assert.Equal(t, caps.Has(uct.CapQueue), ops.Queues != nil, "Queues of the EP and CapQueue")
		assert.Equal(t, caps.Has(uct.CapNotify), ops.Notify != nil, "Notify and CapNotify")
		assert.Equal(t, caps.Has(uct.CapAMWords), ops.Words != nil, "Words and CapAMWords")
		assert.False(t, caps&uct.CapGet == 0 && (ops.Map != nil || ops.Mapped != nil), "Map and Mapped without CapGet")
		assert.Equal(t, *ops, *l.EP.Ops(), "Ops changed")
	}
	for _, s := range []*side{p.A, p.B} {
		ext := s.Iface.Ext()
		assert.Equal(t, s.Iface.Attr().Caps.Has(uct.CapEventFD), ext.Wake != nil, "Wake and CapEventFD")
		assert.False(t, ext.Pending != nil && ext.Wake == nil, "Pending without Wake")
		assert.Equal(t, *ext, *s.Iface.Ext(), "Ext of the iface changed")
		attr, md := s.MD.Attr(), s.MD.Ext()
		assert.Equal(t, attr.MaxReg > 0, md.Reg != nil, "Reg and MaxReg")
		assert.Equal(t, attr.RKeyLen > 0, md.Keys != nil, "Keys and RKeyLen")
		assert.Equal(t, *md, *s.MD.Ext(), "Ext of the domain changed")
	}
}

func checkCosts(t checkT, p *pair) {
	for _, s := range []*side{p.A, p.B} {
		a := s.Iface.Attr()
		for v := range uct.Variant(uct.NumVariants) {
			c := a.Costs[v]
			if !v.Claimed(a) {
				assert.Zero(t, c, "%v is not claimed", v)
				continue
			}
			checkCost(t, v.String(), c)
			if v < uct.AtomicPost || v == uct.QueueZcopy {
				assert.Positive(t, c.Bandwidth, "%v: bandwidth", v)
			}
		}
		if md := s.MD.Attr(); md.MaxReg == 0 {
			assert.Zero(t, md.RegCost, "registering is not possible")
		} else {
			checkCost(t, "registering", md.RegCost)
			if md.RegReach != (uct.Cost{}) {
				checkCost(t, "reaching registered memory", md.RegReach)
			}
		}
		checkMeasured(t, s)
	}
}

// checkMeasured checks that only claimed variants have measured costs, and that Measure always returns the same costs.
func checkMeasured(t checkT, s *side) {
	t.Helper()
	ext := s.Iface.Ext()
	if ext.Measure == nil {
		return
	}
	m, a := ext.Measure.Measure(), s.Iface.Attr()
	assert.Equal(t, m, ext.Measure.Measure(), "measured once for the process")
	for v := range uct.Variant(uct.NumVariants) {
		if !v.Claimed(a) {
			assert.Zero(t, m.Costs[v], "measured: %v is not claimed", v)
			continue
		}
		checkCost(t, "measured: "+v.String(), m.Costs[v])
	}
	if m.RegReach != (uct.Cost{}) {
		checkCost(t, "measured: reaching registered memory", m.RegReach)
	}
}

func checkCost(t checkT, what string, c uct.Cost) {
	t.Helper()
	assert.Positive(t, c.Send, "%s: time of the sender", what)
	assert.GreaterOrEqual(t, c.Recv, time.Duration(0), "%s: time of the target", what)
	assert.GreaterOrEqual(t, c.Latency, time.Duration(0), "%s: latency", what)
	last := uint64(0)
	for n := uint64(1); n > 0; n <<= 1 {
		took := c.Time(n)
		assert.GreaterOrEqual(t, took, last, "%s: time for %d bytes", what, n)
		last = took
	}
	assert.Less(t, c.Time(8), uint64(time.Second)*1000, "%s: picoseconds for 8 bytes", what)
}

// checkVariants calls each variant of each implemented class and compares ErrUnsupported with the claims.
func checkVariants(t checkT, p *pair) {
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

func checkOpenParams(t checkT, p *pair) {
	type foreign struct{}
	for _, tc := range []struct {
		name   string
		change func(*uct.IfaceParams)
		want   error // nil: any error
	}{
		{"config of another type", func(q *uct.IfaceParams) { q.Config = foreign{} }, uct.ErrInvalidParam},
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
}

func checkMDCloseInUse(t checkT, p *pair) {
	assert.Error(t, p.A.MD.Close(), "an iface is open")
	md, err := p.h.OpenMD()
	require.NoError(t, err)
	if alloc := md.Ext().Alloc; alloc != nil {
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
		p.expect(t, in, "behind the refused close", pattern(1, 64))
	}
}
