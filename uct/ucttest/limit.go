package ucttest

import (
	"bytes"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct"
)

var limitChecks = []check{
	{
		name: "limit/am",
		rule: "AMZcopy accepts a header of MaxHeader bytes together with MaxIOV pieces, MaxZcopy bytes in all; one byte or piece more of each is ErrTooLong",
		need: uct.CapAMZcopy, run: checkAMLimit,
	},
	{
		name: "limit/put",
		rule: "a put of exactly the limit of its variant, in one piece and in MaxIOV pieces, writes all its bytes; one byte or piece more is ErrTooLong",
		any:  uct.CapPut, run: checkPutLimit,
	},
	{
		name: "limit/get",
		rule: "a get of exactly the limit of its variant, in one piece and in MaxIOV pieces, reads all its bytes; one byte or piece more is ErrTooLong",
		any:  uct.CapGet, run: checkGetLimit,
	},
	{
		name: "limit/queue",
		rule: "a message of exactly MaxMessage bytes reaches a queue; one byte more is ErrTooLong",
		need: uct.CapQueue, run: checkQueueLimit,
	},
}

// quickLen is the maximum length in bytes of transfers that every run tries. A run without testenv.Sweep tries only one
// larger put, and none if Harness.Engine is set.
const quickLen = 16 << 20

// limits tries operations at their limits. Its virtual memory maps the same few pages again and again.
type limits struct {
	p      *pair
	local  uct.Mem // nil if zcopy works without
	buf    []byte  // memory of the initiator: the maximum limit and one byte
	target uct.Mem
	raddr  uint64
	key    uct.RKey
	tryOne bool // try one transfer above quickLen
}

// newLimits maps memory of most+1 bytes on both sides.
func newLimits(t checkT, p *pair, most int) *limits {
	t.Helper()
	x := &limits{p: p, buf: testenv.RepeatedMemory(t, most+1)}
	if p.A.MD.Attr().NeedMemH {
		x.local = p.register(t, p.A, x.buf, uct.AccessLocalWrite)
	}
	x.target = p.register(t, p.B, testenv.RepeatedMemory(t, most+1), uct.AccessAll)
	x.raddr, x.key = x.target.Addr(), p.unpack(t, p.A, x.target)
	return x
}

// register registers memory until the end of the check.
func (p *pair) register(t checkT, s *side, buf []byte, access uct.Access) uct.Mem {
	t.Helper()
	reg := s.MD.Ext().Reg
	if reg == nil || uint64(s.MD.Attr().MaxReg) < uint64(len(buf)) {
		t.Skipf("md %s does not register %d bytes", s.MD.Attr().Name, len(buf))
	}
	mem, err := reg.Reg(buf, access)
	require.NoError(t, err, "register %d bytes", len(buf))
	p.mems = append(p.mems, mem)
	return mem
}

// tries reports whether this run transfers n bytes.
func (x *limits) tries(t checkT, what string, n int) bool {
	switch {
	case n <= quickLen || testenv.Sweep():
		return true
	case x.tryOne && !x.p.h.Engine:
		x.tryOne = false
		return true
	}
	t.Logf("%s: %d bytes are transferred by a sweep only", what, n)
	return false
}

// iov returns the first n bytes of the initiator's memory in the given number of IOVs.
func (x *limits) iov(n, pieces int) []uct.IOV {
	var iov []uct.IOV
	b := x.buf[:n]
	for _, k := range split(n, pieces) {
		iov = append(iov, uct.IOV{Buf: b[:k:k], Mem: x.local})
		b = b[k:]
	}
	return iov
}

// limitVariant is a variant of put or get, with its limit in bytes.
type limitVariant struct {
	name   string
	cap    uct.Caps
	max    int
	pieces int
	post   func(n, pieces int, c *uct.Completion) (pending bool, err error)
}

