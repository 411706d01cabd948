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
	// FD names the domain by the inode of an open file: contexts that open the same file
	// share it. The file is not read or written, and may be closed after. PrivateXRCD:
	// a domain of this context alone.
	FD int
	// Flags are those of open(2) that say whether the domain may exist: O_CREAT makes
	// one if there is none, with O_EXCL there must be none. Without effect on a private
	// one.
	Flags int
}

// PrivateXRCD as XRCDInitAttr.FD is a domain without a name.
const PrivateXRCD = -1

// OpenXRCD opens a domain. It may block for seconds if the domain has a name and other
// processes in it are stopped, and ends with ErrTimedOut then; so may CreateQP, OpenQP, and
// making an SRQ in it. Other errors:
//
//   - ErrUnsupported: there is no XRC, or no domain can be shared as FD asks.
//   - ErrInvalidParam: the descriptor is of no file or directory.
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

// CreateQP makes an XRC target in RESET: attr.Type is QPTypeXRCRecv, and nothing else is
// set. What comes over it goes to the SRQs of the domain, with the keys of their PDs.
// ErrInvalidParam for anything else in attr.
func (x *XRCD) CreateQP(attr QPInitAttr) (*QP, error) {
	if attr != (QPInitAttr{Type: QPTypeXRCRecv}) {
		return nil, invalid("create QP", "an XRC domain makes %v only, without CQ, SRQ or queues", QPTypeXRCRecv)
	}
	return x.addTarget("create QP", func(qp *QP) (QPProvider, error) { return x.p.CreateQP(qp) })
}

// OpenQP returns a QP that stands for a target of the domain, which somebody else in the
// domain has made: the target lives until the last of its QPs is closed. Each of them can
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

// Close leaves the domain, which ends with the last context that leaves it. ErrBusy while
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
