package sm

import (
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
	ctl     *control // the peer's; nil until it has said which
	wakeFD  int      // the peer's
	attnIdx int
	in      *attach.Inbound
	down    atomic.Bool // the peer has closed or died
	bad     bool        // it wrote nonsense
}

// guard is odd while the peer is inside memory of this domain.
func (l *inLink) guard() uint32 { return l.rx.hdr.guard.Load() }

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
	in.AfterDown(func() {
		l.down.Store(true)
		it.post()
	})
	return nil
}

func (md *MD) addLink(l *inLink) {
	md.mu.Lock()
	defer md.mu.Unlock()
	md.links[l] = struct{}{}
}

func (md *MD) dropLink(l *inLink) {
	md.mu.Lock()
	defer md.mu.Unlock()
	delete(md.links, l)
}

// poll delivers up to pollBatch messages and returns how many. There is something
// to look at.
func (l *inLink) poll() (n int) {
	if !l.rx.begun && !l.begin() {
		return 0
	}
	for ; n < pollBatch; n++ {
		word := l.rx.word.Load()
		if uint32(word) != l.rx.want {
			break
		}
		s := l.rx.slot()
		if word>>shiftKind&0xff == kindInline && word>>shiftLen <= inlineLen {
			size := word >> shiftLen
			l.it.handlers.Handle(uint8(word>>shiftID), s.data[:size:size], nil)
		} else if !l.deliver(s, word) {
			l.spoil()
			break
		}
		l.rx.next()
	}
	if n > 0 {
		l.rx.taken()
		if l.ctl.state.Load()&stateSend != 0 {
			wakePeer(l.ctl, stateSend, l.wakeFD)
		}
	}
	return n
}

// deliver gives a message to its handler, or does what is asked; false if it is
// neither.
func (l *inLink) deliver(s *slot, word uint64) bool {
	if uint8(word>>shiftKind) == kindAsk {
		return l.serve(s)
	}
	return l.rx.deliver(s, word, &l.it.handlers)
}

// begin takes over what the dialer has said about its side.
func (l *inLink) begin() bool {
	control, valid := l.rx.begin()
	l.ctl = controlAt(l.in.Control.Bytes(), control)
	if !valid || l.ctl == nil {
		l.spoil()
		return false
	}
	return true
}

// spoil ends a link on which the peer wrote what nobody can read.
func (l *inLink) spoil() {
	l.bad = true
	l.rx.stop()
	l.it.malformed.Inc()
	l.it.post()
}

// adopt puts new links into the list that is polled.
func (it *Iface) adopt() {
	it.mu.Lock()
	fresh := it.fresh
	it.fresh = nil
	it.mu.Unlock()
	it.in = append(it.in, fresh...)
	it.chooseAttention()
}

// bury closes the links whose peers are gone, after everything that they had sent.
func (it *Iface) bury() (n int) {
	buried := false
	for _, l := range it.in {
		if !l.down.Load() && !l.bad {
			continue
		}
		n += l.drain()
		it.forget(l)
		buried = true
	}
	if buried {
		it.in = slices.DeleteFunc(it.in, func(l *inLink) bool { return l.in == nil })
		it.chooseAttention()
	}
	return n
}

// drain delivers what the peer had sent before it went: a ring full at most, as the
// segment may still be mapped by somebody who goes on writing.
func (l *inLink) drain() (n int) {
	for l.rx.waiting() && (!l.rx.begun || uint64(n) <= l.rx.mask) {
		n += l.poll()
	}
	return n
}

// forget closes a link and makes its in nil.
func (it *Iface) forget(l *inLink) {
	it.md.dropLink(l)
	_ = l.in.Close() // unmapping what is mapped does not fail
	l.in = nil
	it.mu.Lock()
	it.attnUsed[l.attnIdx] = false
	it.mu.Unlock()
	it.ctl.attention[l.attnIdx].Store(0)
}
