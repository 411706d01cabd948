package sm

import (
	"encoding/binary"

	"github.com/gucx/gucx/internal/mmio"
	"github.com/gucx/gucx/internal/shortcopy"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/internal/memop"
)

// AMShort implements uct.AMSender. What most messages are, a word and a payload of up to two
// words, is written here, where nothing has to be kept across a call.
func (e *EP) AMShort(id uint8, hdr uint64, payload []byte) error {
	l := e.outLink
	hold := l.hold.Load() // a call among the conditions would become a value that is compared again
	if id > uct.MaxAMID || hold != 0 || e.fenced || e.pending.Blocks() || l.tx.tail == l.tx.limit {
		return e.anyShort(id, hdr, 0, 1, payload)
	}
	s := l.tx.slotAt(l.tx.tail)
	binary.LittleEndian.PutUint64(s.data[:], hdr)
	if n := len(payload); n == wordLen {
		*(*[wordLen]byte)(s.data[wordLen:]) = [wordLen]byte(payload)
	} else if n > wordLen && n <= 2*wordLen {
		shortcopy.Words(s.data[wordLen:], payload)
	} else if n != 0 {
		return e.anyShort(id, hdr, 0, 1, payload)
	}
	l.tx.publish(s, id, kindInline, uint64(wordLen+len(payload)))
	if l.ctl.state.Load()&stateTell != 0 {
		l.notify()
	}
	l.tx.fetch()
	return nil
}

// AMWords implements uct.AMWordSender, as AMShort.
func (e *EP) AMWords(id uint8, first, second uint64, payload []byte) error {
	l := e.outLink
	hold := l.hold.Load() // a call among the conditions would become a value that is compared again
	if id > uct.MaxAMID || hold != 0 || e.fenced || e.pending.Blocks() || l.tx.tail == l.tx.limit {
		return e.anyShort(id, first, second, 2, payload)
	}
	s := l.tx.slotAt(l.tx.tail)
	binary.LittleEndian.PutUint64(s.data[:], first)
	binary.LittleEndian.PutUint64(s.data[wordLen:], second)
	if n := len(payload); n == wordLen {
		*(*[wordLen]byte)(s.data[2*wordLen:]) = [wordLen]byte(payload)
	} else if n > wordLen && n <= 2*wordLen {
		shortcopy.Words(s.data[2*wordLen:], payload)
	} else if n != 0 {
		return e.anyShort(id, first, second, 2, payload)
	}
	l.tx.publish(s, id, kindInline, uint64(2*wordLen+len(payload)))
	if l.ctl.state.Load()&stateTell != 0 {
		l.notify()
	}
	l.tx.fetch()
	return nil
}

// anyShort sends any short message, of one word or two and a payload.
//
//go:noinline
func (e *EP) anyShort(id uint8, first, second uint64, words int, payload []byte) error {
	if len(payload) > inlineLen-words*wordLen {
		return e.longShort(id, first, second, words, payload)
	}
	if id > uct.MaxAMID {
		return uct.ErrInvalidParam
	}
	if !e.ready() {
		return e.refused()
	}
	l := e.outLink
	s := l.tx.next()
	if s == nil {
		return l.full()
	}
	binary.LittleEndian.PutUint64(s.data[:], first)
	binary.LittleEndian.PutUint64(s.data[wordLen:], second) // behind one word there is a payload, or nothing
	n := words*wordLen + copy(s.data[words*wordLen:], payload)
	l.tx.publish(s, id, kindInline, uint64(n))
	l.notifyIfAsleep()
	l.tx.fetch()
	return nil
}

// longShort is anyShort for what a slot does not hold.
func (e *EP) longShort(id uint8, first, second uint64, words int, payload []byte) error {
	n := words*wordLen + len(payload)
	if n > e.iface.attr.AM.MaxShort {
		return uct.ErrTooLong
	}
	s, buf, err := e.longSlot(id)
	if err != nil {
		return err
	}
	memop.PackShort(buf, first, second, words, payload)
	l := e.outLink
	l.tx.inSegment(s, id, n)
	l.notifyIfAsleep()
	l.tx.fetchNext(n)
	return nil
}

// AMBcopy implements uct.AMSender.
func (e *EP) AMBcopy(id uint8, p uct.Packer) (int, error) {
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

// AMZcopy implements uct.AMSender. The bytes are copied: the buffer is free on
// return. A copy by the kernel costs more at any length that a message may have.
func (e *EP) AMZcopy(id uint8, hdr []byte, iov []uct.IOV, _ *uct.Completion) (bool, error) {
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
func (e *EP) longSlot(id uint8) (*slot, []byte, error) {
	if id > uct.MaxAMID {
		return nil, nil, uct.ErrInvalidParam
	}
	if !e.ready() {
		return nil, nil, e.refused()
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

// full says why the ring takes no message.
//
//go:noinline
func (l *outLink) full() error {
	if l.tx.broken {
		l.lost()
	}
	return uct.ErrNoResource
}

// notifyIfAsleep notifies the peer of a message if the peer has requested that. The look at the state
// comes after the message was published: see membarrier.go.
func (l *outLink) notifyIfAsleep() {
	if l.ctl.state.Load()&stateTell != 0 {
		l.notify()
	}
}

// notify marks the attention word and wakes.
//
//go:noinline
func (l *outLink) notify() {
	s := l.ctl.state.Load()
	if s&stateOften != 0 {
		s = l.lookAgain()
	}
	if s&stateAttention != 0 {
		mmio.ToDevice()
		l.attn.Store(1)
	}
	wakePeer(l.ctl, stateRecv, l.wakeFD)
}
