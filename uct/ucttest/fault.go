package ucttest

import (
	"errors"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

const remoteRule = "an access outside the region, with a bad key or without the right touches no memory; it is refused with ErrRemoteAccess, or the EP fails with StatusRemoteAccess and OnError; other EPs work on"

var faultChecks = []check{
	{
		name: "fault/bounds", rule: remoteRule,
		need: uct.CapErrRemoteMem, any: uct.CapPut | uct.CapGet | uct.CapAtomic, run: checkBounds,
	},
	{
		name: "fault/key", rule: remoteRule,
		need: uct.CapErrRemoteMem, any: uct.CapPut | uct.CapGet | uct.CapAtomic, run: checkBadKey,
	},
	{
		name: "fault/stale-key",
		rule: "after Mem.Close no peer can access the memory: a key that was packed before is refused",
		need: uct.CapErrRemoteMem, any: uct.CapPut | uct.CapGet | uct.CapAtomic, run: checkStaleKey,
	},
	{
		name: "fault/rights", rule: remoteRule,
		need: uct.CapErrRemoteMem, any: uct.CapPut | uct.CapGet | uct.CapAtomic, run: checkRights,
	},
	{
		name: "fault/misaligned",
		rule: "an atomic whose address is not aligned, or whose size is not 4 or 8, is ErrInvalidParam",
		any:  uct.CapAtomic, run: checkMisaligned,
	},
	{
		name: "fault/failed-ep",
		rule: "posts on a failed EP return ErrEPFailed; each operation in flight completes once, with an error; its pending requests are dispatched, and their posts return ErrEPFailed",
		need: uct.CapErrRemoteMem, any: uct.CapPut, run: checkFailedEP,
	},
}

// access is one operation on remote memory.
type access struct {
	name  string
	need  uct.Access
	align uint64
	len   int
	// post posts the operation; c is nil if the operation has no completion.
	post func(p *pair, l *link, raddr uint64, key uct.RKey) (c *comp, err error)
}

// accesses returns all claimed operations, each with 8 bytes or its minimum length.
func accesses(a *uct.IfaceAttr) []access {
	var all []access
	for _, v := range claimedPut(a) {
		n := v.clamp(8)
		all = append(all, access{"put " + v.name, uct.AccessRemoteWrite, 1, n, func(p *pair, l *link, raddr uint64, key uct.RKey) (*comp, error) {
			before := len(p.comps)
			err := v.put(p, l, raddr, key, pattern(1, n))
			return p.since(before), err
		}})
	}
	for _, v := range claimedGet(a) {
		n := v.clamp(8)
		all = append(all, access{"get " + v.name, uct.AccessRemoteRead, 1, n, func(p *pair, l *link, raddr uint64, key uct.RKey) (*comp, error) {
			op := &getOp{n: n}
			err := v.get(p, l, raddr, key, op)
			return op.comp, err
		}})
	}
	for _, v := range claimedAtomics(a) {
		all = append(all, access{v.name(), uct.AccessRemoteAtomic, uint64(v.size), v.size, func(p *pair, l *link, raddr uint64, key uct.RKey) (*comp, error) {
			op := &atomicCall{}
			err := v.post(p, l, raddr, key, 0, 1, op)
			return op.comp, err
		}})
	}
	return all
}

// since returns the completion created after the first n, or nil.
func (p *pair) since(n int) *comp {
	if len(p.comps) > n {
		return p.comps[n]
	}
	return nil
}

// denied posts x on a new EP. The post must return an error or the EP must fail.
func (p *pair) denied(t checkT, what string, x *access, raddr uint64, key uct.RKey) {
	t.Helper()
	what = x.name + " " + what
	l, back := p.connect(t, p.A, p.B)
	l.To, back.To = p.B, p.A
	var c *comp
	err := p.push(t, func() (err error) {
		c, err = x.post(p, l, raddr, key)
		return err
	})
	back.mayFail = true // a device may fail both ends of the connection
	if err != nil {
		assert.ErrorIs(t, err, uct.ErrRemoteAccess, what)
		p.works(t, l, what+": the same ep after the refusal")
		return
	}
	l.failed = true
	p.until(t, what+": nothing happened", func() bool { return p.failures(l) > 0 && (c == nil || c.fired > 0 || c.expect == 0) })
	if c != nil && c.expect > 0 {
		assert.Equal(t, ucs.StatusRemoteAccess, c.Status, what)
	}
	p.refuses(t, l, what)
	p.settle()
	assert.Equal(t, 1, p.failures(l), "%s: calls of OnError", what)
	p.closeLink(t, l)
	p.closeLink(t, back)
}

// failures returns the number of calls of OnError for l.
func (p *pair) failures(l *link) int {
	n := 0
	for _, e := range l.From.Errors {
		if e.EP == l.EP {
			n++
		}
	}
	return n
}

// refuses checks that posts on a failed EP return ErrEPFailed.
func (p *pair) refuses(t checkT, l *link, what string) {
	t.Helper()
	assert.ErrorIs(t, p.post(l, 0), uct.ErrEPFailed, "%s: a post after the failure", what)
	_, err := l.EP.Flush(nil)
	assert.ErrorIs(t, err, uct.ErrEPFailed, "%s: flush after the failure", what)
	r := uct.PendingReq{Func: func(*uct.PendingReq) error { return nil }}
	assert.ErrorIs(t, l.EP.AddPending(&r), uct.ErrEPFailed, "%s: AddPending after the failure", what)
}

// works checks that operations on l complete.
func (p *pair) works(t checkT, l *link, what string) {
	t.Helper()
	if l.AM != nil {
		in := newInbox(t, l.To, 8)
		v := anyAM(l.From.Iface.Attr())
		require.NoError(t, p.push(t, func() error { return v.send(p, l, 8, pattern(1, 64)) }), what)
		p.expect(t, in, what, pattern(1, 64))
	}
	if l.Put != nil && l.To.Mem != nil {
		v := claimedPut(l.From.Iface.Attr())[0]
		data, at := pattern(2, v.clamp(8)), regionLen/2
		p.put(t, l, &v, at, data)
		assert.Equal(t, data, l.To.Mem.Bytes()[at:at+len(data)], what)
		scribble(l.To.Mem.Bytes()[at : at+len(data)])
	}
}

func checkBounds(t checkT, p *pair) {
	mem := p.memory(t, p.B, 3*4096, uct.AccessAll)
	scribble(p.B.Mem.Bytes())
	scribble(mem.Bytes())
	key, start := p.unpack(t, p.A, mem), mem.Addr()
	end := start + uint64(len(mem.Bytes()))
	for _, x := range accesses(p.A.Iface.Attr()) {
		n := uint64(x.len)
		step := x.align
		for _, at := range []struct {
			name  string
			raddr uint64
		}{
			{"one before the region", start - step},
			{"one beyond the end", end - n + step},
			{"at the end", end},
			{"far beyond", end + 1<<40},
			{"wrapping around", -step},
		} {
			p.denied(t, at.name, &x, at.raddr, key)
		}
		p.settle()
		assert.True(t, untouched(mem.Bytes()), "%s out of bounds wrote", x.name)
	}
	assert.True(t, untouched(p.B.Mem.Bytes()), "an access out of bounds wrote into the region beside")
	p.works(t, p.AB, "another ep")
}

func checkBadKey(t checkT, p *pair) {
	if p.A.MD.Attr().RKeyLen == 0 {
		t.Skipf("memory needs no key")
	}
	scribble(p.B.Mem.Bytes())
	mem := p.memory(t, p.B, 4096, uct.AccessAll)
	other := p.unpack(t, p.A, mem)
	for _, x := range accesses(p.A.Iface.Attr()) {
		p.denied(t, "with the key of another region", &x, p.AB.Raddr, other)
	}
	assert.True(t, untouched(p.B.Mem.Bytes()), "an access with a wrong key wrote")
	p.works(t, p.AB, "another ep")
}

func checkStaleKey(t checkT, p *pair) {
	for _, x := range accesses(p.A.Iface.Attr()) {
		mem := p.memory(t, p.B, 4096, uct.AccessAll)
		key, raddr := p.unpack(t, p.A, mem), mem.Addr()
		require.NoError(t, p.push(t, func() error { _, err := x.post(p, p.AB, raddr, key); return err }), x.name)
		p.flush(t, p.AB)
		require.NoError(t, mem.Close())
		p.denied(t, "after the memory was closed", &x, raddr, key)
		again := p.memory(t, p.B, 4096, uct.AccessAll) // may have the same address
		scribble(again.Bytes())
		p.denied(t, "with a key of older memory at this place", &x, again.Addr(), key)
		assert.True(t, untouched(again.Bytes()), "%s with a stale key wrote", x.name)
	}
	p.works(t, p.AB, "another ep")
}

func checkRights(t checkT, p *pair) {
	for _, x := range accesses(p.A.Iface.Attr()) {
		rest := uct.AccessAll &^ x.need
		mem := p.memory(t, p.B, 4096, rest)
		scribble(mem.Bytes())
		p.denied(t, "without the right", &x, mem.Addr(), p.unpack(t, p.A, mem))
		assert.True(t, untouched(mem.Bytes()), "%s without the right wrote", x.name)
	}
	p.works(t, p.AB, "another ep")
}

func checkMisaligned(t checkT, p *pair) {
	scribble(p.B.Mem.Bytes())
	for _, v := range claimedAtomics(p.A.Iface.Attr()) {
		for off := 1; off < v.size; off++ {
			err := v.post(p, p.AB, p.AB.Raddr+uint64(off), p.AB.Key, 0, 1, &atomicCall{})
			assert.ErrorIs(t, err, uct.ErrInvalidParam, "%s at offset %d", v.name(), off)
		}
		for _, size := range []int{0, 1, 2, 3, 5, 16, -8} {
			odd := v
			odd.size = size
			err := odd.post(p, p.AB, p.AB.Raddr, p.AB.Key, 0, 1, &atomicCall{})
			assert.True(t, errors.Is(err, uct.ErrInvalidParam) || errors.Is(err, uct.ErrUnsupported), "%s of size %d: %v", v.name(), size, err)
		}
	}
	p.settle()
	assert.True(t, untouched(p.B.Mem.Bytes()), "a refused atomic wrote")
	p.works(t, p.AB, "the same ep")
}

func checkFailedEP(t checkT, p *pair) {
	l, back := p.connect(t, p.A, p.B)
	back.mayFail = true
	if l.AM != nil {
		newInbox(t, p.B, 3)
	}
	v := claimedPut(p.A.Iface.Attr())[0]
	bad := l.Raddr + 2*regionLen
	if p.push(t, func() error { return v.put(p, l, bad, l.Key, pattern(1, v.clamp(8))) }) != nil {
		t.Skipf("the call refuses: the ep does not fail")
	}
	l.failed = true
	fl := p.comp(1)
	if pending, err := l.EP.Flush(&fl.Completion); err != nil || !pending {
		fl.expect = 0
	}
	for i := 0; i < exhaustLimit && p.post(l, i) == nil; i++ {
	}
	queued, seen := p.queueBehind(l)
	p.until(t, "OnError was not called", func() bool { return p.failures(l) > 0 })
	p.until(t, "pending requests of a failed ep were not dispatched", func() bool { return len(*seen) == queued })
	for _, err := range *seen {
		if err != nil { // nil: the request was dispatched before the EP failed
			assert.ErrorIs(t, err, uct.ErrEPFailed, "a pending request")
		}
	}
	p.until(t, "the flush did not end", func() bool { return fl.fired == fl.expect })
	if fl.expect > 0 {
		assert.NotEqual(t, ucs.StatusOK, fl.Status, "flush of an ep that failed")
	}
	p.refuses(t, l, "after the failure")
	p.works(t, p.AB, "another ep")
	p.settle()
	assert.Equal(t, 1, p.failures(l), "calls of OnError")
}

// queueBehind queues up to four requests on l. seen receives the results of their posts other than ErrNoResource.
func (p *pair) queueBehind(l *link) (queued int, seen *[]error) {
	seen = new([]error)
	for i := range 4 {
		r := &uct.PendingReq{}
		r.Func = func(*uct.PendingReq) error {
			err := p.post(l, i)
			if err != uct.ErrNoResource {
				*seen = append(*seen, err)
			}
			return err
		}
		if l.EP.AddPending(r) == nil {
			queued++
		}
	}
	return queued, seen
}