// run posts each claimed variant with the length of its limit, and with one byte more. before and after prepare and
// check the memory of a transfer of n bytes.
func (x *limits) run(t checkT, variants []limitVariant, before func(n int), after func(what string, n int)) {
	t.Helper()
	caps := x.p.A.Iface.Attr().Caps
	for _, v := range variants {
		if !caps.Has(v.cap) {
			continue
		}
		_, err := v.post(v.max+1, v.pieces, nil)
		assert.ErrorIs(t, err, uct.ErrTooLong, "%s of %d bytes in %d pieces", v.name, v.max+1, v.pieces)
		if v.pieces > 1 {
			_, err := v.post(v.pieces+1, v.pieces+1, nil)
			assert.ErrorIs(t, err, uct.ErrTooLong, "%s of %d pieces", v.name, v.pieces+1)
		}
		if !x.tries(t, v.name, v.max) {
			continue
		}
		before(v.max)
		x.transfer(t, &v)
		after(v.name, v.max)
	}
}

// transfer posts one operation of exactly the limit and waits for it.
func (x *limits) transfer(t checkT, v *limitVariant) {
	t.Helper()
	p := x.p
	c := p.comp(1)
	err := p.push(t, func() error {
		pending, err := v.post(v.max, v.pieces, &c.Completion)
		if err == nil && !pending {
			c.expect = 0
		}
		return err
	})
	require.NoError(t, err, "%s of %d bytes, the limit, in %d pieces", v.name, v.max, v.pieces)
	p.until(t, v.name+" did not complete", func() bool { return c.fired >= c.expect })
	require.NoError(t, c.Status.Err(), "%s of %d bytes, the limit", v.name, v.max)
	p.flush(t, p.AB)
}

func checkPutLimit(t checkT, p *pair) {
	l, m := p.AB, p.A.Iface.Attr().Put
	x := newLimits(t, p, max(m.MaxZcopy, m.MaxShort, m.MaxBcopy))
	x.tryOne = true
	target := x.target.Bytes()
	zcopy := func(n, pieces int, c *uct.Completion) (bool, error) {
		return l.Put.PutZcopy(x.iov(n, pieces), x.raddr, x.key, c)
	}
	short := func(post func([]byte, uint64, uct.RKey) error) func(int, int, *uct.Completion) (bool, error) {
		return func(n, _ int, _ *uct.Completion) (bool, error) { return false, post(x.buf[:n], x.raddr, x.key) }
	}
	x.run(t, []limitVariant{
		{"put zcopy", uct.CapPutZcopy, m.MaxZcopy, 1, zcopy},
		{"put zcopy of pieces", uct.CapPutZcopy, m.MaxZcopy, m.MaxIOV, zcopy},
		{"put short", uct.CapPutShort, m.MaxShort, 1, short(l.Put.PutShort)},
		{"put bcopy", uct.CapPutBcopy, m.MaxBcopy, 1, short(l.Put.PutBcopy)},
	}, func(n int) { x.fill(n, x.buf, target) }, func(what string, n int) { x.compare(t, what, n, x.buf, target) })
}

func checkGetLimit(t checkT, p *pair) {
	l, m := p.AB, p.A.Iface.Attr().Get
	x := newLimits(t, p, max(m.MaxZcopy, m.MaxShort, m.MaxBcopy))
	target := x.target.Bytes()
	x.run(t, []limitVariant{
		{"get zcopy", uct.CapGetZcopy, m.MaxZcopy, 1, func(n, pieces int, c *uct.Completion) (bool, error) {
			return l.Get.GetZcopy(x.iov(n, pieces), x.raddr, x.key, c)
		}},
		{"get zcopy of pieces", uct.CapGetZcopy, m.MaxZcopy, m.MaxIOV, func(n, pieces int, c *uct.Completion) (bool, error) {
			return l.Get.GetZcopy(x.iov(n, pieces), x.raddr, x.key, c)
		}},
		{"get short", uct.CapGetShort, m.MaxShort, 1, func(n, _ int, _ *uct.Completion) (bool, error) {
			return false, l.Get.GetShort(x.buf[:n], x.raddr, x.key)
		}},
		{"get bcopy", uct.CapGetBcopy, m.MaxBcopy, 1, func(n, _ int, c *uct.Completion) (bool, error) {
			return l.Get.GetBcopy(x.buf[:n], x.raddr, x.key, c)
		}},
	}, func(n int) { x.fill(n, target, x.buf) }, func(what string, n int) { x.compare(t, what, n, target, x.buf) })
}

