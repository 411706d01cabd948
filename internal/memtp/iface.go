package memtp

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/base"
)

// Config tunes an iface. The zero value is ready to use.
type Config struct {
	// TxDepth is the length of the operation ring of an EP; 0 means 16.
	TxDepth int
	// RxDepth is the number of receive buffers of the iface; 0 means 64.
	RxDepth int
	// ConnectEP makes endpoints connect in pairs (CapConnectEP) instead of to the
	// address of an iface.
	ConnectEP bool
	// AMOnly disables put, get and atomics.
	AMOnly bool
	// Queues is the maximum number of open receive queues of the iface; 0 means 4096.
	Queues int
}

const (
	defaultTxDepth = 16
	defaultRxDepth = 64
	defaultQueues  = 4096
)

// Iface is the transport opened on an MD.
type Iface struct {
	world   *World
	md      *MD
	id      uint64
	conf    Config
	attr    uct.IfaceAttr
	onError func(uct.EP, error)

	ams     base.AMTable
	arbiter base.Arbiter
	eps     base.List[*EP]
	flushes []*ifaceFlush
	rx      rx
	queues  []*queue // open queues
	filled  int      // receives of queues that have a message; under world.mu

	event  int        // eventfd
	armed  uct.Events // under world.mu
	raised bool       // event was written; under world.mu
	closed bool
}

// OpenIface implements uct.MD. The configuration is *[Config] or nil.
func (m *MD) OpenIface(p uct.IfaceParams) (uct.Iface, error) {
	conf, ok := p.Config.(*Config)
	switch {
	case p.Config != nil && !ok, p.Transport != Transport, p.Device != Device:
		return nil, m.fail("open iface", uct.ErrInvalidParam)
	case conf == nil:
		conf = &Config{}
	}
	event, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return nil, m.fail("open iface", err)
	}
	i := &Iface{world: m.world, md: m, conf: *conf, onError: p.OnError, event: event}
	if i.conf.TxDepth <= 0 {
		i.conf.TxDepth = defaultTxDepth
	}
	if i.conf.RxDepth <= 0 {
		i.conf.RxDepth = defaultRxDepth
	}
	if i.conf.Queues <= 0 {
		i.conf.Queues = defaultQueues
	}
	i.setAttr()
	i.rx.init(i, i.conf.RxDepth)
	m.world.mu.Lock()
	defer m.world.mu.Unlock()
	i.id = m.world.newID()
	m.world.ifaces[i.id] = i
	m.open++
	return i, nil
}

// Limits of the operations, in bytes. They are small, so that tests reach them.
const (
	maxShort    = 72
	maxBcopy    = 2000
	maxAM       = 5000
	maxHeader   = 40
	maxRMA      = 100000
	minPutZcopy = 16
	maxIOV      = 4
)

func (i *Iface) setAttr() {
	caps := uct.CapAM | uct.CapQueue | uct.CapPending | uct.CapErrPeer | uct.CapErrPeerIdle | uct.CapCheckDevice | uct.CapErrRemoteMem | uct.CapEventFD
	a := &i.attr
	*a = uct.IfaceAttr{
		Resource: uct.Resource{Transport: Transport, Device: Device, Kind: uct.DeviceShm},
		AM:       uct.OpLimits{MaxShort: maxShort, MaxBcopy: maxBcopy, MaxZcopy: maxAM, MaxIOV: maxIOV, MaxHeader: maxHeader},
		Queue: uct.QueueAttr{
			MaxMessage: maxQueued, MaxIOV: maxIOV, MaxRecvIOV: maxIOV, MaxDepth: maxQueueDepth,
			MaxQueues: i.conf.Queues, MaxConns: queueConns,
		},
		DeviceAddrLen: idLen,
	}
	if i.conf.ConnectEP {
		caps |= uct.CapConnectEP
		a.EPAddrLen = idLen
	} else {
		caps |= uct.CapConnectIface
		a.IfaceAddrLen = idLen
	}
	if !i.conf.AMOnly {
		caps |= uct.CapPut | uct.CapGet | uct.CapAtomic
		rma := uct.OpLimits{MaxShort: maxShort, MaxBcopy: maxBcopy, MaxZcopy: maxRMA, MaxIOV: maxIOV}
		a.Put, a.Get = rma, rma
		a.Put.MinZcopy = minPutZcopy
		post := uct.AtomicSet(uct.AtomicAdd, uct.AtomicAnd, uct.AtomicOr, uct.AtomicXor)
		fetch := post | uct.AtomicSet(uct.AtomicSwap, uct.AtomicCSwap)
		a.Atomic = uct.AtomicAttr{Post32: post, Post64: post, Fetch32: fetch, Fetch64: fetch, Domain: uct.AtomicDevice}
	}
	if i.conf.ConnectEP && !i.conf.AMOnly {
		caps |= uct.CapNotify
	}
	a.Caps = caps
	var costs uct.Costs
	for v := range costs {
		costs[v] = uct.Cost{Send: 100, Recv: 100, Latency: 1000, Bandwidth: 1e9}
	}
	a.Declare(costs)
}

