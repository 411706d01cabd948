package verbs

import "io"

// PD is a protection domain: MRs, QPs, SRQs and AHs work together only within one.
// Its methods may be called by any goroutine.
type PD struct {
	ctx  *Context
	p    io.Closer
	life lifetime
}

// AllocPD makes a protection domain. ErrNoMemory beyond DeviceAttr.MaxPD.
func (c *Context) AllocPD() (*PD, error) {
	up := parents{&c.life}
	if err := up.adopt("allocate PD"); err != nil {
		return nil, err
	}
	pd := &PD{ctx: c}
	p, err := c.p.AllocPD(pd)
	if err != nil {
		up.release()
		return nil, err
	}
	pd.p = p
	return pd, nil
}

// Context returns the context of the domain.
func (pd *PD) Context() *Context { return pd.ctx }

// Provider returns the provider's half.
func (pd *PD) Provider() io.Closer { return pd.p }

// Close frees the domain. ErrBusy while objects of it are open. Idempotent.
func (pd *PD) Close() error {
	return pd.life.close("close PD", func() error {
		if err := pd.p.Close(); err != nil {
			return err
		}
		pd.ctx.life.release()
		return nil
	})
}

// MR is a memory region. Its methods may be called by any goroutine.
type MR struct {
	pd     *PD
	p      MRProvider
	buf    []byte
	access Access
	life   lifetime
}

// needsLocalWrite are the rights with which a peer can change memory.
const needsLocalWrite = AccessRemoteWrite | AccessRemoteAtomic

// accessAll is every right there is.
const accessAll = AccessLocalWrite | AccessRemoteWrite | AccessRemoteRead | AccessRemoteAtomic

// RegMR registers buf with the given rights. buf must not be empty or on
// a goroutine's stack. The MR refers to it and pins it until Close.
// ErrInvalidParam for an empty buf, an unknown right, or RemoteWrite or
// RemoteAtomic without LocalWrite; ErrInvalidParam with unix.EFAULT if this process
// may not read buf, or not write to it with LocalWrite; ErrTooLong beyond
// DeviceAttr.MaxMRSize.
func (pd *PD) RegMR(buf []byte, access Access) (*MR, error) {
	const op = "register memory"
	if len(buf) == 0 {
		return nil, invalid(op, "empty buffer")
	}
	if access&^accessAll != 0 {
		return nil, invalid(op, "unknown rights %#x", access&^accessAll)
	}
	if access&needsLocalWrite != 0 && access&AccessLocalWrite == 0 {
		return nil, invalid(op, "remote write or atomic without local write")
	}
	if limit := pd.ctx.attr.MaxMRSize; uint64(len(buf)) > limit {
		return nil, tooLong(op, "bytes", len(buf), int(limit))
	}
	up := parents{&pd.life}
	if err := up.adopt(op); err != nil {
		return nil, err
	}
	p, err := pd.ctx.p.RegMR(pd, buf, access)
	if err != nil {
		up.release()
		return nil, err
	}
	return &MR{pd: pd, p: p, buf: buf, access: access}, nil
}

// LKey returns the key of the region for SGEs.
func (mr *MR) LKey() uint32 { return mr.p.LKey() }

// RKey returns the key of the region for peers.
func (mr *MR) RKey() uint32 { return mr.p.RKey() }

// Bytes is the registered memory.
func (mr *MR) Bytes() []byte { return mr.buf }

// Access returns the rights granted.
func (mr *MR) Access() Access { return mr.access }

// PD is the protection domain of the region.
func (mr *MR) PD() *PD { return mr.pd }

// Close deregisters the region. No new access begins, and when Close has returned nil, no access is
// in progress. Close waits for accesses of peers in progress. If they are not complete
// within ucs.RevokeLimit, it returns an *ucs.InUseError: the memory is still registered, but
// new accesses are rejected, and Close can be called again. Idempotent.
func (mr *MR) Close() error { return mr.close(nil) }

// CloseAndFree is Close for a region of buf, which AllocBuffer has returned, and also closes buf. It
// does not wait for peers: the device frees buf when all accesses in progress are complete or their peers are
// dead. Until then ResourceBytes.Kept includes it.
func (mr *MR) CloseAndFree(buf Buffer) error { return mr.close(buf) }

func (mr *MR) close(free Buffer) error {
	return mr.life.close("deregister memory", func() error {
		if err := mr.p.Close(free); err != nil {
			return err
		}
		mr.pd.life.release()
		return nil
	})
}
