package ucttest

import (
	"bytes"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/uct"
)

var rmaChecks = []check{
	{
		name: "put/sizes",
		rule: "a put writes its bytes at raddr and nothing else; the caller's buffer is free on return (short, bcopy) or at completion (zcopy)",
		any:  uct.CapPut, run: checkPutSizes,
	},
	{
		name: "get/sizes",
		rule: "a get reads the bytes at raddr into the buffer before it completes",
		any:  uct.CapGet, run: checkGetSizes,
	},
	{
		name: "put/too-long",
		rule: "a put over the limit of the variant is ErrTooLong and has no effect",
		any:  uct.CapPut, run: checkPutTooLong,
	},
	{
		name: "get/too-long",
		rule: "a get over the limit of the variant is ErrTooLong",
		any:  uct.CapGet, run: checkGetTooLong,
	},
	{
		name: "put/iov",
		rule: "PutZcopy writes the pieces of iov in order to one contiguous range",
		need: uct.CapPutZcopy, run: checkPutIOV,
	},
	{
		name: "get/iov",
		rule: "GetZcopy fills the pieces of iov in order",
		need: uct.CapGetZcopy, run: checkGetIOV,
	},
	{
		name: "put/many",
		rule: "puts under backpressure take effect once each; puts after a fence take effect after those before it",
		any:  uct.CapPut, run: checkPutMany,
	},
	{
		name: "put/from-registered",
		rule: "zcopy accepts registered and allocated memory; a Mem that is missing or does not cover its Buf is ErrInvalidParam",
		need: uct.CapPutZcopy, run: checkPutFromReg,
	},
}

// rmaLens returns the lengths to try that fit into the target's region.
func (v *opVariant) rmaLens() []int {
	var out []int
	for _, n := range v.sizes() {
		if n+64 <= regionLen {
			out = append(out, n)
		}
	}
	return append(out, min(v.max, regionLen-64))
}

// put writes data at off of the target's region and waits for a flush.
func (p *pair) put(t checkT, l *link, v *putVariant, off int, data []byte) {
	t.Helper()
	err := p.push(t, func() error { return v.put(p, l, l.Raddr+uint64(off), l.Key, data) })
	require.NoError(t, err, "put %s of %d bytes at offset %d", v.name, len(data), off)
	p.flush(t, l)
}

// get reads n bytes at off of the target's region and waits for its completion.
func (p *pair) get(t checkT, l *link, v *getVariant, off, n int) []byte {
	t.Helper()
	op := &getOp{n: n}
	err := p.push(t, func() error { return v.get(p, l, l.Raddr+uint64(off), l.Key, op) })
	require.NoError(t, err, "get %s of %d bytes at offset %d", v.name, n, off)
	p.until(t, "a get did not complete", func() bool { return op.done })
	if op.comp != nil {
		require.NoError(t, op.comp.Status.Err(), "get %s of %d bytes", v.name, n)
	}
	return op.data
}

func checkPutSizes(t checkT, p *pair) {
	target := p.B.Mem.Bytes()
	for _, v := range claimedPut(p.A.Iface.Attr()) {
		for i, n := range v.rmaLens() {
			off := 16 + i%9 // any alignment
			scribble(target)
			data := pattern(n, n)
			p.put(t, p.AB, &v, off, data)
			assert.True(t, bytes.Equal(data, target[off:off+n]), "put %s of %d bytes: wrong at %d", v.name, n, difference(data, target[off:off+n]))
			assert.True(t, untouched(target[:off]) && untouched(target[off+n:]), "put %s of %d bytes wrote outside its range", v.name, n)
		}
	}
}

func checkGetSizes(t checkT, p *pair) {
	target := p.B.Mem.Bytes()
	copy(target, pattern(99, len(target)))
	for _, v := range claimedGet(p.A.Iface.Attr()) {
		for i, n := range v.rmaLens() {
			off := 16 + i%9
			got := p.get(t, p.AB, &v, off, n)
			assert.True(t, bytes.Equal(target[off:off+n], got), "get %s of %d bytes: wrong at %d", v.name, n, difference(target[off:off+n], got))
		}
	}
	assert.Equal(t, pattern(99, len(target)), target, "a get changed the target")
}

func checkPutTooLong(t checkT, p *pair) {
	target := p.B.Mem.Bytes()
	scribble(target)
	for _, v := range claimedPut(p.A.Iface.Attr()) {
		if v.cap == uct.CapPutBcopy || v.max+1 > limitLen {
			continue // the packer cannot write beyond its buffer, or the length exceeds limitLen
		}
		err := p.push(t, func() error { return v.put(p, p.AB, p.AB.Raddr, p.AB.Key, make([]byte, v.max+1)) })
		assert.ErrorIs(t, err, uct.ErrTooLong, "put %s of %d bytes", v.name, v.max+1)
	}
	v := claimedPut(p.A.Iface.Attr())[0]
	p.put(t, p.AB, &v, 64, pattern(1, v.clamp(16)))
	assert.True(t, untouched(target[:64]), "a refused put wrote")
}

func checkGetTooLong(t checkT, p *pair) {
	for _, v := range claimedGet(p.A.Iface.Attr()) {
		if v.max+1 > limitLen {
			continue
		}
		op := &getOp{n: v.max + 1}
		err := p.push(t, func() error { return v.get(p, p.AB, p.AB.Raddr, p.AB.Key, op) })
		assert.ErrorIs(t, err, uct.ErrTooLong, "get %s of %d bytes", v.name, v.max+1)
	}
	v := claimedGet(p.A.Iface.Attr())[0]
	assert.Len(t, p.get(t, p.AB, &v, 0, v.clamp(16)), v.clamp(16))
}

