package ucttest

import (
	"runtime"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/uct"
)

// regionLen is the length in bytes of the memory of each side that peers can access.
const regionLen = 256 << 10

// side is one iface with its memory domain.
type side struct {
	Name  string
	MD    uct.MD
	Iface uct.Iface
	// Mem is regionLen bytes of memory with all access rights; nil if the transport has neither put, get nor atomics.
	Mem uct.Mem
	// Errors lists the calls of OnError.
	Errors []epError

	staged  stage               // registered buffers for zcopy operations of this side
	onError func(uct.EP, error) // also called by OnError; may be nil
	ownsMD  bool
}

// epError is one call of OnError.
type epError struct {
	EP  uct.EP
	Err error
}

// link is an EP from one side to another, with its operation classes and the key of the target's memory.
type link struct {
	EP       uct.EP
	AM       uct.AMSender
	Put      uct.Putter
	Get      uct.Getter
	Atomics  uct.Atomics
	From, To *side
	Key      uct.RKey // of To.Mem
	Raddr    uint64   // of To.Mem

	failed  bool // a check expects that the EP has failed
	mayFail bool // it may have failed
}

// pair is the fixture of a check: sides A and B, with EPs AB and BA that connect them.
type pair struct {
	A, B   *side
	AB, BA *link

	t     checkT
	h     *Harness
	opts  Options
	sides []*side
	links []*link
	mems  []uct.Mem
	keys  []unpacked
	comps []*comp
	// posting is true during a call that posts: no completion may fire then.
	posting bool
	gone    [][]byte // scribbled buffers of complete gets
	idle    int      // consecutive idle rounds
	shut    bool
}

// unpacked is a key that the pair releases at the end.
type unpacked struct {
	md  uct.MD
	key uct.RKey
}

func openPair(t checkT, h *Harness, o Options) *pair {
	p := &pair{t: t, h: h, opts: o}
	t.Cleanup(func() { p.close(t) })
	p.A = p.open(t, "A", nil)
	p.B = p.open(t, "B", p.A)
	p.AB, p.BA = p.connect(t, p.A, p.B)
	return p
}

// open opens an iface, on the memory domain of near if Harness.SharedMD is set.
func (p *pair) open(t checkT, name string, near *side) *side {
	t.Helper()
	s := &side{Name: name}
	if near != nil && p.h.SharedMD {
		s.MD = near.MD
	} else {
		md, err := p.h.OpenMD()
		require.NoError(t, err, "%s: open md", name)
		s.MD, s.ownsMD = md, true
	}
	p.sides = append(p.sides, s)
	iface, err := s.MD.OpenIface(s.params(t, p.h, p.opts))
	require.NoError(t, err, "%s: open iface", name)
	s.Iface = iface
	s.staged.open(t, p, s)
	if iface.Attr().Caps&(uct.CapPut|uct.CapGet|uct.CapAtomic) != 0 {
		s.Mem = p.memory(t, s, regionLen, uct.AccessAll)
	}
	return s
}

func (s *side) params(t checkT, h *Harness, o Options) uct.IfaceParams {
	return uct.IfaceParams{
		Transport: h.Transport, Device: s.device(t, h), Config: h.config(o),
		OnError: s.failed,
	}
}

// failed is the OnError function of the iface.
func (s *side) failed(ep uct.EP, err error) {
	s.Errors = append(s.Errors, epError{ep, err})
	if s.onError != nil {
		s.onError(ep, err)
	}
}

func (s *side) device(t checkT, h *Harness) string {
	if h.Device != "" {
		return h.Device
	}
	list, err := s.MD.Resources()
	require.NoError(t, err, "list resources")
	for _, r := range list {
		if r.Transport == h.Transport {
			return r.Device
		}
	}
	require.Fail(t, "no device", "transport %q is not among %v", h.Transport, list)
	return ""
}

// memory returns n bytes of memory of s: allocated if the MD allocates, else registered if the MD registers, else
// ordinary memory.
func (p *pair) memory(t checkT, s *side, n int, access uct.Access) uct.Mem {
	t.Helper()
	var mem uct.Mem
	var err error
	switch ext := s.MD.Ext(); {
	case ext.Alloc != nil:
		mem, err = ext.Alloc.Alloc(n, access)
	case ext.Reg != nil:
		mem, err = ext.Reg.Reg(make([]byte, n), access)
	default:
		require.Fail(t, "no memory", "md %s neither allocates nor registers", s.MD.Attr().Name)
	}
	require.NoError(t, err, "%s: memory of %d bytes", s.Name, n)
	p.mems = append(p.mems, mem)
	return mem
}

