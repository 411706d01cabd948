package softhca

import (
	"runtime"
	"unsafe"

	"github.com/gucx/gucx/internal/offheap"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5/prm"
)

var _ prm.Accountant = (*hca)(nil)

// What the device keeps of an object. unsafe.Sizeof only, of constants at compile
// time.
const (
	pointerLen = int64(unsafe.Sizeof(uintptr(0)))
	// hcaLen has the tables by which QPs and regions are found without a lock: they
	// are on the Go heap in full length.
	hcaLen      = int64(unsafe.Sizeof(hca{}))
	pdLen       = int64(unsafe.Sizeof(uint32(0)))
	cqLen       = int64(unsafe.Sizeof(compQueue{}))
	srqLen      = int64(unsafe.Sizeof(recvQueue{}))
	qpLen       = int64(unsafe.Sizeof(queuePair{}))
	windowBytes = int64(unsafe.Sizeof(recvWindow{}))
	xrcdLen     = int64(unsafe.Sizeof(xrcDomain{}))
	regionLen   = int64(unsafe.Sizeof(region{})+unsafe.Sizeof(runtime.Pinner{})) + pinnedLen
	uarLen      = int64(unsafe.Sizeof(uarPage{}) + unsafe.Sizeof(offheap.Block{}))
	outLinkLen  = int64(unsafe.Sizeof(outLink{}))
)

// pinnedLen is what a runtime.Pinner points to: pinnerSize in runtime/pinner.go.
const pinnedLen = 64

// Footprint implements prm.Accountant.
func (h *hca) Footprint() (b verbs.ResourceBytes) {
	b.Contexts = hcaLen + pageLen // the control page
	h.addLinks(&b)
	b.Kept = h.quarantine.bytes.Load()
	h.mu.Lock()
	defer h.mu.Unlock()
	touched := h.tableTouched()
	b.Contexts += touched + int64(cap(h.qpIDs.variant)+cap(h.mrIDs.variant)+cap(h.srqIDs.variant))
	b.Reserved += claimsLen - touched
	if h.arena == nil {
		b.Reserved += tableLen
	} else {
		b.Reserved += sharedTableLen + int64(len(h.arenaSeg.Bytes())) - claimsLen - pageLen
	}
	b.PDs = int64(h.pds.live)*pdLen + int64(cap(h.pds.slot))*pointerLen
	b.CQs = int64(h.cqs.live)*cqLen + int64(cap(h.cqs.slot))*pointerLen
	b.SRQs = int64(h.srqs.live)*srqLen + int64(cap(h.srqs.slot))*pointerLen
	b.SRQs += int64(h.srqIDs.live()) * (srqLen + windowBytes)
	b.XRCDs = int64(h.xrcds.live)*xrcdLen + int64(cap(h.xrcds.slot))*pointerLen
	b.QPs = int64(h.qpIDs.live()-h.withSRQ) * (qpLen + srqLen)
	b.QPs += int64(h.withSRQ) * qpLen
	b.MRs = int64(h.mrIDs.live()) * regionLen
	b.UARs = h.uarPages * uarLen
	return b
}

// tableTouched is how much of the table that peers read has been written: indexes are
// handed out in order.
func (h *hca) tableTouched() int64 {
	pages := func(n uint32) int64 { return (int64(n)*entryLen + pageLen - 1) / pageLen * pageLen }
	n := int64(tableQPs) // the header
	if h.qpIDs.next > 0 {
		n += pages(h.qpIDs.next + 1)
	}
	if h.mrIDs.next > 0 {
		n += pages(h.mrIDs.next + 1)
	}
	if h.srqIDs.next > 0 {
		n += pages(h.srqIDs.next + 1)
	}
	return n
}

// addLinks adds the links that this device has dialed: their rings, and guards as
// reserved.
func (h *hca) addLinks(b *verbs.ResourceBytes) {
	h.linkMu.Lock()
	defer h.linkMu.Unlock()
	for _, l := range h.links {
		b.Contexts += outLinkLen
		if l.state.Load() == linkUp {
			b.Contexts += linkGuards
			b.Reserved += linkLen - linkGuards
		}
	}
}
