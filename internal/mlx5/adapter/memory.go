package adapter

import (
	"errors"
	"runtime"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/offheap"
	"github.com/gucx/gucx/internal/uverbs"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// uarPage is a UAR page of the kernel.
type uarPage struct {
	handle uint32
	mem    []byte // nil after it was unmapped
}

// AllocUAR implements prm.Hardware.
func (h *hardware) AllocUAR(typ prm.UARType) (prm.UAR, error) {
	kernelType := uint64(uarTypeBlueFlame)
	if typ == prm.UARPlain {
		kernelType = uarTypePlain
	}
	var offset uint64
	var mapLen, index uint32
	attrs := []uverbs.Attr{uverbs.Object(uarHandle, 0), uverbs.Const(uarType, kernelType), uverbs.Out(uarMapOffset, &offset),
		uverbs.Out(uarMapLen, &mapLen), uverbs.Out(uarPageIndex, &index)}
	if err := h.ctx.Call(uverbs.MethodMLX5AllocUAR, attrs...); err != nil {
		return prm.UAR{}, err
	}
	page := &uarPage{handle: uint32(attrs[0].Value)}
	err := h.mapUAR(page, index, offset, mapLen)
	if err != nil {
		return prm.UAR{}, errors.Join(err, h.freeUAR(page))
	}
	uar := prm.UAR{Index: index, Page: pageAt(page.mem)}
	if h.software != nil {
		uar.Doorbell = h.software.Doorbell(page.mem)
	}
	return uar, nil
}

// mapUAR maps a UAR page at the offset that the kernel has returned.
func (h *hardware) mapUAR(page *uarPage, index uint32, offset uint64, mapLen uint32) (err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, taken := h.uars[index]; mapLen != prm.UARPageLen || offset%prm.UARPageLen != 0 || taken {
		return h.badReply(uverbs.MethodMLX5AllocUAR, "%d bytes at %#x, page %d, in use: %v", mapLen, offset, index, taken)
	}
	if page.mem, err = h.ctx.Map(offset, prm.UARPageLen); err != nil {
		return err
	}
	h.uars[index] = page
	return nil
}

// freeUAR unmaps a page and frees it in the kernel. After an error it can be called again.
func (h *hardware) freeUAR(page *uarPage) error {
	if page.mem != nil {
		if err := h.ctx.Unmap(page.mem); err != nil {
			return err
		}
		page.mem = nil
	}
	return h.ctx.Call(uverbs.MethodMLX5FreeUAR, uverbs.Object(uarHandle, page.handle))
}

// FreeUAR implements prm.Hardware.
func (h *hardware) FreeUAR(u prm.UAR) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	page, ok := h.uars[u.Index]
	if !ok {
		return h.invalid("no UAR page %d", u.Index)
	}
	if err := h.freeUAR(page); err != nil {
		return err
	}
	delete(h.uars, u.Index)
	return nil
}

// AllocPD implements prm.Hardware.
func (h *hardware) AllocPD() (uint32, error) {
	var in uverbs.AllocPD
	var out uverbs.HandleReply
	var driver allocPDReply
	err := h.ctx.Invoke(uverbs.CmdAllocPD, uverbs.BytesOf(&in), uverbs.BytesOf(&out), uverbs.Out(uverbs.AttrDriverOut, &driver))
	if err != nil {
		return 0, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, taken := h.pds[driver.PDN]; driver.PDN >= maxNumber || taken {
		return 0, errors.Join(h.badReply(uverbs.CmdAllocPD, "PD %#x, in use: %v", driver.PDN, taken),
			h.ctx.Call(uverbs.MethodDeallocPD, uverbs.Object(uverbs.AttrHandle, out.Handle)))
	}
	h.pds[driver.PDN] = out.Handle
	return driver.PDN, nil
}

// DeallocPD implements prm.Hardware.
func (h *hardware) DeallocPD(pdn uint32) error {
	h.mu.Lock()
	handle, ok := h.pds[pdn]
	delete(h.pds, pdn) // see destroy
	h.mu.Unlock()
	if !ok {
		return h.invalid("no PD %#x", pdn)
	}
	err := h.ctx.Call(uverbs.MethodDeallocPD, uverbs.Object(uverbs.AttrHandle, handle))
	if err != nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.pds[pdn] = handle
	}
	return err
}

// pd returns the kernel's handle of a PD.
func (h *hardware) pd(pdn uint32) (uint32, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	handle, ok := h.pds[pdn]
	if !ok {
		return 0, h.invalid("no PD %#x", pdn)
	}
	return handle, nil
}

// buffer implements verbs.Buffer: memory outside the Go heap, which a child process does not inherit.
type buffer struct{ *offheap.Block }

func (b buffer) Close() error { return b.Free() }

// AllocBuffer implements prm.Hardware.
func (h *hardware) AllocBuffer(n int) (verbs.Buffer, error) {
	b, err := offheap.Alloc(n)
	if err != nil {
		return nil, errors.Join(ucs.ErrNoMemory, err)
	}
	return buffer{b}, nil
}

// memoryRegion is an MR. The kernel pins its pages; pin keeps the Go object alive.
type memoryRegion struct {
	handle uint32
	pin    runtime.Pinner
}

// RegMR implements prm.Hardware. The kernel pins the pages and counts them against RLIMIT_MEMLOCK.
func (h *hardware) RegMR(pdn uint32, buf []byte, access verbs.Access) (lkey, rkey uint32, err error) {
	pd, err := h.pd(pdn)
	if err != nil {
		return 0, 0, err
	}
	m := &memoryRegion{}
	m.pin.Pin(&buf[0])
	addr := addressOf(buf)
	in := uverbs.RegMR{Start: addr, Len: uint64(len(buf)), HCAVA: addr, PD: pd, Access: uint32(access)}
	var out uverbs.RegMRReply
	if err = h.ctx.Invoke(uverbs.CmdRegMR, uverbs.BytesOf(&in), uverbs.BytesOf(&out)); err != nil {
		m.pin.Unpin()
		return 0, 0, err
	}
	m.handle = out.Handle
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, taken := h.mrs[out.LKey]; taken {
		err = errors.Join(h.badReply(uverbs.CmdRegMR, "local key %#x is in use", out.LKey), h.destroyMR(m))
		return 0, 0, err
	}
	h.mrs[out.LKey] = m
	return out.LKey, out.RKey, nil
}

// destroyMR destroys an MR. It blocks until the adapter no longer accesses the memory.
func (h *hardware) destroyMR(m *memoryRegion) error {
	if err := h.ctx.Call(uverbs.MethodDeregMR, uverbs.Object(uverbs.AttrHandle, m.handle)); err != nil {
		return err
	}
	m.pin.Unpin()
	return nil
}

// DeregMR implements prm.Hardware.
func (h *hardware) DeregMR(lkey uint32, free verbs.Buffer) error {
	h.mu.Lock()
	m, ok := h.mrs[lkey]
	delete(h.mrs, lkey) // see destroy
	h.mu.Unlock()
	if !ok {
		return h.invalid("no memory region with key %#x", lkey)
	}
	if err := h.destroyMR(m); err != nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.mrs[lkey] = m
		return err
	}
	if free != nil {
		return free.Close()
	}
	return nil
}
