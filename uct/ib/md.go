package ib

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/base"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// MD is an open device with one protection domain. Any goroutine may call its methods.
type MD struct {
	ctx    *verbs.Context
	pd     *verbs.PD
	dev    verbs.DeviceAttr
	attr   uct.MDAttr
	cfg    Config
	tls    []Transport
	events *eventLoop
	owners owners

	domainMu sync.Mutex
	domains  map[string]*Domain // domains that ifaces have opened, by file

	users base.Users
}

var _ uct.MD = (*MD)(nil)

func openMD(d *verbs.Device, cfg Config, tls []Transport) (_ *MD, err error) {
	var undo cleanup.Stack
	defer func() {
		if err != nil {
			err = errors.Join(err, undo.Run())
		}
	}()
	ctx, err := d.Open()
	if err != nil {
		return nil, err
	}
	undo.Add(ctx.Close)
	pd, err := ctx.AllocPD()
	if err != nil {
		return nil, &ucs.OpError{TL: componentName, Dev: d.Name(), Op: "alloc pd", Err: err}
	}
	md := &MD{ctx: ctx, pd: pd, dev: ctx.QueryDevice(), cfg: cfg, tls: tls}
	md.attr = uct.MDAttr{
		Component: componentName,
		Name:      d.Name(),
		RKeyLen:   rkeyLen,
		NeedMemH:  true,
		MaxReg:    md.dev.MaxMRSize,
		RegCost:   regCost,

		AllocReach: allocReach,
	}
	md.events = startEventLoop(ctx)
	return md, nil
}

// allocReach is the time of a put by the software HCA to memory that it maps. A put to other memory
// needs a system call and takes 2.5 us with a flush. A hardware device accesses all memory in the
// same way, and not so fast.
const allocReach = 130 * time.Nanosecond

// regCost is the time of a registration by the software HCA (experiment 0087 in docs/perf), and for
// each byte the time in which UCX assumes that an adapter pins pages.
var regCost = uct.Cost{Send: 6 * time.Microsecond, Bandwidth: 16e9}

// Attr implements uct.MD.
func (md *MD) Attr() *uct.MDAttr { return &md.attr }

// Ext implements uct.MD.
func (md *MD) Ext() *uct.MDExt { return &uct.MDExt{Reg: md, Alloc: md, Keys: md} }

// Config returns the settings that all transports of the MD share.
func (md *MD) Config() Config { return md.cfg }

// Context returns the open device, for transports.
func (md *MD) Context() *verbs.Context { return md.ctx }

// PD returns the protection domain of the MD, for transports.
func (md *MD) PD() *verbs.PD { return md.pd }

// DeviceAttr returns the limits of the device.
func (md *MD) DeviceAttr() verbs.DeviceAttr { return md.dev }

// maxMessage is the maximum length of a message in bytes for any device. InfiniBand permits 2 GiB
// (IBTA volume 1, 9.7.6), but one SGE less: bit 31 of the byte count of an mlx5 data segment is
// reserved. ConnectX devices declare this limit themselves. It is a multiple of the page size, so
// that the parts of a longer transfer are aligned.
const maxMessage = 1 << 30

// MaxMessage returns the maximum length of a message in bytes, in one SGE or several.
func (md *MD) MaxMessage() int { return int(min(md.dev.MaxMsgSize, maxMessage)) }

// Resources lists every transport that the device supports on every active port.
func (md *MD) Resources() ([]uct.Resource, error) {
	var out []uct.Resource
	for port := uint8(1); port <= md.dev.PortCount; port++ {
		pa, err := md.ctx.QueryPort(port)
		if err != nil {
			return nil, md.opError("query port "+strconv.Itoa(int(port)), err)
		}
		if pa.State != verbs.PortActive {
			continue
		}
		for _, tl := range md.tls {
			if c, ok := tl.(DeviceFilter); ok && c.Supports(md.ctx) != nil {
				continue
			}
			x, ok := tl.(Explicit)
			out = append(out, uct.Resource{
				Transport: tl.Name(), Device: md.portName(port), Kind: uct.DeviceNet, Explicit: ok && x.Explicit(),
			})
		}
	}
	return out, nil
}

// portName returns the name of a port in uct.Resource: "softhca0:1".
func (md *MD) portName(port uint8) string {
	return md.attr.Name + ":" + strconv.Itoa(int(port))
}

// OpenIface opens the transport p.Transport on the port p.Device. ErrInvalidParam if one of them
// does not exist.
func (md *MD) OpenIface(p uct.IfaceParams) (uct.Iface, error) {
	port, err := md.parsePort(p.Device)
	if err != nil {
		return nil, md.opError("open iface", err)
	}
	for _, tl := range md.tls {
		if tl.Name() == p.Transport {
			it, err := tl.OpenIface(md, port, p)
			if err != nil || !md.cfg.PollIdleTx {
				return it, err
			}
			return md.newIdleTx(it, tl)
		}
	}
	return nil, md.opError("open iface", fmt.Errorf("%w: no transport %q", uct.ErrInvalidParam, p.Transport))
}

func (md *MD) parsePort(device string) (uint8, error) {
	s, ok := strings.CutPrefix(device, md.attr.Name+":")
	port, err := strconv.ParseUint(s, 10, 8)
	if !ok || err != nil || port < 1 || port > uint64(md.dev.PortCount) {
		return 0, fmt.Errorf("%w: no port %q", uct.ErrInvalidParam, device)
	}
	return uint8(port), nil
}

// Hold adds a reference of an iface to the MD. ErrClosed after Close.
func (md *MD) Hold() error {
	if err := md.users.Hold(); err != nil {
		return md.opError("use md", err)
	}
	return nil
}

// Drop removes a reference of Hold.
func (md *MD) Drop() { md.users.Drop() }

// Close closes the device. ErrBusy while an iface or a Mem is open. Idempotent.
func (md *MD) Close() error {
	if err := md.users.Close(md.release); err != nil {
		return md.opError("close md", err)
	}
	return nil
}

func (md *MD) release() error {
	if err := md.pd.Close(); err != nil {
		return err
	}
	if err := md.ctx.Close(); err != nil {
		return err
	}
	md.events.wait()
	return nil
}

func (md *MD) opError(op string, err error) error {
	return &ucs.OpError{TL: componentName, Dev: md.attr.Name, Op: op, Err: err}
}
