package provider

import (
	"errors"
	"io"
	"sync"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
)

// provider implements verbs.Provider with mlx5 queues on a Hardware. Control
// methods may be called by any goroutine.
type provider struct {
	hw     prm.Hardware
	attr   verbs.DeviceAttr
	cfg    mlx5.Config
	dbrecs dbrecPool
	users  ownerTable
	events eventQueue

	mu     sync.Mutex // protects the following fields
	pages  uarPages
	uuars  uuarPolicy
	tds    tdUUARs
	counts verbs.Resources // without UARs
	closed bool
}

var (
	_ verbs.Provider        = (*provider)(nil)
	_ verbs.TDAllocator     = (*provider)(nil)
	_ verbs.ResourceCounter = (*provider)(nil)
	_ verbs.GIDLister       = (*provider)(nil)
)

// New makes a provider that owns hw: Close closes it. After an error the caller still owns hw.
// Errors: ErrInvalidParam for an invalid configuration; the error of hw.
func New(hw prm.Hardware, cfg mlx5.Config) (verbs.Provider, error) {
	cfg, err := cfg.WithDefaults()
	if err != nil {
		return nil, opError("configure", err)
	}
	p := &provider{hw: hw, cfg: cfg, pages: uarPages{alloc: hw.AllocUAR, free: hw.FreeUAR}}
	if p.attr, err = hw.QueryDevice(); err != nil {
		return nil, opError("query device", err)
	}
	p.events.init()
	if p.uuars, err = newUUARPolicy(cfg, &p.pages); err != nil {
		return nil, errors.Join(err, p.pages.putAll())
	}
	p.tds = tdUUARs{pages: &p.pages, blueFlame: !cfg.ShutUpBF}
	hw.SetAsyncSink(&p.events)
	return p, nil
}

// HardwareOf returns the hardware behind a device that New has made the provider of; nil for another device.
func HardwareOf(dev *verbs.Context) prm.Hardware {
	if p, ok := dev.Provider().(*provider); ok {
		return p.hw
	}
	return nil
}

func opError(op string, err error) error {
	return &ucs.OpError{TL: "mlx5", Op: op, Err: err}
}

// count changes the resource counters.
func (p *provider) count(change func(*verbs.Resources)) {
	p.mu.Lock()
	change(&p.counts)
	p.mu.Unlock()
}

// Resources implements verbs.ResourceCounter.
func (p *provider) Resources() verbs.Resources {
	r := p.counted()
	if hw, ok := p.hw.(prm.Accountant); ok {
		r.Bytes.Add(hw.Footprint())
	}
	return r
}

// counted returns the resources that the driver uses.
func (p *provider) counted() verbs.Resources {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.counts
	p.pages.count(&r)
	r.Contexts = 1
	r.Bytes.Contexts = contextLen + p.dbrecs.bytes()
	r.Bytes.UARs = int64(r.UARPages) * uarLen
	return r
}

// QueryDevice implements verbs.Provider.
func (p *provider) QueryDevice() verbs.DeviceAttr { return p.attr }

// QueryPort implements verbs.Provider.
func (p *provider) QueryPort(port uint8) (verbs.PortAttr, error) { return p.hw.QueryPort(port) }

// QueryGID implements verbs.Provider.
func (p *provider) QueryGID(port uint8, index int) (verbs.GID, error) {
	return p.hw.QueryGID(port, index)
}

// GIDs implements verbs.GIDLister.
func (p *provider) GIDs(port uint8) ([]verbs.GIDEntry, error) {
	if l, ok := p.hw.(verbs.GIDLister); ok {
		return l.GIDs(port)
	}
	return verbs.GIDsByIndex(p, port)
}

// AllocBuffer implements verbs.Provider.
func (p *provider) AllocBuffer(n int) (verbs.Buffer, error) { return p.hw.AllocBuffer(n) }

// NextAsyncEvent implements verbs.Provider.
func (p *provider) NextAsyncEvent() (verbs.AsyncEvent, error) { return p.events.next() }

// Close implements verbs.Provider. ErrBusy while objects are open. After an error of the
// hardware the provider can only be closed again; after success a second Close does nothing.
func (p *provider) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	c := p.counts
	if c.PDs+c.MRs+c.AHs+c.TDs+c.CQs+c.SRQs+c.QPs+c.XRCDs > 0 {
		return opError("close device", ucs.ErrBusy)
	}
	p.events.close()
	if err := p.pages.putAll(); err != nil {
		return opError("close device", err)
	}
	if err := p.hw.Close(); err != nil {
		return opError("close device", err)
	}
	p.closed = true
	return p.dbrecs.free()
}