// fill writes the pattern of a transfer of n bytes to from and clears to.
func (x *limits) fill(n int, from, to []byte) {
	n = min(n, testenv.RepeatLen)
	copy(from, pattern(n, n))
	scribble(to[:min(n+1, testenv.RepeatLen)])
}

// compare checks the received bytes of the first chunk, which all chunks of a larger transfer share, and that a shorter
// transfer wrote nothing after its end.
func (x *limits) compare(t checkT, what string, n int, from, to []byte) {
	t.Helper()
	k := min(n, testenv.RepeatLen)
	assert.True(t, bytes.Equal(from[:k], to[:k]), "%s of %d bytes: wrong at %d", what, n, difference(from[:k], to[:k]))
	if n < testenv.RepeatLen {
		assert.True(t, untouched(to[n:n+1]), "%s of %d bytes wrote more", what, n)
	}
}

func checkAMLimit(t checkT, p *pair) {
	in := newInbox(t, p.B, 3)
	m := p.A.Iface.Attr().AM
	x := newLimits(t, p, m.MaxZcopy)
	msg := pattern(7, m.MaxZcopy+1)
	hdr := append([]byte{}, msg[:m.MaxHeader]...)
	copy(x.buf, msg[m.MaxHeader:])
	body := m.MaxZcopy - m.MaxHeader
	post := func(hdr []byte, n, pieces int, c *uct.Completion) (bool, error) {
		return p.AB.AM.AMZcopy(3, hdr, x.iov(n, pieces), c)
	}
	for what, try := range map[string]func() (bool, error){
		"a byte":             func() (bool, error) { return post(hdr, body+1, m.MaxIOV, nil) },
		"a piece":            func() (bool, error) { return post(hdr, m.MaxIOV+1, m.MaxIOV+1, nil) },
		"a byte of header":   func() (bool, error) { return post(msg[:m.MaxHeader+1], 0, 1, nil) },
		"a byte, no header":  func() (bool, error) { return post(nil, m.MaxZcopy+1, 1, nil) },
		"a piece, no header": func() (bool, error) { return post(nil, m.MaxIOV+1, m.MaxIOV+1, nil) },
	} {
		_, err := try()
		assert.ErrorIs(t, err, uct.ErrTooLong, "%s more than the limit", what)
	}
	if !x.tries(t, "am zcopy", m.MaxZcopy) {
		return
	}
	x.transfer(t, &limitVariant{"am zcopy", uct.CapAMZcopy, body, m.MaxIOV, func(n, pieces int, c *uct.Completion) (bool, error) {
		return post(hdr, n, pieces, c)
	}})
	p.expect(t, in, "a message of the limit", msg[:m.MaxZcopy])
}

func checkQueueLimit(t checkT, p *pair) {
	n := p.A.Iface.Attr().Queue.MaxMessage
	x := newLimits(t, p, n)
	q, err := p.BA.EP.Ops().Queues.NewQueue(1)
	require.NoError(t, err, "new queue")
	c := p.attach(t, p.AB, q.Number())
	_, err = c.SendZcopy(x.iov(n+1, 1), &uct.Completion{Count: 1})
	assert.Equal(t, uct.ErrTooLong, err, "a message of %d bytes", n+1)
	if x.tries(t, "queue", n) {
		x.fill(n, x.buf, x.target.Bytes())
		got := -1
		r := &uct.QueueRecv{Func: func(r *uct.QueueRecv) {
			require.NoError(t, r.Status.Err(), "the receive of %d bytes", n)
			got = r.Len
		}}
		require.NoError(t, q.Post(r, []uct.IOV{{Buf: x.target.Bytes()[:n], Mem: x.target}}), "post a receive of %d bytes", n)
		s := &queueSend{comp: p.comp(1), iov: x.iov(n, 1)}
		p.until(t, "the connection stays full", func() bool { return p.start(t, c, s) })
		p.until(t, "a message of the limit", func() bool { return got >= 0 && s.fired > 0 })
		assert.NoError(t, s.Status.Err(), "the send of %d bytes", n)
		assert.Equal(t, n, got)
		x.compare(t, "queue", n, x.buf, x.target.Bytes())
	}
	p.detach(t, c)
	assert.NoError(t, q.Close())
}
