package ucttest

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/gucx/gucx/uct"
)

// limitLen is the maximum length in bytes that checks try; a transport's limit may be 2 GiB.
const limitLen = stageLen / 2

// opVariant is a variant of an operation. Its functions post once and return the transport's error unchanged.
type opVariant struct {
	name     string
	cap      uct.Caps
	min, max int // limits of the attributes, in bytes
}

// sizes returns the lengths to try: the limits, capped at limitLen, and lengths next to them.
func (v *opVariant) sizes() []int {
	hi := min(v.max, limitLen)
	var out []int
	for _, n := range []int{v.min, v.min + 1, 7, 8, 9, 63, 64, 65, 255, 256, 257, 4095, 4096, 4097, hi / 2, hi - 1, hi} {
		if n >= v.min && n <= hi {
			out = append(out, n)
		}
	}
	return out
}

func (v *opVariant) clamp(n int) int { return max(v.min, min(n, v.max)) }

// amVariant sends messages.
type amVariant struct {
	opVariant
	// send posts msg. The caller may modify msg after send has returned.
	send func(p *pair, l *link, id uint8, msg []byte) error
}

func claimedAM(a *uct.IfaceAttr) []amVariant {
	m := &a.AM
	all := []amVariant{
		{opVariant{"short", uct.CapAMShort, 8, m.MaxShort}, sendShort},
		{opVariant{"words", uct.CapAMWords, 16, m.MaxShort}, sendWords},
		{opVariant{"bcopy", uct.CapAMBcopy, 0, m.MaxBcopy}, sendBcopy},
		{opVariant{"zcopy", uct.CapAMZcopy, m.MinZcopy, m.MaxZcopy}, sendZcopy(0, 1)},
		{opVariant{"zcopy header", uct.CapAMZcopy, max(m.MinZcopy, m.MaxHeader), m.MaxZcopy}, sendZcopy(m.MaxHeader, 1)},
		{opVariant{"zcopy iov", uct.CapAMZcopy, m.MinZcopy, m.MaxZcopy}, sendZcopy(min(1, m.MaxHeader, m.MinZcopy), m.MaxIOV)},
	}
	var out []amVariant
	for _, v := range all {
		if a.Caps.Has(v.cap) {
			out = append(out, v)
		}
	}
	return out
}

// anyAM returns the first claimed variant whose limit is at least 64 bytes.
func anyAM(a *uct.IfaceAttr) amVariant {
	for _, v := range claimedAM(a) {
		if v.min <= 64 && v.max >= 64 {
			return v
		}
	}
	panic(fmt.Sprintf("ucttest: no am variant takes 64 bytes: %v", a.Caps))
}

func sendShort(_ *pair, l *link, id uint8, msg []byte) error {
	payload := append([]byte{}, msg[8:]...)
	err := l.AM.AMShort(id, binary.LittleEndian.Uint64(msg), payload)
	scribble(payload)
	return err
}

func sendWords(_ *pair, l *link, id uint8, msg []byte) error {
	payload := append([]byte{}, msg[16:]...)
	err := l.EP.Ops().Words.AMWords(id, binary.LittleEndian.Uint64(msg), binary.LittleEndian.Uint64(msg[8:]), payload)
	scribble(payload)
	return err
}

func sendBcopy(_ *pair, l *link, id uint8, msg []byte) error {
	k := &bytesPacker{data: append([]byte{}, msg...)}
	n, err := l.AM.AMBcopy(id, k)
	scribble(k.data)
	if err == nil && n != len(msg) {
		return fmt.Errorf("AMBcopy returned %d for a message of %d bytes", n, len(msg))
	}
	if want := 1; err != nil && k.calls > 0 || err == nil && k.calls != want {
		return fmt.Errorf("the packer was called %d times with error %w", k.calls, err)
	}
	return err
}

// sendZcopy sends the first header bytes as header and the rest in pieces.
func sendZcopy(header, pieces int) func(*pair, *link, uint8, []byte) error {
	return func(p *pair, l *link, id uint8, msg []byte) error {
		hdr := append([]byte{}, msg[:min(header, len(msg))]...)
		body := msg[len(hdr):]
		return p.zcopy(l.From, body, split(len(body), pieces), func(iov []uct.IOV, c *uct.Completion) (bool, error) {
			pending, err := l.AM.AMZcopy(id, hdr, iov, c)
			scribble(hdr)
			return pending, err
		})
	}
}

// zcopy copies data to a staging buffer, posts it in pieces of the given lengths and releases the buffer when the
// operation completes. It then checks that the transport did not modify the buffer.
func (p *pair) zcopy(s *side, data []byte, lens []int, post func([]uct.IOV, *uct.Completion) (bool, error)) error {
	buf := s.staged.take(len(data))
	if buf == nil {
		return uct.ErrNoResource
	}
	copy(buf, data)
	data = append([]byte{}, data...)
	c := p.comp(1)
	end := func() {
		if !bytes.Equal(buf, data) {
			p.complain("a zcopy send changed its buffer of %d bytes", len(buf))
		}
		s.staged.giveBack(buf)
	}
	c.onFire = end
	iov := s.staged.cut(buf, lens)
	pending, err := post(iov, &c.Completion)
	clear(iov)
	if err != nil || !pending {
		end()
		c.expect = 0
	}
	return err
}