// unpack packs the key of mem and unpacks it for side from.
func (p *pair) unpack(t checkT, from *side, mem uct.Mem) uct.RKey {
	t.Helper()
	packed, err := mem.PackRKey(nil)
	require.NoError(t, err, "pack rkey")
	u := from.MD.Ext().Keys
	if u == nil {
		return 0
	}
	key, err := u.UnpackRKey(packed)
	require.NoError(t, err, "unpack rkey")
	p.keys = append(p.keys, unpacked{from.MD, key})
	return key
}

// connect creates EPs from a to b and from b to a.
func (p *pair) connect(t checkT, a, b *side) (ab, ba *link) {
	t.Helper()
	ab, ba = p.half(t, a, b), p.half(t, b, a)
	if !a.Iface.Attr().Caps.Has(uct.CapConnectIface) {
		p.join(t, ab, b, ba.EP)
		p.join(t, ba, a, ab.EP)
	}
	return ab, ba
}

// half creates an EP of a, which is connected to b if the transport connects to ifaces.
func (p *pair) half(t checkT, from, to *side) *link {
	t.Helper()
	var params uct.EPParams
	if from.Iface.Attr().Caps.Has(uct.CapConnectIface) {
		params.DeviceAddr, params.IfaceAddr = to.addresses(t)
	}
	ep, err := from.Iface.NewEP(params)
	require.NoError(t, err, "%s: new ep", from.Name)
	return p.link(t, ep, from, to)
}

func (p *pair) link(t checkT, ep uct.EP, from, to *side) *link {
	l := &link{EP: ep, From: from, To: to}
	ops := ep.Ops()
	l.AM, l.Put, l.Get, l.Atomics = ops.AM, ops.Put, ops.Get, ops.Atomics
	if to != nil && to.Mem != nil {
		l.Key, l.Raddr = p.unpack(t, from, to.Mem), to.Mem.Addr()
	}
	p.links = append(p.links, l)
	return l
}

func (p *pair) join(t checkT, l *link, to *side, peer uct.EP) {
	t.Helper()
	mine := l.EP.Ops().Connect
	require.NotNil(t, mine, "CapConnectEP without EPConnector")
	device, _ := to.addresses(t)
	require.NoError(t, mine.Connect(device, peer.Ops().Connect.EPAddr(nil)), "%s: connect", l.From.Name)
}

// addresses returns copies of the addresses of the side.
func (s *side) addresses(t checkT) (device, iface []byte) {
	t.Helper()
	a := s.Iface.Ext().Address
	require.NotNil(t, a, "%s: the iface has no addresses", s.Name)
	device = a.DeviceAddr(nil)
	if s.Iface.Attr().Caps.Has(uct.CapConnectIface) {
		iface = a.IfaceAddr(nil)
	}
	return device, iface
}

// round calls Progress of each iface once and yields if all were idle.
func (p *pair) round() int {
	n := 0
	for _, s := range p.sides {
		if s.Iface != nil {
			n += s.Iface.Progress()
		}
	}
	if n > 0 {
		p.idle = 0
		return n
	}
	if p.h.Budget > 0 { // without pauses, the wait fails sooner
		runtime.Gosched()
		return 0
	}
	yieldIdle(p.idle)
	p.idle++
	return 0
}

// idleRounds is the number of consecutive idle rounds after which no operation is expected to be in flight.
const idleRounds = 64

// settle progresses until idleRounds consecutive rounds were idle.
func (p *pair) settle() {
	for idle := 0; idle < idleRounds; idle++ {
		if p.round() > 0 {
			idle = 0
		}
	}
}

// until progresses until cond is true, and fails the check when the budget of rounds is spent.
func (p *pair) until(t checkT, what string, cond func() bool) {
	t.Helper()
	p.within(t, p.h.patience(1), what, cond)
}

// eventually is until with the larger budget of events of timers and of the kernel.
func (p *pair) eventually(t checkT, what string, cond func() bool) {
	t.Helper()
	p.within(t, p.h.patience(timerBudget), what, cond)
}

func (p *pair) within(t checkT, w patience, what string, cond func() bool) {
	t.Helper()
	for !cond() {
		if w.spent(p.round()) {
			require.Fail(t, "stuck: "+what, "something happened in %d rounds, and nothing in the last %d", w.busy, w.idle)
		}
	}
}

// push repeats a post while it returns ErrNoResource, and returns its result.
func (p *pair) push(t checkT, post func() error) error {
	t.Helper()
	try := func() error {
		p.posting = true
		err := post()
		p.posting = false
		return err
	}
	err := try()
	if err == uct.ErrNoResource {
		p.until(t, "resources never returned", func() bool {
			err = try()
			return err != uct.ErrNoResource
		})
	}
	return err
}
