package hwfault

import (
	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// Kinds of objects in Faults.Live. An XRC target counts as a QP, once for each
// reference.
const (
	kindDevice = "device"
	kindUAR    = "UAR page"
	kindPD     = "PD"
	kindBuffer = "buffer"
	kindMR     = "MR"
	kindCQ     = "CQ"
	kindSRQ    = "SRQ"
	kindQP     = "QP"
	kindXRCD   = "XRC domain"
	kindAH     = "AH"
)

// hardware is one open device.
type hardware struct {
	software
	f     *Faults
	close func() error // of the context that opened software
}

// QueryDevice implements prm.Hardware.
func (h *hardware) QueryDevice() (verbs.DeviceAttr, error) {
	if err := h.f.enter("QueryDevice"); err != nil {
		return verbs.DeviceAttr{}, err
	}
	return h.software.QueryDevice()
}

// QueryPort implements prm.Hardware.
func (h *hardware) QueryPort(port uint8) (verbs.PortAttr, error) {
	if err := h.f.enter("QueryPort"); err != nil {
		return verbs.PortAttr{}, err
	}
	return h.software.QueryPort(port)
}

// QueryGID implements prm.Hardware.
func (h *hardware) QueryGID(port uint8, index int) (verbs.GID, error) {
	if err := h.f.enter("QueryGID"); err != nil {
		return verbs.GID{}, err
	}
	return h.software.QueryGID(port, index)
}

// AllocUAR implements prm.Hardware.
func (h *hardware) AllocUAR(typ prm.UARType) (u prm.UAR, err error) {
	err = h.f.create("AllocUAR", kindUAR, func() (err error) { u, err = h.software.AllocUAR(typ); return err })
	return u, err
}

// FreeUAR implements prm.Hardware.
func (h *hardware) FreeUAR(u prm.UAR) error {
	return h.f.destroy("FreeUAR", kindUAR, func() error { return h.software.FreeUAR(u) })
}

// AllocPD implements prm.Hardware.
func (h *hardware) AllocPD() (pdn uint32, err error) {
	err = h.f.create("AllocPD", kindPD, func() (err error) { pdn, err = h.software.AllocPD(); return err })
	return pdn, err
}

// DeallocPD implements prm.Hardware.
func (h *hardware) DeallocPD(pdn uint32) error {
	return h.f.destroy("DeallocPD", kindPD, func() error { return h.software.DeallocPD(pdn) })
}

// buffer is one from AllocBuffer.
type buffer struct {
	verbs.Buffer
	f *Faults
}

// Close implements verbs.Buffer.
func (b *buffer) Close() error {
	return b.f.destroy("Buffer.Close", kindBuffer, b.Buffer.Close)
}

// AllocBuffer implements prm.Hardware.
func (h *hardware) AllocBuffer(n int) (verbs.Buffer, error) {
	b := &buffer{f: h.f}
	err := h.f.create("AllocBuffer", kindBuffer, func() (err error) { b.Buffer, err = h.software.AllocBuffer(n); return err })
	if err != nil {
		return nil, err
	}
	return b, nil
}

// RegMR implements prm.Hardware.
func (h *hardware) RegMR(pdn uint32, buf []byte, access verbs.Access) (lkey, rkey uint32, err error) {
	err = h.f.create("RegMR", kindMR, func() (err error) {
		lkey, rkey, err = h.software.RegMR(pdn, buf, access)
		return err
	})
	return lkey, rkey, err
}

// DeregMR implements prm.Hardware.
func (h *hardware) DeregMR(lkey uint32, free verbs.Buffer) error {
	b, ours := free.(*buffer)
	if ours {
		free = b.Buffer
	}
	err := h.f.destroy("DeregMR", kindMR, func() error { return h.software.DeregMR(lkey, free) })
	if ours {
		h.f.count(kindBuffer, -1, err)
	}
	return err
}

// CreateCQ implements prm.Hardware.
func (h *hardware) CreateCQ(p prm.CQParams) (cqn uint32, err error) {
	err = h.f.create("CreateCQ", kindCQ, func() (err error) { cqn, err = h.software.CreateCQ(p); return err })
	return cqn, err
}

// DestroyCQ implements prm.Hardware.
func (h *hardware) DestroyCQ(cqn uint32) error {
	return h.f.destroy("DestroyCQ", kindCQ, func() error { return h.software.DestroyCQ(cqn) })
}

// CreateSRQ implements prm.Hardware.
func (h *hardware) CreateSRQ(p prm.SRQParams) (srqn uint32, err error) {
	err = h.f.create("CreateSRQ", kindSRQ, func() (err error) { srqn, err = h.software.CreateSRQ(p); return err })
	return srqn, err
}

// CreateXRCSRQ implements prm.XRCHardware.
func (h *hardware) CreateXRCSRQ(p prm.SRQParams) (handle, srqn uint32, err error) {
	err = h.f.create("CreateXRCSRQ", kindSRQ, func() (err error) { handle, srqn, err = h.software.CreateXRCSRQ(p); return err })
	return handle, srqn, err
}

// ArmSRQ implements prm.Hardware.
func (h *hardware) ArmSRQ(srqn uint32, limit int) error {
	if err := h.f.enter("ArmSRQ"); err != nil {
		return err
	}
	return h.software.ArmSRQ(srqn, limit)
}

// DestroySRQ implements prm.Hardware.
func (h *hardware) DestroySRQ(srqn uint32) error {
	return h.f.destroy("DestroySRQ", kindSRQ, func() error { return h.software.DestroySRQ(srqn) })
}

// CreateQP implements prm.Hardware.
func (h *hardware) CreateQP(p prm.QPParams) (qpn uint32, err error) {
	err = h.f.create("CreateQP", kindQP, func() (err error) { qpn, err = h.software.CreateQP(p); return err })
	return qpn, err
}

// CreateTarget implements prm.XRCHardware.
func (h *hardware) CreateTarget(xrcdn uint32) (handle, qpn uint32, err error) {
	err = h.f.create("CreateTarget", kindQP, func() (err error) { handle, qpn, err = h.software.CreateTarget(xrcdn); return err })
	return handle, qpn, err
}

// OpenTarget implements prm.XRCHardware.
func (h *hardware) OpenTarget(xrcdn, qpn uint32) (handle uint32, err error) {
	err = h.f.create("OpenTarget", kindQP, func() (err error) { handle, err = h.software.OpenTarget(xrcdn, qpn); return err })
	return handle, err
}

// ModifyQP implements prm.Hardware.
func (h *hardware) ModifyQP(qpn uint32, attr *verbs.QPAttr, mask verbs.QPAttrMask) error {
	if err := h.f.enter("ModifyQP"); err != nil {
		return err
	}
	return h.software.ModifyQP(qpn, attr, mask)
}

// DestroyQP implements prm.Hardware.
func (h *hardware) DestroyQP(qpn uint32) error {
	return h.f.destroy("DestroyQP", kindQP, func() error { return h.software.DestroyQP(qpn) })
}

// CreateAH implements prm.Hardware.
func (h *hardware) CreateAH(pdn uint32, attr verbs.AHAttr) (handle uint32, av [prm.AVLen]byte, err error) {
	err = h.f.create("CreateAH", kindAH, func() (err error) { handle, av, err = h.software.CreateAH(pdn, attr); return err })
	return handle, av, err
}

// DestroyAH implements prm.Hardware.
func (h *hardware) DestroyAH(handle uint32) error {
	return h.f.destroy("DestroyAH", kindAH, func() error { return h.software.DestroyAH(handle) })
}

// OpenXRCD implements prm.XRCHardware.
func (h *hardware) OpenXRCD(attr verbs.XRCDInitAttr) (xrcdn uint32, err error) {
	err = h.f.create("OpenXRCD", kindXRCD, func() (err error) { xrcdn, err = h.software.OpenXRCD(attr); return err })
	return xrcdn, err
}

// CloseXRCD implements prm.XRCHardware.
func (h *hardware) CloseXRCD(xrcdn uint32) error {
	return h.f.destroy("CloseXRCD", kindXRCD, func() error { return h.software.CloseXRCD(xrcdn) })
}

// Close implements prm.Hardware.
func (h *hardware) Close() error {
	return h.f.destroy("Close", kindDevice, h.close)
}
