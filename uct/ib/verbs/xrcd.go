package verbs

import (
	"fmt"

	"github.com/gucx/gucx/ucs"
)

// XRCD is an XRC domain: XRC shared receive queues, and the targets over which
// initiators reach every one of them by its number (IBTA volume 1, annex 14). Its methods
// may be called by any goroutine.
type XRCD struct {
	ctx  *Context
	p    XRCDProvider
	life lifetime
}

// XRCDInitAttr opens an XRC domain.
type XRCDInitAttr struct {
	// FD is a descriptor of an open file, whose inode identifies the domain: contexts that use the same file
	// share it. The file is not read or written, and may be closed afterwards. With PrivateXRCD the
	// domain belongs to this context alone.
	FD int
	// Flags are flags of open(2): O_CREAT makes the domain if it does not exist; with O_EXCL
	// too, it must not exist. They have no effect on a private domain.
	Flags int
}

// PrivateXRCD as XRCDInitAttr.FD makes a domain that no other context can open.
const PrivateXRCD = -1

// OpenXRCD opens a domain. If the domain is shared and other processes in it are stopped, OpenXRCD
// may block for seconds and then return ErrTimedOut. The same holds for CreateQP, OpenQP, and
// CreateSRQ in the domain. Other errors:
//
//   - ErrUnsupported: the device has no XRC, or cannot share a domain by FD.
//   - ErrInvalidParam: FD is not a descriptor of a file or directory.
//   - The unix error EAGAIN: the domain does not exist, and O_CREAT is not set.
//   - The unix error EEXIST: the domain exists, and O_EXCL is set.
func (c *Context) OpenXRCD(attr XRCDInitAttr) (*XRCD, error) {
	const op = "open XRC domain"
	if attr.FD < PrivateXRCD {
		return nil, invalid(op, "descriptor %d", attr.FD)
	}
	xp, ok := c.p.(XRCProvider)
	if !ok {
		return nil, opError(op, fmt.Errorf("device %s: %w", c.dev.name, ucs.ErrUnsupported))
	}
	up := parents{&c.life}
	if err := up.adopt(op); err != nil {
		return nil, err
	}
	p, err := xp.OpenXRCD(attr)
	if err != nil {
		up.release()
		return nil, err
	}
	return &XRCD{ctx: c, p: p}, nil
}

// HasXRC reports whether the device has XRC.
func (c *Context) HasXRC() bool {
	_, ok := c.p.(XRCProvider)
	return ok
}

// Context returns the context of the domain.
func (x *XRCD) Context() *Context { return x.ctx }

// Provider returns the provider's half.
func (x *XRCD) Provider() XRCDProvider { return x.p }

// CreateQP makes an XRC target in RESET. attr.Type must be QPTypeXRCRecv and all other fields zero; otherwise
// the error is ErrInvalidParam. Messages over the target use receives of the SRQs of the domain, with the keys of
// their PDs.
func (x *XRCD) CreateQP(attr QPInitAttr) (*QP, error) {
	if attr != (QPInitAttr{Type: QPTypeXRCRecv}) {
		return nil, invalid("create QP", "an XRC domain makes %v only, without CQ, SRQ or queues", QPTypeXRCRecv)
	}
	return x.addTarget("create QP", func(qp *QP) (QPProvider, error) { return x.p.CreateQP(qp) })
}

// OpenQP returns a QP that refers to an existing target of the domain, which may belong to another context. The
// target exists until the last of its QPs is closed. Each of them can
// modify it. ErrInvalidParam if the domain has no such target.
func (x *XRCD) OpenQP(qpn uint32) (*QP, error) {
	return x.addTarget("open QP", func(qp *QP) (QPProvider, error) { return x.p.OpenQP(qp, qpn) })
}

func (x *XRCD) addTarget(op string, add func(*QP) (QPProvider, error)) (*QP, error) {
	qp := &QP{ctx: x.ctx, typ: QPTypeXRCRecv, up: parents{&x.life}}
	if err := qp.up.adopt(op); err != nil {
		return nil, err
	}
	p, err := add(qp)
	if err != nil {
		qp.up.release()
		return nil, err
	}
	qp.p = p
	qp.setState(p.State())
	return qp, nil
}

// Close closes the domain for this context. The domain exists until the last context has closed it. ErrBusy while
// SRQs or QPs of this XRCD are open. Idempotent.
func (x *XRCD) Close() error {
	return x.life.close("close XRC domain", func() error {
		if err := x.p.Close(); err != nil {
			return err
		}
		x.ctx.life.release()
		return nil
	})
}
