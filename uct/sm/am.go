package sm

import (
	"encoding/binary"

	"github.com/gucx/gucx/internal/mmio"
	"github.com/gucx/gucx/internal/shortcopy"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/internal/memop"
)

// AMShort implements uct.AMSender. It writes messages that fit into a slot, and the most frequent ones, with a payload of one or two
// 64-bit words, without a call: then no registers need to be saved.
func (e *endpoint) AMShort(id uint8, hdr uint64, payload []byte) error {
	l := e.outLink
	hold := l.hold.Load() // outside of the condition: otherwise the compiler stores the result of the call and compares it again
	if id > uct.MaxAMID || hold != 0 || e.fenced || e.pending.Blocks() || l.tx.tail == l.tx.limit {
		return e.amShortSlow(id, hdr, 0, 1, payload)
	}
	s := l.tx.slotAt(l.tx.tail)
	binary.LittleEndian.PutUint64(s.data[:], hdr)
	if n := len(payload); n == wordLen {
		*(*[wordLen]byte)(s.data[wordLen:]) = [wordLen]byte(payload)
	} else if n > wordLen && n <= 2*wordLen {
		shortcopy.Words(s.data[wordLen:], payload)
	} else if n != 0 {
		if n > inlineLen-wordLen {
			return e.amShortSegment(id, hdr, 0, 1, payload)
		}
		copy(s.data[wordLen:], payload)
	}
	l.tx.publish(s, id, kindInline, uint64(wordLen+len(payload)))
	if l.ctl.state.Load()&stateNotify != 0 {
		l.notify()
	}
	l.tx.fetch()
	return nil
}

// AMWords implements uct.AMWordSender, as AMShort.
func (e *endpoint) AMWords(id uint8, first, second uint64, payload []byte) error {
	l := e.outLink
	hold := l.hold.Load() // outside of the condition: otherwise the compiler stores the result of the call and compares it again
	if id > uct.MaxAMID || hold != 0 || e.fenced || e.pending.Blocks() || l.tx.tail == l.tx.limit {
		return e.amShortSlow(id, first, second, 2, payload)
	}
	s := l.tx.slotAt(l.tx.tail)
	binary.LittleEndian.PutUint64(s.data[:], first)
	binary.LittleEndian.PutUint64(s.data[wordLen:], second)
	if n := len(payload); n == wordLen {
		*(*[wordLen]byte)(s.data[2*wordLen:]) = [wordLen]byte(payload)
	} else if n > wordLen && n <= 2*wordLen {
		shortcopy.Words(s.data[2*wordLen:], payload)
	} else if n != 0 {
		if n > inlineLen-2*wordLen {
			return e.amShortSegment(id, first, second, 2, payload)
		}
		copy(s.data[2*wordLen:], payload)
	}
	l.tx.publish(s, id, kindInline, uint64(2*wordLen+len(payload)))
	if l.ctl.state.Load()&stateNotify != 0 {
		l.notify()
	}
	l.tx.fetch()
	return nil
}

// amShortSlow sends any short message, with a header of one or two words and a payload.
//
//go:noinline
func (e *endpoint) amShortSlow(id uint8, first, second uint64, words int, payload []byte) error {
	if words*wordLen+len(payload) > e.iface.attr.AM.MaxShort { // also if the EP is not ready
		return uct.ErrTooLong
	}
	if id > uct.MaxAMID {
		return uct.ErrInvalidParam
	}
	if !e.ready() {
		return e.postError()
	}
	l := e.outLink
	s := l.tx.next()
	if s == nil {
		return l.full()
	}
	if len(payload) > inlineLen-words*wordLen {
		return e.amShortSegment(id, first, second, words, payload)
	}
	binary.LittleEndian.PutUint64(s.data[:], first)
	binary.LittleEndian.PutUint64(s.data[wordLen:], second) // with a header of one word, the payload overwrites it
	n := words*wordLen + copy(s.data[words*wordLen:], payload)
	l.tx.publish(s, id, kindInline, uint64(n))
	l.notifyIfAsleep()
	l.tx.fetch()
	return nil
}

// amShortSegment sends a short message that is too large for a slot. The EP must be ready, and a slot free.
//
//go:noinline
func (e *endpoint) amShortSegment(id uint8, first, second uint64, words int, payload []byte) error {
	n := words*wordLen + len(payload)
	if n > e.iface.attr.AM.MaxShort {
		return uct.ErrTooLong
	}
	l := e.outLink
	buf := l.tx.seg()
	if buf == nil {
		return uct.ErrNoResource
	}
	memop.PackShort(buf, first, second, words, payload)
	l.tx.inSegment(l.tx.slotAt(l.tx.tail), id, n)
	l.notifyIfAsleep()
	l.tx.fetchNext(n)
	return nil
}

// AMBcopy implements uct.AMSender.
func (e *endpoint) AMBcopy(id uint8, p uct.Packer) (int, error) {
	s, buf, err := e.longSlot(id)
	if err != nil {
		return 0, err
	}
	n := p.Pack(buf[:e.iface.attr.AM.MaxBcopy])
	e.tx.long(s, id, buf, n)
	e.notifyIfAsleep()
	if n > inlineLen {
		e.tx.fetchNext(n)
	}
	return n, nil
}

// AMZcopy implements uct.AMSender. It copies the bytes, so the caller may reuse the buffer on
// return. A copy by the kernel would cost more for all lengths of messages.
func (e *endpoint) AMZcopy(id uint8, hdr []byte, iov []uct.IOV, _ *uct.Completion) (bool, error) {
	am := &e.iface.attr.AM
	if len(hdr) > am.MaxHeader || len(iov) > am.MaxIOV || len(hdr)+uct.IOVLen(iov) > am.MaxZcopy {
		return false, uct.ErrTooLong
	}
	if !memop.Covers(iov) {
		return false, uct.ErrInvalidParam
	}
	s, buf, err := e.longSlot(id)
	if err != nil {
		return false, err
	}
	n := copy(buf, hdr)
	n += memop.Gather(buf[n:], iov)
	e.tx.long(s, id, buf, n)
	e.notifyIfAsleep()
	if n > inlineLen {
		e.tx.fetchNext(n)
	}
	return false, nil
}

// longSlot returns a slot and a segment for a message of any length.
func (e *endpoint) longSlot(id uint8) (*slot, []byte, error) {
	if id > uct.MaxAMID {
		return nil, nil, uct.ErrInvalidParam
	}
	if !e.ready() {
		return nil, nil, e.postError()
	}
	s := e.tx.next()
	if s == nil {
		return nil, nil, e.full()
	}
	buf := e.tx.seg()
	if buf == nil {
		return nil, nil, uct.ErrNoResource
	}
	return s, buf, nil
}

// full returns the reason why the ring accepts no message.
//
//go:noinline
func (l *outLink) full() error {
	if l.tx.broken {
		l.markLost()
	}
	return uct.ErrNoResource
}

// notifyIfAsleep notifies the peer of a message if the peer has requested that. The load of the state
// follows the publication of the message: see membarrier.go.
func (l *outLink) notifyIfAsleep() {
	if l.ctl.state.Load()&stateNotify != 0 {
		l.notify()
	}
}

// notify sets the attention word and wakes the peer.
//
//go:noinline
func (l *outLink) notify() {
	s := l.ctl.state.Load()
	if s&stateOften != 0 {
		s = l.recheckState()
	}
	if s&stateAttention != 0 {
		mmio.ToDevice()
		l.attn.Store(1)
	}
	wakePeer(l.ctl, stateRecv, l.wakeFD)
}
