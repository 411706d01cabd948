package adapter

import (
	"errors"
	"math/rand/v2"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/uverbs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// CreateAH implements prm.Hardware. On RoCE it calls the kernel, which resolves the address of the neighbor and may block.
// On InfiniBand it does not call the kernel, and the handle is 0.
func (h *hardware) CreateAH(pdn uint32, attr verbs.AHAttr) (handle uint32, raw [prm.AVLen]byte, err error) {
	if err = h.checkPort(attr.Port); err != nil {
		return 0, raw, err
	}
	ethernet, err := h.isEthernet(attr.Port)
	if err != nil {
		return 0, raw, err
	}
	av := prm.AV{SGIDIndex: attr.SGIDIndex, HopLimit: attr.HopLimit, TrafficClass: attr.TrafficClass, FlowLabel: attr.FlowLabel, DGID: attr.DGID}
	if !ethernet {
		av.RateSL, av.DLID, av.GRH = attr.SL&0xf, attr.DLID, attr.Global
		av.Put(&raw)
		return 0, raw, nil
	}
	entry, err := h.ctx.GID(attr.Port, int(attr.SGIDIndex))
	if err != nil {
		return 0, raw, err
	}
	if entry.Type == verbs.GIDRoCEv2 {
		av.DLID = sourcePort(attr.FlowLabel)
	}
	av.RateSL = attr.SL & 7 << 1
	if handle, av.MAC, err = h.createAH(pdn, &attr); err != nil {
		return 0, raw, err
	}
	av.Put(&raw)
	return handle, raw, nil
}

// UDP source ports of RoCE v2 (IBTA annex 17).
const (
	minSourcePort  = 0xc000
	sourcePortMask = 0x3fff
	labelHighBits  = 14 // first of the high bits of a 20-bit flow label, which sourcePort combines with the low bits
)

// sourcePort returns the UDP source port for a flow label, which switches use to select a path. For label 0 the port is
// random.
func sourcePort(label uint32) uint16 {
	if label == 0 {
		return minSourcePort | uint16(rand.Uint32())&sourcePortMask
	}
	return minSourcePort | uint16(label^label>>labelHighBits)&sourcePortMask
}

// isEthernet reports whether a port is a RoCE port. It queries the kernel once for each port.
func (h *hardware) isEthernet(port uint8) (bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if is, ok := h.ethernet[port]; ok {
		return is, nil
	}
	attr, _, err := h.ctx.QueryPort(port)
	if err == nil {
		h.ethernet[port] = attr.Ethernet
	}
	return attr.Ethernet, err
}

// minAHReplyLen is the length in bytes of createAHReply up to mac.
const minAHReplyLen = 10

// createAH creates an address handle in the kernel and returns the MAC address of the neighbor. The returned handle is
// the kernel's plus 1, so that 0 means no handle.
func (h *hardware) createAH(pdn uint32, attr *verbs.AHAttr) (handle uint32, mac [6]byte, err error) {
	if h.reply.commandsWithData&createAHWithReply == 0 {
		return 0, mac, lacks(&h.ctx.Info, "addresses of neighbors from the kernel")
	}
	pd, err := h.pd(pdn)
	if err != nil {
		return 0, mac, err
	}
	in := uverbs.CreateAH{UserHandle: h.newID(), PD: pd, Attr: uverbs.AHAttr{
		DGID: attr.DGID, FlowLabel: attr.FlowLabel, SGIDIndex: attr.SGIDIndex, HopLimit: attr.HopLimit,
		TrafficClass: attr.TrafficClass, DLID: attr.DLID, SL: attr.SL, IsGlobal: flag(attr.Global), Port: attr.Port,
	}}
	var out uverbs.HandleReply
	var driver createAHReply
	err = h.ctx.Invoke(uverbs.CmdCreateAH, uverbs.BytesOf(&in), uverbs.BytesOf(&out), uverbs.Out(uverbs.AttrDriverOut, &driver))
	if err != nil {
		return 0, mac, err
	}
	if driver.replyLen < minAHReplyLen {
		return 0, mac, errors.Join(h.badReply(uverbs.CmdCreateAH, "%d bytes, without the address of the neighbor", driver.replyLen),
			h.ctx.Call(uverbs.MethodDestroyAH, uverbs.Object(uverbs.AttrHandle, out.Handle)))
	}
	return out.Handle + 1, driver.mac, nil
}

// DestroyAH implements prm.Hardware.
func (h *hardware) DestroyAH(handle uint32) error {
	if handle == 0 {
		return nil
	}
	return h.ctx.Call(uverbs.MethodDestroyAH, uverbs.Object(uverbs.AttrHandle, handle-1))
}

func flag(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}