func checkPutIOV(t checkT, p *pair) {
	a := p.A.Iface.Attr()
	target := p.B.Mem.Bytes()
	total := max(a.Put.MinZcopy, min(200, a.Put.MaxZcopy))
	for i, lens := range shapes(total, a.Put.MaxIOV) {
		scribble(target[:total+16])
		data := pattern(i, total)
		require.NoError(t, p.push(t, func() error {
			return p.zcopy(p.A, data, lens, func(iov []uct.IOV, c *uct.Completion) (bool, error) {
				return p.AB.Put.PutZcopy(iov, p.AB.Raddr, p.AB.Key, c)
			})
		}), "shape %v", lens)
		p.flush(t, p.AB)
		assert.Equal(t, data, target[:total], "shape %v", lens)
		assert.True(t, untouched(target[total:total+16]), "shape %v wrote too much", lens)
	}
	if a.Put.MaxIOV < 1024 {
		_, err := p.AB.Put.PutZcopy(make([]uct.IOV, a.Put.MaxIOV+1), p.AB.Raddr, p.AB.Key, nil)
		assert.ErrorIs(t, err, uct.ErrTooLong, "%d pieces", a.Put.MaxIOV+1)
	}
}

func checkGetIOV(t checkT, p *pair) {
	a := p.A.Iface.Attr()
	total := max(a.Get.MinZcopy, min(200, a.Get.MaxZcopy))
	copy(p.B.Mem.Bytes(), pattern(5, total+16))
	for _, lens := range shapes(total, a.Get.MaxIOV) {
		buf := p.A.staged.take(total + 16)
		scribble(buf)
		done := false
		c := p.comp(1)
		c.onFire = func() { done = true }
		iov := p.A.staged.cut(buf, lens)
		require.NoError(t, p.push(t, func() error {
			pending, err := p.AB.Get.GetZcopy(iov, p.AB.Raddr, p.AB.Key, &c.Completion)
			if err == nil && !pending {
				c.expect, done = 0, true
			}
			return err
		}), "shape %v", lens)
		p.until(t, "a get did not complete", func() bool { return done })
		assert.Equal(t, pattern(5, total), buf[:total], "shape %v", lens)
		assert.True(t, untouched(buf[total:]), "shape %v read too much", lens)
		p.A.staged.giveBack(buf)
	}
	if a.Get.MaxIOV < 1024 {
		_, err := p.AB.Get.GetZcopy(make([]uct.IOV, a.Get.MaxIOV+1), p.AB.Raddr, p.AB.Key, nil)
		assert.ErrorIs(t, err, uct.ErrTooLong, "%d pieces", a.Get.MaxIOV+1)
	}
}

// checkPutMany puts records to consecutive addresses, and one word that each put overwrites.
func checkPutMany(t checkT, p *pair) {
	const count = 300
	target := p.B.Mem.Bytes()
	variants := claimedPut(p.A.Iface.Attr())
	const slot = 128
	for i := range count {
		v := &variants[i%len(variants)]
		n := v.clamp(16)
		if n > slot {
			t.Skipf("put %s takes no less than %d bytes", v.name, n)
		}
		p.fenced(t, p.AB.EP.Fence)
		for _, off := range []int{0, slot * (1 + i)} {
			require.NoError(t, p.push(t, func() error {
				return v.put(p, p.AB, p.AB.Raddr+uint64(off), p.AB.Key, pattern(i, n))
			}))
		}
	}
	p.flush(t, p.AB)
	for i := range count {
		n := variants[i%len(variants)].clamp(16)
		require.Equal(t, pattern(i, n), target[slot*(1+i):slot*(1+i)+n], "put %d", i)
	}
	n := variants[(count-1)%len(variants)].clamp(16)
	assert.Equal(t, pattern(count-1, n), target[:n], "the last put to a place must win")
}

func checkPutFromReg(t checkT, p *pair) {
	reg := p.A.MD.Ext().Reg
	if reg == nil {
		t.Skipf("the md registers nothing")
	}
	n := max(p.A.Iface.Attr().Put.MinZcopy, min(3000, p.A.Iface.Attr().Put.MaxZcopy))
	buf := pattern(3, n+100)
	mem, err := reg.Reg(buf, uct.AccessLocalWrite)
	require.NoError(t, err)
	p.mems = append(p.mems, mem)
	done := false
	c := p.comp(1)
	c.onFire = func() { done = true }
	require.NoError(t, p.push(t, func() error {
		pending, err := p.AB.Put.PutZcopy([]uct.IOV{{Buf: buf[50 : 50+n], Mem: mem}}, p.AB.Raddr, p.AB.Key, &c.Completion)
		if err == nil && !pending {
			c.expect, done = 0, true
		}
		return err
	}))
	p.until(t, "a put did not complete", func() bool { return done })
	p.flush(t, p.AB)
	assert.Equal(t, buf[50:50+n], p.B.Mem.Bytes()[:n])
	if p.A.MD.Attr().NeedMemH {
		for name, bad := range map[string]uct.IOV{
			"beyond its memory": {Buf: pattern(1, n), Mem: mem},
			"without memory":    {Buf: buf[:n]},
		} {
			_, err := p.AB.Put.PutZcopy([]uct.IOV{bad}, p.AB.Raddr, p.AB.Key, nil)
			assert.ErrorIs(t, err, uct.ErrInvalidParam, "a piece %s", name)
		}
	}
}