// putVariant writes remote memory.
type putVariant struct {
	opVariant
	put func(p *pair, l *link, raddr uint64, key uct.RKey, data []byte) error
}

func claimedPut(a *uct.IfaceAttr) []putVariant {
	m := &a.Put
	all := []putVariant{
		{opVariant{"short", uct.CapPutShort, 0, m.MaxShort}, putShort},
		{opVariant{"bcopy", uct.CapPutBcopy, 0, m.MaxBcopy}, putBcopy},
		{opVariant{"zcopy", uct.CapPutZcopy, m.MinZcopy, m.MaxZcopy}, putZcopy(1)},
		{opVariant{"zcopy iov", uct.CapPutZcopy, m.MinZcopy, m.MaxZcopy}, putZcopy(m.MaxIOV)},
	}
	var out []putVariant
	for _, v := range all {
		if a.Caps.Has(v.cap) {
			out = append(out, v)
		}
	}
	return out
}

func putShort(_ *pair, l *link, raddr uint64, key uct.RKey, data []byte) error {
	buf := append([]byte{}, data...)
	err := l.Put.PutShort(buf, raddr, key)
	scribble(buf)
	return err
}

func putBcopy(_ *pair, l *link, raddr uint64, key uct.RKey, data []byte) error {
	buf := append([]byte{}, data...)
	err := l.Put.PutBcopy(buf, raddr, key)
	scribble(buf)
	return err
}

func putZcopy(pieces int) func(*pair, *link, uint64, uct.RKey, []byte) error {
	return func(p *pair, l *link, raddr uint64, key uct.RKey, data []byte) error {
		return p.zcopy(l.From, data, split(len(data), pieces), func(iov []uct.IOV, c *uct.Completion) (bool, error) {
			return l.Put.PutZcopy(iov, raddr, key, c)
		})
	}
}

// getVariant reads remote memory.
type getVariant struct {
	opVariant
	// get posts a get. When op.comp fires, or when get returns without pending, op.data is complete.
	get func(p *pair, l *link, raddr uint64, key uct.RKey, op *getOp) error
}

// getOp is a get: its length and its data.
type getOp struct {
	n    int
	data []byte
	comp *comp
	done bool
}

func claimedGet(a *uct.IfaceAttr) []getVariant {
	m := &a.Get
	all := []getVariant{
		{opVariant{"short", uct.CapGetShort, 0, m.MaxShort}, getShort},
		{opVariant{"bcopy", uct.CapGetBcopy, 0, m.MaxBcopy}, getBcopy},
		{opVariant{"zcopy", uct.CapGetZcopy, m.MinZcopy, m.MaxZcopy}, getZcopy(1)},
		{opVariant{"zcopy iov", uct.CapGetZcopy, m.MinZcopy, m.MaxZcopy}, getZcopy(m.MaxIOV)},
	}
	var out []getVariant
	for _, v := range all {
		if a.Caps.Has(v.cap) {
			out = append(out, v)
		}
	}
	return out
}

func getShort(_ *pair, l *link, raddr uint64, key uct.RKey, op *getOp) error {
	buf := make([]byte, op.n)
	err := l.Get.GetShort(buf, raddr, key)
	op.data, op.done = buf, err == nil
	return err
}

func getBcopy(p *pair, l *link, raddr uint64, key uct.RKey, op *getOp) error {
	buf := make([]byte, op.n)
	scribble(buf)
	end := func() {
		op.data, op.done = append([]byte{}, buf...), true
		scribble(buf)
		p.gone = append(p.gone, buf)
	}
	op.comp = p.comp(1)
	op.comp.onFire = end
	pending, err := l.Get.GetBcopy(buf, raddr, key, &op.comp.Completion)
	if err == nil && !pending {
		end()
	}
	op.settled(pending, err)
	return err
}

// settled marks the get as complete if the call returned neither pending nor an error.
func (g *getOp) settled(pending bool, err error) {
	if err != nil || !pending {
		g.comp.expect = 0
		g.done = err == nil
	}
}

func getZcopy(pieces int) func(*pair, *link, uint64, uct.RKey, *getOp) error {
	return func(p *pair, l *link, raddr uint64, key uct.RKey, op *getOp) error {
		local := &l.From.staged
		buf := local.take(op.n)
		if buf == nil {
			return uct.ErrNoResource
		}
		scribble(buf)
		end := func() {
			op.data, op.done = append([]byte{}, buf...), true
			local.giveBack(buf)
		}
		op.comp = p.comp(1)
		op.comp.onFire = end
		iov := local.cut(buf, split(op.n, pieces))
		pending, err := l.Get.GetZcopy(iov, raddr, key, &op.comp.Completion)
		clear(iov)
		if err != nil || !pending {
			end()
		}
		op.settled(pending, err)
		return err
	}
}