// protectionDomain is a PD.
type protectionDomain struct {
	prov *provider
	pdn  uint32
}

// pdn returns the number of a domain of this provider; package verbs has checked that it belongs to it.
func pdn(pd *verbs.PD) uint32 { return pd.Provider().(*protectionDomain).pdn }

// AllocPD implements verbs.Provider.
func (p *provider) AllocPD(*verbs.PD) (io.Closer, error) {
	n, err := p.hw.AllocPD()
	if err != nil {
		return nil, opError("allocate PD", err)
	}
	p.count(func(r *verbs.Resources) { r.PDs++; r.Bytes.PDs += pdLen })
	return &protectionDomain{prov: p, pdn: n}, nil
}

// Close implements io.Closer.
func (d *protectionDomain) Close() error {
	if err := d.prov.hw.DeallocPD(d.pdn); err != nil {
		return opError("free PD", err)
	}
	d.prov.count(func(r *verbs.Resources) { r.PDs--; r.Bytes.PDs -= pdLen })
	return nil
}

// memoryRegion is an MR.
type memoryRegion struct {
	prov       *provider
	lkey, rkey uint32
}

// RegMR implements verbs.Provider.
func (p *provider) RegMR(pd *verbs.PD, buf []byte, access verbs.Access) (verbs.MRProvider, error) {
	m := &memoryRegion{prov: p}
	var err error
	if m.lkey, m.rkey, err = p.hw.RegMR(pdn(pd), buf, access); err != nil {
		return nil, opError("register memory", err)
	}
	p.count(func(r *verbs.Resources) { r.MRs++; r.Bytes.MRs += mrLen })
	return m, nil
}

// LKey implements verbs.MRProvider.
func (m *memoryRegion) LKey() uint32 { return m.lkey }

// RKey implements verbs.MRProvider.
func (m *memoryRegion) RKey() uint32 { return m.rkey }

// Close implements verbs.MRProvider.
func (m *memoryRegion) Close(free verbs.Buffer) error {
	if err := m.prov.hw.DeregMR(m.lkey, free); err != nil {
		return opError("deregister memory", err)
	}
	m.prov.count(func(r *verbs.Resources) { r.MRs--; r.Bytes.MRs -= mrLen })
	return nil
}

// addressHandle is an AH: an AV without its destination QP.
type addressHandle struct {
	prov   *provider
	handle uint32
	av     [prm.AVLen]byte
}

// CreateAH implements verbs.Provider.
func (p *provider) CreateAH(pd *verbs.PD, attr verbs.AHAttr) (io.Closer, error) {
	handle, av, err := p.hw.CreateAH(pdn(pd), attr)
	if err != nil {
		return nil, opError("create AH", err)
	}
	p.count(func(r *verbs.Resources) { r.AHs++; r.Bytes.AHs += ahLen })
	return &addressHandle{prov: p, handle: handle, av: av}, nil
}

// Close implements io.Closer.
func (a *addressHandle) Close() error {
	if err := a.prov.hw.DestroyAH(a.handle); err != nil {
		return opError("destroy AH", err)
	}
	a.prov.count(func(r *verbs.Resources) { r.AHs--; r.Bytes.AHs -= ahLen })
	return nil
}

// threadDomain is a TD: a micro-UAR of its own.
type threadDomain struct {
	prov    *provider
	uuar    *uuar
	sharing int
	guard   Guard // of the posts to its QPs
}

// AllocTD implements verbs.TDAllocator.
func (p *provider) AllocTD(attr verbs.TDInitAttr) (io.Closer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	u, err := p.tds.get(attr.Sharing)
	if err != nil {
		return nil, opError("allocate TD", err)
	}
	p.counts.TDs++
	p.counts.Bytes.TDs += tdLen
	return &threadDomain{prov: p, uuar: u, sharing: attr.Sharing}, nil
}

// Close implements io.Closer.
func (t *threadDomain) Close() error {
	p := t.prov
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.tds.put(t.uuar, t.sharing); err != nil {
		return opError("free TD", err)
	}
	p.counts.TDs--
	p.counts.Bytes.TDs -= tdLen
	return nil
}
