package softhca

import "time"

// Bits of the attention word: the work of Drive.
const (
	attnRequest  = 1 << iota // a peer has put requests into a ring
	attnResponse             // a peer has sent responses, or has made room in a request ring
	attnRun                  // the run list has QPs
	attnTimer                // QPs wait for a time; set while they wait
	attnFeed                 // receives were posted, and peers wait for receives
	attnProbe                // set by the engine, cleared by the thread that drives

	attnWork = attnRequest | attnResponse | attnRun | attnFeed
)

var epoch = time.Now()

// nanotime is the monotonic clock in nanoseconds; never 0 once a device is open.
func nanotime() int64 { return int64(time.Since(epoch)) + 1 }

// Attention implements prm.Pollable.
func (h *hca) Attention() *uint32 { return wordOf(&h.ctl.attention) }

// Drive implements prm.Pollable.
func (h *hca) Drive() {
	if !h.driving.TryLock() {
		return
	}
	bits := h.ctl.attention.Swap(0) // before rings and lists are read; pairs with call
	again := h.drive(bits)
	h.driving.Unlock()
	switch {
	case again&attnWork != 0:
		h.call(again) // the engine may have gone to sleep since the bits were cleared
	case again != 0:
		h.ctl.attention.Or(again) // the engine reads the timers before it sleeps
	}
}

// drive does a bounded amount of work, and returns the bits of the remaining work. driving
// is held.
func (h *hca) drive(bits uint32) (again uint32) {
	if bits&attnRequest != 0 {
		for _, l := range *h.inbound.Load() {
			if l.drainRequests() {
				again |= attnRequest
			}
		}
	}
	if bits&attnResponse != 0 {
		for _, l := range *h.outbound.Load() {
			if l.drainResponses() {
				again |= attnResponse
			}
		}
	}
	if bits&attnFeed != 0 {
		h.feedPeers()
	}
	if bits&attnTimer != 0 && h.fireTimers() != 0 {
		again |= attnTimer
	}
	if h.runScheduled() {
		again |= attnRun
	}
	return again
}

// call raises attention on this device, and wakes its engine if no caller polls.
func (h *hca) call(bits uint32) { call(h.ctl, h.wakeFD, bits) }