// Attr implements uct.Iface.
func (i *Iface) Attr() *uct.IfaceAttr { return &i.attr }

// Ext implements uct.Iface.
func (i *Iface) Ext() *uct.IfaceExt { return &uct.IfaceExt{Address: i, Wake: i, Pending: i, Armed: i} }

// SetAMHandler implements uct.Iface.
func (i *Iface) SetAMHandler(id uint8, h uct.AMHandler) error { return i.ams.Set(id, h) }

// DeviceAddr implements uct.IfaceAddresser.
func (i *Iface) DeviceAddr(b []byte) []byte { return appendID(b, kindDevice, i.md.id) }

// IfaceAddr implements uct.IfaceAddresser.
func (i *Iface) IfaceAddr(b []byte) []byte { return appendID(b, kindIface, i.id) }

// Reachable implements uct.IfaceAddresser.
func (i *Iface) Reachable(deviceAddr, ifaceAddr []byte) (ok bool, why string) {
	if _, ok := parseID(deviceAddr, kindDevice); !ok {
		return false, "not a device address of memtp"
	}
	if ifaceAddr == nil {
		return true, ""
	}
	if _, err := i.lookup(deviceAddr, ifaceAddr); err != nil {
		return false, err.Error()
	}
	return true, ""
}

// lookup returns the iface of an address. Errors: ErrInvalidAddr; ErrUnreachable if there is no such iface.
func (i *Iface) lookup(deviceAddr, ifaceAddr []byte) (*Iface, error) {
	device, ok1 := parseID(deviceAddr, kindDevice)
	id, ok2 := parseID(ifaceAddr, kindIface)
	if !ok1 || !ok2 {
		return nil, i.md.fail("read address", uct.ErrInvalidAddr)
	}
	i.world.mu.Lock()
	defer i.world.mu.Unlock()
	peer := i.world.ifaces[id]
	if peer == nil || peer.md.id != device {
		return nil, i.md.fail(fmt.Sprintf("find iface %d", id), uct.ErrUnreachable)
	}
	return peer, nil
}

// Progress implements uct.Iface.
func (i *Iface) Progress() int {
	i.clearEvent()
	n := 0
	for k := 0; k < i.eps.Len(); k++ {
		e := i.eps.All()[k]
		n += e.progress() + e.progressSends()
	}
	n += i.notifyCompleted()
	n += i.deliver()
	i.arbiter.Dispatch(nil)
	return n
}

// ifaceFlush is a flush over all EPs.
type ifaceFlush struct {
	uct.Completion
	user *uct.Completion
}

// Flush implements uct.Iface.
func (i *Iface) Flush(c *uct.Completion) (pending bool, err error) {
	busy := 0
	for _, e := range i.eps.All() {
		if e.tx.n > 0 && e.failure == ucs.StatusOK {
			busy++
			if e.tx.full() {
				return false, uct.ErrNoResource
			}
		}
	}
	if busy == 0 || c == nil {
		return busy > 0, nil
	}
	f := i.newFlush()
	f.user, f.Count, f.Status = c, busy, ucs.StatusOK
	for _, e := range i.eps.All() {
		if e.tx.n > 0 && e.failure == ucs.StatusOK {
			e.tx.push(opFlush, &f.Completion)
		}
	}
	return true, nil
}

// newFlush returns an unused ifaceFlush.
func (i *Iface) newFlush() *ifaceFlush {
	for _, f := range i.flushes {
		if f.user == nil {
			return f
		}
	}
	f := &ifaceFlush{}
	i.flushes = append(i.flushes, f)
	f.Func = func(*uct.Completion) {
		user := f.user
		f.user = nil
		user.Complete(f.Status)
	}
	return f
}

// Fence implements uct.Iface. Operations are executed in order.
func (i *Iface) Fence() error { return nil }

// Close implements uct.Iface.
func (i *Iface) Close() error {
	if i.closed {
		return nil
	}
	i.closed = true
	for i.eps.Len() > 0 {
		if err := i.eps.All()[0].Close(); err != nil {
			return err
		}
	}
	for len(i.queues) > 0 {
		if err := i.queues[0].Close(); err != nil {
			return err
		}
	}
	i.world.mu.Lock()
	defer i.world.mu.Unlock()
	delete(i.world.ifaces, i.id)
	i.md.open--
	return unix.Close(i.event)
}
