package self

import (
	"encoding/binary"

	"github.com/gucx/gucx/internal/shortcopy"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/internal/memop"
)

// AMShort implements uct.AMSender. It writes messages that fit into a slot, and the most frequent ones, with a payload of one or two
// 64-bit words, without a call: then no registers need to be saved.
func (e *endpoint) AMShort(id uint8, hdr uint64, payload []byte) error {
	q := e.rx
	if id > uct.MaxAMID || q.tail == q.limit || e.pending.Blocks() {
		return e.amShortSlow(id, hdr, 0, 1, payload)
	}
	s := q.slotAt(q.tail)
	binary.LittleEndian.PutUint64(s.data[:], hdr)
	if n := len(payload); n == wordLen {
		*(*[wordLen]byte)(s.data[wordLen:]) = [wordLen]byte(payload)
	} else if n > wordLen && n <= 2*wordLen {
		shortcopy.Words(s.data[wordLen:], payload)
	} else if n != 0 {
		if n > inlineLen-wordLen {
			return e.amShortSlow(id, hdr, 0, 1, payload)
		}
		copy(s.data[wordLen:], payload)
	}
	s.word = inlineWord(id, wordLen+len(payload))
	q.tail += slotLen
	return nil
}

// AMWords implements uct.AMWordSender, as AMShort.
func (e *endpoint) AMWords(id uint8, first, second uint64, payload []byte) error {
	q := e.rx
	if id > uct.MaxAMID || q.tail == q.limit || e.pending.Blocks() {
		return e.amShortSlow(id, first, second, 2, payload)
	}
	s := q.slotAt(q.tail)
	binary.LittleEndian.PutUint64(s.data[:], first)
	binary.LittleEndian.PutUint64(s.data[wordLen:], second)
	if n := len(payload); n == wordLen {
		*(*[wordLen]byte)(s.data[2*wordLen:]) = [wordLen]byte(payload)
	} else if n > wordLen && n <= 2*wordLen {
		shortcopy.Words(s.data[2*wordLen:], payload)
	} else if n != 0 {
		if n > inlineLen-2*wordLen {
			return e.amShortSlow(id, first, second, 2, payload)
		}
		copy(s.data[2*wordLen:], payload)
	}
	s.word = inlineWord(id, 2*wordLen+len(payload))
	q.tail += slotLen
	return nil
}

// amShortSlow sends any short message, with a header of one or two words and a payload.
//
//go:noinline
func (e *endpoint) amShortSlow(id uint8, first, second uint64, words int, payload []byte) error {
	if len(payload) > inlineLen-words*wordLen {
		return e.amShortSegment(id, first, second, words, payload)
	}
	if id > uct.MaxAMID {
		return uct.ErrInvalidParam
	}
	if !e.ready() {
		return e.postError()
	}
	q := e.rx
	if q.full() {
		return uct.ErrNoResource
	}
	s := q.slotAt(q.tail)
	binary.LittleEndian.PutUint64(s.data[:], first)
	binary.LittleEndian.PutUint64(s.data[wordLen:], second) // with a header of one word, the payload overwrites it
	s.word = inlineWord(id, words*wordLen+copy(s.data[words*wordLen:], payload))
	e.posted()
	return nil
}

// amShortSegment is amShortSlow for messages that are too large for a slot.
func (e *endpoint) amShortSegment(id uint8, first, second uint64, words int, payload []byte) error {
	n := words*wordLen + len(payload)
	if n > e.iface.attr.AM.MaxShort {
		return uct.ErrTooLong
	}
	buf, err := e.segment(id)
	if err != nil {
		return err
	}
	memop.PackShort(buf, first, second, words, payload)
	e.rx.put(id, n)
	e.posted()
	return nil
}

// AMBcopy implements uct.AMSender.
func (e *endpoint) AMBcopy(id uint8, p uct.Packer) (int, error) {
	buf, err := e.segment(id)
	if err != nil {
		return 0, err
	}
	n := p.Pack(buf)
	e.rx.put(id, n)
	e.posted()
	return n, nil
}

// AMZcopy implements uct.AMSender. The buffer is free on return.
func (e *endpoint) AMZcopy(id uint8, hdr []byte, iov []uct.IOV, _ *uct.Completion) (bool, error) {
	am := &e.iface.attr.AM
	if len(hdr) > am.MaxHeader || len(iov) > am.MaxIOV || len(hdr)+uct.IOVLen(iov) > am.MaxZcopy {
		return false, uct.ErrTooLong
	}
	if !memop.Covers(iov) {
		return false, uct.ErrInvalidParam
	}
	buf, err := e.segment(id)
	if err != nil {
		return false, err
	}
	n := copy(buf, hdr)
	n += memop.Gather(buf[n:], iov)
	e.rx.put(id, n)
	e.posted()
	return false, nil
}

// segment returns the buffer for a message with an id.
func (e *endpoint) segment(id uint8) ([]byte, error) {
	if id > uct.MaxAMID {
		return nil, uct.ErrInvalidParam
	}
	if !e.ready() {
		return nil, e.postError()
	}
	buf := e.rx.take()
	if buf == nil {
		return nil, uct.ErrNoResource
	}
	return buf[:min(len(buf), e.iface.attr.AM.MaxBcopy)], nil
}

// posted publishes the message in the next slot, and wakes the peer if it waits for an event.
func (e *endpoint) posted() {
	e.rx.tail += slotLen
	if e.rx.awaited {
		e.peer.wake()
	}
}
