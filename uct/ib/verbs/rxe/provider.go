package rxe

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"

	"github.com/gucx/gucx/internal/offheap"
	"github.com/gucx/gucx/internal/uverbs"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// provider implements verbs.Provider without XRC and thread domains. Several goroutines may call its control methods.
type provider struct {
	ctx     *uverbs.Context
	attr    verbs.DeviceAttr
	objects objectTable
	qps     qpTable
}

var (
	_ verbs.Provider  = (*provider)(nil)
	_ verbs.GIDLister = (*provider)(nil)
)

func opError(op string, err error) error { return &ucs.OpError{TL: "rxe", Op: op, Err: err} }

// QueryDevice implements verbs.Provider.
func (p *provider) QueryDevice() verbs.DeviceAttr { return p.attr }

// checkPort returns ErrInvalidParam for a port that the device does not have.
func (p *provider) checkPort(port uint8) error {
	if port < 1 || port > p.attr.PhysPorts {
		return fmt.Errorf("%s: no port %d: %w", p.ctx.Name, port, ucs.ErrInvalidParam)
	}
	return nil
}

// QueryPort implements verbs.Provider.
func (p *provider) QueryPort(port uint8) (verbs.PortAttr, error) {
	if err := p.checkPort(port); err != nil {
		return verbs.PortAttr{}, err
	}
	attr, _, err := p.ctx.QueryPort(port)
	return attr, err
}

// QueryGID implements verbs.Provider. It returns ErrInvalidParam also for an unused entry, from which the device cannot
// send.
func (p *provider) QueryGID(port uint8, index int) (verbs.GID, error) {
	list, err := p.GIDs(port)
	if err != nil {
		return verbs.GID{}, err
	}
	for _, e := range list {
		if int(e.Index) == index {
			return e.GID, nil
		}
	}
	return verbs.GID{}, fmt.Errorf("%s:%d: no GID with index %d: %w", p.ctx.Name, port, index, ucs.ErrInvalidParam)
}

// GIDs implements verbs.GIDLister.
func (p *provider) GIDs(port uint8) ([]verbs.GIDEntry, error) {
	if err := p.checkPort(port); err != nil {
		return nil, err
	}
	return p.ctx.GIDs(port)
}

// Close implements verbs.Provider.
func (p *provider) Close() error { return p.ctx.Close() }

// protectionDomain is a PD.
type protectionDomain struct {
	ctx    *uverbs.Context
	handle uint32
}

// handleOf returns the handle of a PD. Package verbs has checked that the PD is of this provider.
func handleOf(pd *verbs.PD) uint32 { return pd.Provider().(*protectionDomain).handle }

// AllocPD implements verbs.Provider.
func (p *provider) AllocPD(*verbs.PD) (io.Closer, error) {
	var in uverbs.AllocPD
	var out uverbs.HandleReply
	if err := p.ctx.Invoke(uverbs.CmdAllocPD, uverbs.BytesOf(&in), uverbs.BytesOf(&out)); err != nil {
		return nil, err
	}
	return &protectionDomain{ctx: p.ctx, handle: out.Handle}, nil
}

// Close implements io.Closer.
func (d *protectionDomain) Close() error {
	return d.ctx.Call(uverbs.MethodDeallocPD, uverbs.Object(uverbs.AttrHandle, d.handle))
}

// buffer implements verbs.Buffer: memory outside the Go heap, which a child process does not inherit.
type buffer struct{ *offheap.Block }

func (b buffer) Close() error { return b.Free() }

// AllocBuffer implements verbs.Provider.
func (p *provider) AllocBuffer(n int) (verbs.Buffer, error) {
	b, err := offheap.Alloc(n)
	if err != nil {
		return nil, opError("allocate buffer", errors.Join(ucs.ErrNoMemory, err))
	}
	return buffer{b}, nil
}

// memoryRegion is an MR. The kernel pins its pages; pin keeps the Go object alive.
type memoryRegion struct {
	ctx        *uverbs.Context
	handle     uint32
	lkey, rkey uint32
	pin        runtime.Pinner
}

// RegMR implements verbs.Provider. The kernel pins the pages and counts them against RLIMIT_MEMLOCK.
func (p *provider) RegMR(pd *verbs.PD, buf []byte, access verbs.Access) (verbs.MRProvider, error) {
	m := &memoryRegion{ctx: p.ctx}
	m.pin.Pin(&buf[0])
	addr := addressOf(buf)
	in := uverbs.RegMR{Start: addr, Len: uint64(len(buf)), HCAVA: addr, PD: handleOf(pd), Access: uint32(access)}
	var out uverbs.RegMRReply
	if err := p.ctx.Invoke(uverbs.CmdRegMR, uverbs.BytesOf(&in), uverbs.BytesOf(&out)); err != nil {
		m.pin.Unpin()
		return nil, err
	}
	m.handle, m.lkey, m.rkey = out.Handle, out.LKey, out.RKey
	return m, nil
}

