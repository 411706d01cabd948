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
	rx      consumer
	it      *Iface
	ctl     *control       // the peer's; nil until it has said which
	look    *atomic.Uint32 // what says whether to wake the peer when slots are free: its state, or alwaysLook
	wakeFD  int            // the peer's
	attnIdx int
	in      *attach.Inbound
	down    atomic.Bool // the peer has hung up or is dead
	bad     bool        // it wrote nonsense
	left    bool        // the iface has let go of it; with md.mu
}

// Present implements guard.Peer. md.mu is held, so that a link of md.links stays mapped.
func (l *inLink) Present() bool {
	_, open := l.it.md.links[l]
	return open && !l.down.Load()
}

// PID implements guard.Peer.
func (l *inLink) PID() int { return l.in.PeerPID }

// accept takes a new link over. It runs on a goroutine of the port, before the peer
// learns that it is connected.
func (it *Iface) accept(in *attach.Inbound) error {
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
	if it.md.touches() {
		// Pages that this side polls should be on its node. It is only speed.
		_ = memfd.Populate(seg[:slotsOff+it.cfg.FIFOSize*slotLen])
	}
	it.md.addLink(l)
	it.fresh = append(it.fresh, l)
	it.post()
	in.AfterDown(func() { it.md.peerGone(l) })
	return nil
}

func (md *MD) addLink(l *inLink) {
	md.mu.Lock()
	defer md.mu.Unlock()
	md.links[l] = struct{}{}
}

// peerGone runs on a goroutine of the link when the peer has hung up or is dead, and so
// is inside nothing. The iface delivers what it had sent, if it still has the link. A domain
// that is closed has forgotten its links, and has no arena.
func (md *MD) peerGone(l *inLink) {
	md.noteGone(l)
	md.owner.Reclaim()
}

// noteGone is peerGone but for the quarantine.
func (md *MD) noteGone(l *inLink) {
	md.mu.Lock()
	defer md.mu.Unlock()
	if _, open := md.links[l]; !open {
		return
	}
	l.down.Store(true)
	if l.left {
		md.dispose(l)
		return
	}
	l.it.post()
}

// leave lets go of a link. While the peer has not hung up it may be inside memory of the
// domain, whatever it was told: its guard stays mapped until then.
func (md *MD) leave(l *inLink) {
	md.mu.Lock()
	defer md.mu.Unlock()
	l.left = true
	md.controls[l.it.ctlIndex]++
	if l.down.Load() {
		md.dispose(l)
		return
	}
	l.in.HangUp()
}

// dispose closes a link that was left and whose peer is gone. md.mu is held.
func (md *MD) dispose(l *inLink) {
	delete(md.links, l)
	md.controls[l.it.ctlIndex]--
	_ = l.in.Close() // unmapping what is mapped does not fail
}

// closeLinks closes the links that outlived their ifaces.
func (md *MD) closeLinks() (errs error) {
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

// poll delivers up to pollBatch messages and returns how many. There is something
// to look at.
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
			l.spoil()
			break
		}
		l.rx.next()
		if n++; n == pollBatch {
			break
		}
		if !l.rx.waiting() { // as a part of the condition above it would become a value that is compared again
			break
		}
	}
	l.rx.taken()
	if l.look.Load()&stateGive != 0 {
		l.wakeSender()
	}
	return n
}

// deliver gives a message to its handler, or does what is asked; false if it is
// neither.
func (l *inLink) deliver(s *slot, word uint64) bool {
	if word>>shiftKind == kindOp {
		return l.serve(s)
	}
	return l.rx.deliver(s, word, &l.it.handlers)
}

// begin takes over what the dialer has said about its side, and reports whether there is a message.
func (l *inLink) begin() bool {
	control, valid := l.rx.begin()
	l.ctl = controlAt(l.in.Control.Bytes(), control)
	if !valid || l.ctl == nil {
		l.spoil()
		return false
	}
	l.look = &l.ctl.state
	if !l.it.md.expedited || l.look.Load()&stateFenced != 0 {
		l.look = &alwaysLook
	}
	return l.rx.waiting()
}

// spoil ends a link on which the peer wrote what nobody can read.
func (l *inLink) spoil() {
	l.bad = true
	l.rx.stop()
	l.it.malformed.Inc()
	l.it.post()
}

// adopt puts new links into the list that is polled. Their peers may have marked
// their words before, when that led to no link: each is looked at once.
func (it *Iface) adopt() {
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

// dropLost lets go of the links whose peers are gone, after everything that they had sent,
// and of those that cannot be read.
func (it *Iface) dropLost() (n int) {
	left := it.in[:0]
	for _, l := range it.in {
		if !l.down.Load() && !l.bad {
			left = append(left, l)
			continue
		}
		n += l.drain()
		it.forget(l)
	}
	if len(left) < len(it.in) {
		clear(it.in[len(left):])
		it.in = left
		it.chooseAttention()
	}
	return n
}

// drain delivers what the peer had sent before it went: a ring full at most, as the
// segment may still be mapped by somebody who goes on writing.
func (l *inLink) drain() (n int) {
	for l.rx.waiting() && (!l.rx.begun || n < l.rx.depth()) {
		n += l.poll()
	}
	return n
}

// forget lets go of a link and of its attention word.
func (it *Iface) forget(l *inLink) {
	it.md.leave(l)
	it.mu.Lock()
	it.attnUsed[l.attnIdx] = false
	it.mu.Unlock()
	it.ctl.attention[l.attnIdx].Store(0)
}
