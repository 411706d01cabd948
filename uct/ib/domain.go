package ib

import (
	"crypto/rand"

	"github.com/gucx/gucx/uct/ib/verbs"
)

// Domain is an XRC domain that ifaces of the MD share. With a file, other processes share it too.
type Domain struct {
	XRCD *verbs.XRCD
	ID   [16]byte // unique among all domains of all hosts

	md    *MD
	file  string
	users int // under md.domainMu
}

// OpenDomain opens the XRC domain of a file (see DomainFile), which all processes of the user on
// this host share, or without a file ("") a domain of the MD alone. If another iface of the MD has
// opened it, OpenDomain returns the same Domain. The caller must close it. With a file it may block
// for seconds while other members of the domain are stopped.
//
// Errors: ErrUnsupported if the device has no XRC, ErrRejected for a file that other users can
// access, ErrTimedOut, and errors of opening the file.
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
		_, _ = rand.Read(d.ID[:]) // never returns an error
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

// Close releases the domain. The last Close of an iface closes it.
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
