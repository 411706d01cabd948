package softhca

import (
	"errors"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/softhca/internal/table"
	"github.com/gucx/gucx/internal/softhca/internal/xrcdomain"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// OpenXRCD implements prm.XRCHardware. A domain of an inode is shared by what the fabric connects:
// the processes that open it on shm, the XRCDs of one device on loop.
func (h *hca) OpenXRCD(attr verbs.XRCDInitAttr) (uint32, error) {
	if attr.FD == verbs.PrivateXRCD {
		return h.addDomain(&xrcDomain{})
	}
	key, held, err := xrcdomain.Hold(attr.FD)
	if err != nil {
		return 0, err
	}
	h.xrcdMu.Lock()
	defer h.xrcdMu.Unlock()
	if d := h.domainOf(key); d != nil {
		_ = unix.Close(held)
		return h.openAgain(d, attr.Flags)
	}
	xrcdn, err := h.openFirst(&xrcDomain{key: key, inode: held}, attr)
	if err != nil {
		_ = unix.Close(held)
	}
	return xrcdn, err
}

// openFirst opens a domain of an inode that the device does not have open. xrcdMu is held.
func (h *hca) openFirst(d *xrcDomain, attr verbs.XRCDInitAttr) (uint32, error) {
	switch {
	case h.port != nil:
		return h.joinDomain(d, attr)
	case attr.Flags&unix.O_CREAT == 0:
		return 0, unix.EAGAIN
	}
	return h.addDomain(d)
}

// openAgain opens a domain that this device has open already.
func (h *hca) openAgain(d *xrcDomain, flags int) (uint32, error) {
	const exclusive = unix.O_CREAT | unix.O_EXCL
	if flags&exclusive == exclusive {
		return 0, unix.EEXIST
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	d.opens++
	return d.xrcdn, nil
}

// addDomain adds a domain to those of the device, which assigns its number.
func (h *hca) addDomain(d *xrcDomain) (uint32, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	d.opens = 1
	var err error
	d.xrcdn, err = h.xrcds.add(d)
	return d.xrcdn, err
}

// domainOf returns the domain of an inode; nil if the device does not have it open.
func (h *hca) domainOf(key xrcdomain.Key) *xrcDomain {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := slices.IndexFunc(h.xrcds.slot, func(d *xrcDomain) bool { return d != nil && d.key == key })
	if i < 0 {
		return nil
	}
	return h.xrcds.slot[i]
}

// joinDomain makes the device a member of a domain, and publishes that in the table for initiators.
// xrcdMu is held.
func (h *hca) joinDomain(d *xrcDomain, attr verbs.XRCDInitAttr) (uint32, error) {
	place := h.findDomain(xrcdomain.Key{})
	if place == nil {
		return 0, ucs.ErrNoMemory
	}
	var err error
	if d.dir, err = xrcdomain.Join(attr.FD, attr.Flags, h.gid, func() { h.reportFaults(d) }); err != nil {
		return 0, err
	}
	n, err := h.addDomain(d)
	if err != nil {
		return 0, errors.Join(err, d.dir.Close())
	}
	place.Store(d.key)
	return n, nil
}

// findDomain returns the table entry of a domain, or a free one for the zero key; nil if there is
// none.
func (h *hca) findDomain(key xrcdomain.Key) *table.DomainKey {
	for i := range table.MaxSharedDomains {
		if k := h.table.SharedDomain(i); k.Is(key) {
			return k
		}
	}
	return nil
}

// CloseXRCD implements prm.XRCHardware.
func (h *hca) CloseXRCD(xrcdn uint32) error {
	h.xrcdMu.Lock()
	defer h.xrcdMu.Unlock()
	h.mu.Lock()
	d := h.xrcds.get(xrcdn)
	switch {
	case d == nil:
		h.mu.Unlock()
		return ucs.ErrInvalidParam
	case d.opens > 1:
		d.opens--
		h.mu.Unlock()
		return nil
	case d.users > 0:
		h.mu.Unlock()
		return ucs.ErrBusy
	}
	h.xrcds.remove(xrcdn)
	h.mu.Unlock()
	return h.leaveDomain(d)
}

// leaveDomain ends the membership of the device in a domain.
func (h *hca) leaveDomain(d *xrcDomain) error {
	if d.dir != nil {
		h.findDomain(d.key).Store(xrcdomain.Key{})
		h.driving.Lock()
		h.dropResponders(func(qp *queuePair) bool { return qp.domain == d })
		h.driving.Unlock()
	}
	return d.release()
}

// release closes the directory and the inode of the domain.
func (d *xrcDomain) release() (err error) {
	if d.dir != nil {
		err = d.dir.Close()
	}
	if d.key != (xrcdomain.Key{}) {
		err = errors.Join(err, os.NewSyscallError("close", unix.Close(d.inode)))
	}
	return err
}

// leaveDomains releases the domains that the driver has not closed.
func (h *hca) leaveDomains() error {
	var errs []error
	for _, d := range h.xrcds.slot {
		if d != nil {
			errs = append(errs, d.release())
		}
	}
	return errors.Join(errs...)
}
