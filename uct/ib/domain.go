package ib

import (
	"crypto/rand"

	"github.com/gucx/gucx/uct/ib/verbs"
)

// Domain is an XRC domain that ifaces of the MD share.
type Domain struct {
	XRCD *verbs.XRCD
	ID   [16]byte // no other domain has it, on any host

	md    *MD
	users int // under md.domainMu
}

// OpenDomain opens the XRC domain of the MD, or takes it if another iface has it open. Close it.
// ErrUnsupported where the device has no XRC.
func (md *MD) OpenDomain() (*Domain, error) {
	md.domainMu.Lock()
	defer md.domainMu.Unlock()
	if md.domain != nil {
		md.domain.users++
		return md.domain, nil
	}
	x, err := md.ctx.OpenXRCD(verbs.XRCDInitAttr{FD: verbs.PrivateXRCD})
	if err != nil {
		return nil, err
	}
	md.domain = &Domain{XRCD: x, md: md, users: 1}
	_, _ = rand.Read(md.domain.ID[:]) // never fails
	return md.domain, nil
}

// Close leaves the domain, which the last iface closes.
func (d *Domain) Close() error {
	d.md.domainMu.Lock()
	defer d.md.domainMu.Unlock()
	if d.users > 1 {
		d.users--
		return nil
	}
	if err := d.XRCD.Close(); err != nil {
		return err
	}
	d.md.domain = nil
	return nil
}
