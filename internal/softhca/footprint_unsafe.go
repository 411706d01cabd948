package softhca

import (
	"runtime"
	"unsafe"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/offheap"
	"github.com/gucx/gucx/internal/softhca/internal/table"
	"github.com/gucx/gucx/uct/ib/verbs"
)

var _ prm.Accountant = (*hca)(nil)

// Memory of the device for each object. The only unsafe use is unsafe.Sizeof, in constants.
const (
	pointerLen = int64(unsafe.Sizeof(uintptr(0)))
	// hcaLen includes the tables that find QPs and regions without a lock: they are on the
	// Go heap in full length.
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

// pinnedLen is the length of the memory behind a runtime.Pinner: pinnerSize in runtime/pinner.go.
const pinnedLen = 64

// Footprint implements prm.Accountant.
func (h *hca) Footprint() (b verbs.ResourceBytes) {
	b.Contexts = hcaLen + pageLen // the control page
	h.addLinks(&b)
	h.addViews(&b)
	b.Kept = int64(h.owner.QuarantinedBytes.Load())
	h.mu.Lock()
	defer h.mu.Unlock()
	touched := h.tableTouched()
	b.Contexts += touched + int64(cap(h.qpIDs.variant)+cap(h.mrIDs.variant)+cap(h.srqIDs.variant))
	b.Reserved += table.ClaimsLen - touched
	if h.arena == nil {
		b.Reserved += table.Len
	} else {
		b.Reserved += table.SharedLen + int64(len(h.arenaSeg.Bytes())) - table.ClaimsLen - pageLen
	}
	b.PDs = int64(h.pds.live)*pdLen + int64(cap(h.pds.slot))*pointerLen
	b.CQs = int64(h.cqs.live)*cqLen + int64(cap(h.cqs.slot))*pointerLen
	b.SRQs = int64(h.srqs.live)*srqLen + int64(cap(h.srqs.slot))*pointerLen
	b.SRQs += int64(h.srqIDs.live()) * (srqLen + windowBytes)
	b.XRCDs = int64(h.xrcds.live)*xrcdLen + int64(cap(h.xrcds.slot))*pointerLen
	h.addDirectories(&b)
	b.QPs = int64(h.qpIDs.live()-h.withSRQ) * (qpLen + srqLen)
	b.QPs += int64(h.withSRQ) * qpLen
	b.MRs = int64(h.mrIDs.live()) * regionLen
	b.UARs = h.uarPages * uarLen
	return b
}

// tableTouched returns the number of bytes written of the table that peers read, and of the
// claims of XRC SRQs: indexes are allocated in order.
func (h *hca) tableTouched() int64 {
	n := int64(table.QPsAt) // the header
	n += touched(&h.qpIDs, table.EntryLen) + touched(&h.mrIDs, table.EntryLen)
	n += touched(&h.srqIDs, table.EntryLen) + touched(&h.srqIDs, table.ClaimLen)
	if h.arena != nil { // the table also has receives
		n += touched(&h.srqIDs, table.ShownRecvs*table.EntryLen)
	}
	return n
}

// touched returns the number of bytes, in pages, of the used entries of a table.
func touched(ids *idPool, entry int64) int64 {
	if ids.next == 0 {
		return 0
	}
	return (int64(ids.next+1)*entry + pageLen - 1) / pageLen * pageLen
}

// addDirectories adds the directories of the shared domains of the device. mu is held.
func (h *hca) addDirectories(b *verbs.ResourceBytes) {
	for _, d := range h.xrcds.slot {
		if d != nil && d.dir != nil {
			used, reserved := d.dir.Footprint()
			b.XRCDs += used
			b.Reserved += reserved
		}
	}
}

// addViews adds the directories that initiators have open.
func (h *hca) addViews(b *verbs.ResourceBytes) {
	h.views.mu.Lock()
	defer h.views.mu.Unlock()
	for _, v := range h.views.open {
		if v.state.Load() == viewOpen {
			used, reserved := v.dir.Footprint()
			b.Contexts += used
			b.Reserved += reserved
		}
	}
}

// addLinks adds the links that this device has dialed: their rings as used, their guards as
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
