package provider

import (
	"unsafe"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// Memory of an object without its queues: the structs of package verbs and of this
// package. The code uses only unsafe.Sizeof, which is a constant.
const (
	contextLen = int64(unsafe.Sizeof(verbs.Context{}) + unsafe.Sizeof(provider{}))
	pdLen      = int64(unsafe.Sizeof(verbs.PD{}) + unsafe.Sizeof(protectionDomain{}))
	mrLen      = int64(unsafe.Sizeof(verbs.MR{}) + unsafe.Sizeof(memoryRegion{}))
	ahLen      = int64(unsafe.Sizeof(verbs.AH{}) + unsafe.Sizeof(addressHandle{}))
	tdLen      = int64(unsafe.Sizeof(verbs.TD{}) + unsafe.Sizeof(threadDomain{}))
	xrcdLen    = int64(unsafe.Sizeof(verbs.XRCD{}) + unsafe.Sizeof(xrcDomain{}))
	targetLen  = int64(unsafe.Sizeof(verbs.QP{}) + unsafe.Sizeof(targetQP{}))
	uarLen     = int64(prm.UARPageLen + unsafe.Sizeof(uarPage{}))
)

// footprint is the memory of the CQ.
func (c *compQueue) footprint() int64 {
	return int64(c.mem.len()) + int64(unsafe.Sizeof(verbs.CQ{})+unsafe.Sizeof(*c))
}

// footprint is the memory of the SRQ.
func (s *sharedRecv) footprint() int64 {
	return int64(s.mem.len()) + int64(unsafe.Sizeof(verbs.SRQ{})+unsafe.Sizeof(*s)) + s.list.Footprint()
}

// footprint is the memory of the QP.
func (q *queuePair) footprint() int64 {
	slots := uintptr(len(q.sq.slotMem)) * unsafe.Sizeof(sendSlot{})
	return int64(q.mem.len()) + int64(unsafe.Sizeof(verbs.QP{})+unsafe.Sizeof(*q)+slots) + q.rq.Footprint()
}
