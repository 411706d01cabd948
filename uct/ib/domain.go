package ib

import (
	"crypto/rand"

	"github.com/gucx/gucx/uct/ib/verbs"
)

// Domain is an XRC domain that ifaces of the MD share, and those of other processes if it has a
// file.
type Domain struct {
	XRCD *verbs.XRCD
	ID   [16]byte // no other domain has it, on any host

	md    *MD
	file  string
	users int // under md.domainMu
}

// OpenDomain opens the XRC domain of a file (see DomainFile), which is that of all processes of the
// user that open it on this host, or without one ("") a domain of the MD alone. It takes it if
// another iface of the MD has it open. Close it. With a file it may block for seconds while
// processes that are in the domain are stopped.
//
// Errors: ErrUnsupported where the device has no XRC, ErrRejected for a file that others can reach,
// ErrTimedOut, those of opening the file.
func (md *MD) OpenDomain(file string) (*Domain, error) {
	md.domainMu.Lock()
	defer md.domainMu.Unlock()
	if d := md.domains[file]; d != nil {
		d.users++
		return d, nil
	}
	d := &Domain{md: md, file: file, users: 1}
	var err error
	if file == "" {
		d.XRCD, err = md.ctx.OpenXRCD(verbs.XRCDInitAttr{FD: verbs.PrivateXRCD})
		_, _ = rand.Read(d.ID[:]) // never fails
	} else {
		d.XRCD, d.ID, err = joinDomain(md.ctx, file)
	}
	if err != nil {
		return nil, err
	}
	if md.domains == nil {
		md.domains = map[string]*Domain{}
	}
	md.domains[file] = d
	return d, nil
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
	delete(d.md.domains, d.file)
	return nil
}