// LKey implements verbs.MRProvider.
func (m *memoryRegion) LKey() uint32 { return m.lkey }

// RKey implements verbs.MRProvider.
func (m *memoryRegion) RKey() uint32 { return m.rkey }

// Close implements verbs.MRProvider. It blocks until the kernel has completed accesses to the region.
func (m *memoryRegion) Close(free verbs.Buffer) error {
	if err := m.ctx.Call(uverbs.MethodDeregMR, uverbs.Object(uverbs.AttrHandle, m.handle)); err != nil {
		return err
	}
	m.pin.Unpin()
	if free != nil {
		return free.Close()
	}
	return nil
}

// addressHandle is an AH. Work requests contain its number.
type addressHandle struct {
	ctx            *uverbs.Context
	handle, number uint32
}

// CreateAH implements verbs.Provider. It may block while the kernel resolves the address of the neighbor.
func (p *provider) CreateAH(pd *verbs.PD, attr verbs.AHAttr) (io.Closer, error) {
	in := uverbs.CreateAH{PD: handleOf(pd), Attr: uverbs.AHAttr{
		DGID: attr.DGID, FlowLabel: attr.FlowLabel, SGIDIndex: attr.SGIDIndex, HopLimit: attr.HopLimit,
		TrafficClass: attr.TrafficClass, DLID: attr.DLID, SL: attr.SL, IsGlobal: flag(attr.Global), Port: attr.Port,
	}}
	var out uverbs.HandleReply
	var driver createAHReply
	err := p.ctx.Invoke(uverbs.CmdCreateAH, uverbs.BytesOf(&in), uverbs.BytesOf(&out), uverbs.Out(uverbs.AttrDriverOut, &driver))
	if err != nil {
		return nil, err
	}
	return &addressHandle{ctx: p.ctx, handle: out.Handle, number: driver.Number}, nil
}

// Close implements io.Closer.
func (a *addressHandle) Close() error {
	return a.ctx.Call(uverbs.MethodDestroyAH, uverbs.Object(uverbs.AttrHandle, a.handle))
}

func flag(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// NextAsyncEvent implements verbs.Provider. It drops events of destroyed objects and event types that package verbs does
// not define.
func (p *provider) NextAsyncEvent() (verbs.AsyncEvent, error) {
	for {
		e, err := p.ctx.NextEvent()
		if err != nil {
			return verbs.AsyncEvent{}, err
		}
		if ev, ok := p.objects.event(e); ok {
			return ev, nil
		}
	}
}

// objectTable maps the user handle of an object, which the kernel stores and reports in events, to the object.
type objectTable struct {
	mu   sync.Mutex
	next uint64
	byID map[uint64]any // *compQueue, *queuePair, *sharedRecv
}

func (t *objectTable) init() { t.byID = map[uint64]any{} }

// reserve returns an unused handle.
func (t *objectTable) reserve() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next++
	return t.next
}

func (t *objectTable) add(id uint64, object any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byID[id] = object
}

func (t *objectTable) remove(id uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byID, id)
}

func (t *objectTable) get(id uint64) any {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byID[id]
}

// event converts an event of the kernel. ok is false if its object was destroyed or its type is unknown.
func (t *objectTable) event(e uverbs.Event) (verbs.AsyncEvent, bool) {
	if e.Type > uint32(verbs.EventQPLastWQEReached) {
		return verbs.AsyncEvent{}, false
	}
	ev := verbs.AsyncEvent{Type: verbs.EventType(e.Type)}
	if ev.Type == verbs.EventDeviceFatal {
		return ev, true
	}
	switch o := t.get(e.Element).(type) {
	case *compQueue:
		ev.CQ = o.v
		if ev.Type == verbs.EventCQErr {
			o.fail()
		}
		return ev, ev.Type == verbs.EventCQErr
	case *sharedRecv:
		ev.SRQ = o.v
		return ev, ev.Type == verbs.EventSRQErr || ev.Type == verbs.EventSRQLimitReached
	case *queuePair:
		ev.QP = o.v
		switch ev.Type {
		case verbs.EventQPFatal, verbs.EventQPReqErr, verbs.EventQPAccessErr:
			o.failed.Store(true)
		case verbs.EventCommEst, verbs.EventQPLastWQEReached:
		default:
			return ev, false
		}
		return ev, true
	}
	return ev, false
}
