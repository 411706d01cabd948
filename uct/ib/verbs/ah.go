package verbs

import (
	"fmt"
	"io"

	"github.com/gucx/gucx/ucs"
)

// AH is the address of a remote port, for UD.
type AH struct {
	pd   *PD
	p    io.Closer
	life lifetime
}

// CreateAH makes an address handle. ErrInvalidParam for a port or GID index that
// the device does not have, or an address without a GID on Ethernet.
func (pd *PD) CreateAH(attr AHAttr) (*AH, error) {
	const op = "create AH"
	if err := pd.ctx.checkAddress(op, &attr); err != nil {
		return nil, err
	}
	up := parents{&pd.life}
	if err := up.adopt(op); err != nil {
		return nil, err
	}
	p, err := pd.ctx.p.CreateAH(pd, attr)
	if err != nil {
		up.release()
		return nil, err
	}
	return &AH{pd: pd, p: p}, nil
}

// checkAddress checks an address against the local port. The error of QueryPort is
// ErrInvalidParam for a port that the device does not have.
func (c *Context) checkAddress(op string, a *AHAttr) error {
	port, err := c.linkOf(a.Port)
	if err != nil {
		return opError(op, fmt.Errorf("port %d: %w", a.Port, err))
	}
	switch {
	case port.ethernet && !a.Global:
		return invalid(op, "an address on Ethernet needs a GID")
	case a.Global && int(a.SGIDIndex) >= port.gids:
		return invalid(op, "GID index %d of %d", a.SGIDIndex, port.gids)
	case a.FlowLabel >= 1<<20:
		return invalid(op, "flow label %#x", a.FlowLabel)
	case a.SL > 15:
		return invalid(op, "service level %d", a.SL)
	}
	return nil
}

// PD is the protection domain of the handle.
func (ah *AH) PD() *PD { return ah.pd }

// Provider returns the provider's half.
func (ah *AH) Provider() io.Closer { return ah.p }

// Close frees the handle; work requests in flight no longer need it. Idempotent.
func (ah *AH) Close() error {
	return ah.life.close("close AH", func() error {
		if err := ah.p.Close(); err != nil {
			return err
		}
		ah.pd.life.release()
		return nil
	})
}

// TD is a thread domain: see TDInitAttr.
type TD struct {
	ctx  *Context
	p    io.Closer
	life lifetime
}

// HasTD reports whether the device has thread domains.
func (c *Context) HasTD() bool {
	_, ok := c.p.(TDAllocator)
	return ok
}

// AllocTD makes a thread domain. ErrNoMemory when the context or the device has
// no more UAR pages, ErrInvalidParam for a sharing level other than 0, 1 and 2,
// ErrUnsupported where HasTD is false.
func (c *Context) AllocTD(attr TDInitAttr) (*TD, error) {
	td, ok := c.p.(TDAllocator)
	if !ok {
		return nil, opError("allocate TD", fmt.Errorf("device %s has no thread domains: %w", c.dev.name, ucs.ErrUnsupported))
	}
	up := parents{&c.life}
	if err := up.adopt("allocate TD"); err != nil {
		return nil, err
	}
	p, err := td.AllocTD(attr)
	if err != nil {
		up.release()
		return nil, err
	}
	return &TD{ctx: c, p: p}, nil
}

// Provider returns the provider's half.
func (td *TD) Provider() io.Closer { return td.p }

// Close frees the domain. ErrBusy while QPs or SRQs are in it. Idempotent.
func (td *TD) Close() error {
	return td.life.close("close TD", func() error {
		if err := td.p.Close(); err != nil {
			return err
		}
		td.ctx.life.release()
		return nil
	})
}
