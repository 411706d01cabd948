package provider

import (
	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

var _ verbs.XRCProvider = (*provider)(nil)

// xrcDomain is an XRC domain.
type xrcDomain struct {
	prov  *provider
	hw    prm.XRCHardware
	xrcdn uint32
}

// OpenXRCD implements verbs.XRCProvider.
func (p *provider) OpenXRCD(attr verbs.XRCDInitAttr) (verbs.XRCDProvider, error) {
	const op = "open XRC domain"
	hw, ok := p.hw.(prm.XRCHardware)
	if !ok {
		return nil, opError(op, ucs.ErrUnsupported)
	}
	n, err := hw.OpenXRCD(attr)
	if err != nil {
		return nil, opError(op, err)
	}
	p.count(func(r *verbs.Resources) { r.XRCDs++; r.Bytes.XRCDs += xrcdLen })
	return &xrcDomain{prov: p, hw: hw, xrcdn: n}, nil
}

// Close implements verbs.XRCDProvider.
func (d *xrcDomain) Close() error {
	if err := d.hw.CloseXRCD(d.xrcdn); err != nil {
		return opError("close XRC domain", err)
	}
	d.prov.count(func(r *verbs.Resources) { r.XRCDs--; r.Bytes.XRCDs -= xrcdLen })
	return nil
}

// CreateQP implements verbs.XRCDProvider.
func (d *xrcDomain) CreateQP(v *verbs.QP) (verbs.QPProvider, error) {
	handle, qpn, err := d.hw.CreateTarget(d.xrcdn)
	if err != nil {
		return nil, opError("create QP", err)
	}
	return d.addTarget(v, handle, qpn), nil
}

// OpenQP implements verbs.XRCDProvider.
func (d *xrcDomain) OpenQP(v *verbs.QP, qpn uint32) (verbs.QPProvider, error) {
	handle, err := d.hw.OpenTarget(d.xrcdn, qpn)
	if err != nil {
		return nil, opError("open QP", err)
	}
	return d.addTarget(v, handle, qpn), nil
}

func (d *xrcDomain) addTarget(v *verbs.QP, handle, qpn uint32) *targetQP {
	first := d.prov.events.addQP(handle, v)
	d.prov.countTarget(first, 1)
	return &targetQP{prov: d.prov, v: v, handle: handle, qpn: qpn}
}

// countTarget adds n to the count of references to a target and, if itself is set, to the count of targets.
func (p *provider) countTarget(itself bool, n int) {
	p.count(func(r *verbs.Resources) {
		if r.Bytes.QPs += int64(n) * targetLen; itself {
			r.QPs += n
			r.Targets += n
		}
	})
}

// targetQP is a reference to an XRC target, which has no queue: nothing is posted to it, and
// messages that arrive over it complete receives of SRQs.
type targetQP struct {
	prov   *provider
	v      *verbs.QP
	handle uint32 // for the device
	qpn    uint32 // in the domain
}

// Number implements verbs.QPProvider.
func (q *targetQP) Number() uint32 { return q.qpn }

// PostSend implements verbs.QPProvider: ErrInvalidParam.
func (q *targetQP) PostSend([]verbs.SendWR) (n int, err error) {
	return 0, opError("post send", ucs.ErrInvalidParam)
}

// PostRecv implements verbs.QPProvider: ErrInvalidParam.
func (q *targetQP) PostRecv([]verbs.RecvWR) (n int, err error) {
	return 0, opError("post receive", ucs.ErrInvalidParam)
}

// Modify implements verbs.QPProvider.
func (q *targetQP) Modify(attr *verbs.QPAttr, mask verbs.QPAttrMask) error {
	return q.prov.hw.ModifyQP(q.handle, attr, mask)
}

// State implements verbs.QPProvider.
func (q *targetQP) State() verbs.QPState { return q.prov.stateOf(q.handle) }

// Close implements verbs.QPProvider.
func (q *targetQP) Close() error {
	p := q.prov
	if err := p.hw.DestroyQP(q.handle); err != nil {
		return opError("destroy QP", err)
	}
	last := p.events.removeQP(q.handle, q.v)
	p.countTarget(last, -1)
	return nil
}
