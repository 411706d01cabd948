package sm

import (
	"errors"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/gucx/gucx/internal/attach"
	"github.com/gucx/gucx/internal/memfd"
	"github.com/gucx/gucx/uct"
)

// inLink is a peer that sends to this iface.
type inLink struct {
	rx          consumer
	it          *iface
	ctl         *control       // control block of the peer; nil until begin
	senderState *atomic.Uint32 // state of the peer, checked when slots are free; or alwaysWake
	wakeFD      int            // wakes the peer
	attnIdx     int
	in          *attach.Inbound
	down        atomic.Bool // the peer has disconnected or is dead
	malformed   bool        // the peer wrote invalid data
	released    bool        // the iface has released the link; under md.mu
}

// Present implements guard.Peer. md.mu is locked, so that links in md.links are not unmapped.
func (l *inLink) Present() bool {
	_, open := l.it.md.links[l]
	return open && !l.down.Load()
}

// PID implements guard.Peer.
func (l *inLink) PID() int { return l.in.PeerPID }

// accept adds a new link. It runs on a goroutine of the port, before the peer
// is connected.
func (it *iface) accept(in *attach.Inbound) error {
	seg := in.Seg.Bytes()
	l := &inLink{it: it, in: in, wakeFD: in.WakeFD, rx: newConsumer(seg)}
	it.mu.Lock()
	defer it.mu.Unlock()
	idx := slices.Index(it.attnUsed, false)
	if idx < 0 || it.closing {
		return uct.ErrNoMemory
	}
	it.attnUsed[idx] = true
	l.attnIdx = idx
	l.rx.hdr.acceptorControl, l.rx.hdr.attention = it.ctlIndex, uint32(idx)
	if it.md.populates() {
		// Pages that this side polls should be on its NUMA node. An error only costs speed.
		_ = memfd.Populate(seg[:slotsOff+it.cfg.FIFOSize*slotLen])
	}
	it.md.addLink(l)
	it.fresh = append(it.fresh, l)
	it.post()
	in.AfterDown(func() { it.md.peerGone(l) })
	return nil
}

func (md *domain) addLink(l *inLink) {
	md.mu.Lock()
	defer md.mu.Unlock()
	md.links[l] = struct{}{}
}

// peerGone runs on a goroutine of the link when the peer has disconnected or is dead, so that it accesses
// no memory. The iface delivers the messages of the peer, if it still has the link. A closed domain
// has no links and no arena.
func (md *domain) peerGone(l *inLink) {
	md.markGone(l)
	md.owner.Reclaim()
}

// markGone is peerGone without the quarantine.
func (md *domain) markGone(l *inLink) {
	md.mu.Lock()
	defer md.mu.Unlock()
	if _, open := md.links[l]; !open {
		return
	}
	l.down.Store(true)
	if l.released {
		md.dispose(l)
		return
	}
	l.it.post()
}

// releaseLink releases a link of an iface. Until the peer has disconnected it may access memory of the
// domain, so its guard remains mapped.
func (md *domain) releaseLink(l *inLink) {
	md.mu.Lock()
	defer md.mu.Unlock()
	l.released = true
	md.controls[l.it.ctlIndex]++
	if l.down.Load() {
		md.dispose(l)
		return
	}
	l.in.HangUp()
}

// dispose closes a link that was released and whose peer is gone. md.mu is locked.
func (md *domain) dispose(l *inLink) {
	delete(md.links, l)
	md.controls[l.it.ctlIndex]--
	_ = l.in.Close() // cannot fail
}

// closeLinks closes the links that outlived their ifaces.
func (md *domain) closeLinks() (errs error) {
	md.mu.Lock()
	left := slices.Collect(maps.Keys(md.links))
	clear(md.links)
	md.closed = true
	md.mu.Unlock()
	for _, l := range left {
		errs = errors.Join(errs, l.in.Close())
		<-l.in.Done()
	}
	return errs
}

// poll delivers up to pollBatch messages and returns their number. waiting must have returned true.
func (l *inLink) poll() (n int) {
	if !l.rx.begun && !l.begin() {
		return 0
	}
	for {
		s := l.rx.slot()
		word := s.word.Load()
		l.rx.seen(s, word)
		if size := word >> shiftLen; size <= inlineLen {
			if size > firstLen {
				s.claimRest()
			}
			l.it.handlers.At(uint8(word>>shiftID)).HandleAM(s.data[:size:size], nil)
		} else if !l.deliver(s, word) {
			l.failLink()
			break
		}
		l.rx.next()
		if n++; n == pollBatch {
			break
		}
		if !l.rx.waiting() { // a separate statement: as a part of the condition above it would be compared twice
			break
		}
	}
	l.rx.returnSlots()
	if l.senderState.Load()&stateReturn != 0 {
		l.wakeSender()
	}
	return n
}

// deliver passes a message to its handler, or executes a request; false if the slot is
// malformed.
func (l *inLink) deliver(s *slot, word uint64) bool {
	if word>>shiftKind == kindOp {
		return l.serve(s)
	}
	return l.rx.deliver(s, word, &l.it.handlers)
}

// begin reads the dimensions of the ring from the dialer, and reports whether a message has arrived.
func (l *inLink) begin() bool {
	control, valid := l.rx.begin()
	l.ctl = controlAt(l.in.Control.Bytes(), control)
	if !valid || l.ctl == nil {
		l.failLink()
		return false
	}
	l.senderState = &l.ctl.state
	if !l.it.md.expedited || l.senderState.Load()&stateFenced != 0 {
		l.senderState = &alwaysWake
	}
	return l.rx.waiting()
}

// failLink ends a link to which the peer wrote invalid data.
func (l *inLink) failLink() {
	l.malformed = true
	l.rx.stop()
	l.it.malformed.Inc()
	l.it.post()
}

// addNewLinks adds new links to the list that is polled. Their peers may have set
// their attention words before, without effect, so each is polled once.
func (it *iface) addNewLinks() {
	it.mu.Lock()
	fresh := it.fresh
	it.fresh = nil
	it.mu.Unlock()
	it.in = append(it.in, fresh...)
	it.chooseAttention()
	for _, l := range fresh {
		it.ctl.attention[l.attnIdx].Store(1)
	}
}

// dropLost drops the links whose peers are gone, after it has delivered all their messages,
// and malformed links.
func (it *iface) dropLost() (n int) {
	left := it.in[:0]
	for _, l := range it.in {
		if !l.down.Load() && !l.malformed {
			left = append(left, l)
			continue
		}
		n += l.drain()
		it.dropLink(l)
	}
	if len(left) < len(it.in) {
		clear(it.in[len(left):])
		it.in = left
		it.chooseAttention()
	}
	return n
}

// drain delivers the messages that the peer had sent: at most as many as the ring has slots, because another
// process may still map the segment and write to it.
func (l *inLink) drain() (n int) {
	for l.rx.waiting() && (!l.rx.begun || n < l.rx.depth()) {
		n += l.poll()
	}
	return n
}

// dropLink releases a link and its attention word.
func (it *iface) dropLink(l *inLink) {
	it.traffic.Closed(0, l.rx.head)
	it.md.releaseLink(l)
	it.mu.Lock()
	it.attnUsed[l.attnIdx] = false
	it.mu.Unlock()
	it.ctl.attention[l.attnIdx].Store(0)
}
