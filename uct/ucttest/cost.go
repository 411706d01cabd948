package ucttest

import (
	"encoding/binary"
	"runtime"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct"
)

var costChecks = []check{
	{
		name: "cost/allocations",
		rule: "claimed variants, Progress, the delivery of messages and pending requests do not allocate after set-up",
		run:  checkAllocations,
	},
	{
		name: "cost/goroutines",
		rule: "an operation starts no goroutine",
		run:  checkGoroutines,
	},
}

// loop is one operation whose buffers and completion are allocated in advance.
type loop struct {
	name string
	post func(*loop) (pending bool, err error)
	l    *link
	c    uct.Completion
	open int // outstanding completions
	data []byte
	iov  []uct.IOV
	word uint64
	err  error
}

// Pack implements uct.Packer.
func (o *loop) Pack(dst []byte) int { return copy(dst, o.data) }

// once posts the operation and progresses both sides until it is complete, at least twice.
func (o *loop) once(p *pair) {
	for {
		o.c.Count, o.c.Status = 1, 0
		pending, err := o.post(o)
		if err == uct.ErrNoResource {
			p.round()
			continue
		}
		if o.err = err; err != nil {
			return
		}
		if pending {
			o.open++
		}
		break
	}
	for i := 0; o.open > 0 || i < 2; i++ {
		p.A.Iface.Progress()
		if p.B.Iface.Progress() == 0 {
			runtime.Gosched()
		}
	}
}

// loops returns all claimed operations on l. Those without completion are first.
func (p *pair) loops(l *link) []*loop {
	a := l.From.Iface.Attr()
	var all []*loop
	add := func(cap uct.Caps, name string, n int, post func(*loop) (bool, error)) {
		if !a.Caps.Has(cap) {
			return
		}
		buf := l.From.staged.take(n)
		o := &loop{name: name, post: post, l: l, data: buf, iov: []uct.IOV{{Buf: buf, Mem: l.From.staged.mem}}}
		o.c.Func = func(*uct.Completion) { o.open-- }
		all = append(all, o)
	}
	done := func(err error) (bool, error) { return false, err }
	sized := func(_ int, err error) (bool, error) { return false, err }
	add(uct.CapAMShort, "am short", 8, func(o *loop) (bool, error) {
		return done(o.l.AM.AMShort(3, binary.LittleEndian.Uint64(o.data), nil))
	})
	add(uct.CapAMBcopy, "am bcopy", min(64, a.AM.MaxBcopy), func(o *loop) (bool, error) { return sized(o.l.AM.AMBcopy(3, o)) })
	add(uct.CapPutShort, "put short", 8, func(o *loop) (bool, error) { return done(o.l.Put.PutShort(o.data, o.l.Raddr, o.l.Key)) })
	add(uct.CapPutBcopy, "put bcopy", min(64, a.Put.MaxBcopy), func(o *loop) (bool, error) { return done(o.l.Put.PutBcopy(o.data, o.l.Raddr, o.l.Key)) })
	add(uct.CapAMZcopy, "am zcopy", max(64, a.AM.MinZcopy), func(o *loop) (bool, error) { return o.l.AM.AMZcopy(3, nil, o.iov, &o.c) })
	add(uct.CapPutZcopy, "put zcopy", max(64, a.Put.MinZcopy), func(o *loop) (bool, error) {
		return o.l.Put.PutZcopy(o.iov, o.l.Raddr, o.l.Key, &o.c)
	})
	add(uct.CapGetShort, "get short", 8, func(o *loop) (bool, error) { return done(o.l.Get.GetShort(o.data, o.l.Raddr, o.l.Key)) })
	add(uct.CapGetBcopy, "get bcopy", min(64, a.Get.MaxBcopy), func(o *loop) (bool, error) {
		return o.l.Get.GetBcopy(o.data, o.l.Raddr, o.l.Key, &o.c)
	})
	add(uct.CapGetZcopy, "get zcopy", max(64, a.Get.MinZcopy), func(o *loop) (bool, error) {
		return o.l.Get.GetZcopy(o.iov, o.l.Raddr, o.l.Key, &o.c)
	})
	for _, v := range claimedAtomics(a) {
		add(0, v.name(), 8, func(o *loop) (bool, error) {
			if !v.fetch {
				return done(o.l.Atomics.AtomicPost(v.op, v.size, 1, o.l.Raddr, o.l.Key))
			}
			return v.call(o.l, o.l.Raddr, o.l.Key, 0, 1, &o.word, &o.c)
		})
	}
	if k := l.EP.Ops().Check; k != nil {
		add(0, "check", 8, func(o *loop) (bool, error) { return k.Check(&o.c) })
	}
	add(0, "flush", 8, func(o *loop) (bool, error) { return o.l.EP.Flush(&o.c) })
	add(0, "iface flush", 8, func(o *loop) (bool, error) { return o.l.From.Iface.Flush(&o.c) })
	add(0, "fence", 8, func(o *loop) (bool, error) { return done(o.l.EP.Fence()) })
	return all
}

// count is a handler that allocates nothing.
type count struct{ n int }

func (h *count) HandleAM([]byte, uct.Desc) bool { h.n++; return false }

func checkAllocations(t checkT, p *pair) {
	if raceEnabled {
		t.Skipf("allocation counts differ under the race detector")
	}
	if p.h.Engine {
		t.Skipf("goroutines outside the transport transfer the data, and allocate")
	}
	warm, runs := p.h.rounds(300), p.h.rounds(200)
	if p.AB.AM != nil {
		require.NoError(t, p.B.Iface.SetAMHandler(3, &count{}))
	}
	for _, o := range p.loops(p.AB) {
		for range warm {
			o.once(p)
		}
		require.NoError(t, o.err, o.name)
		n := testenv.LeastAllocs(runs, func() { o.once(p) })
		assert.Zero(t, n, "%s: allocations per operation", o.name)
		require.NoError(t, o.err, o.name)
	}
	n := testenv.LeastAllocs(runs, func() { p.A.Iface.Progress() })
	assert.Zero(t, n, "idle progress")
	p.checkPendingAllocations(t)
}

// checkPendingAllocations queues a request whenever a post returns ErrNoResource.
func (p *pair) checkPendingAllocations(t checkT) {
	t.Helper()
	a := p.A.Iface.Attr()
	if !a.Caps.Has(uct.CapPending) || a.Caps&(uct.CapAMShort|uct.CapAMBcopy|uct.CapPutShort|uct.CapPutBcopy) == 0 {
		return
	}
	o := p.loops(p.AB)[0] // loops begins with the variants that have no completion
	var r uct.PendingReq
	queued := false
	r.Func = func(*uct.PendingReq) error {
		_, err := o.post(o)
		queued = err == uct.ErrNoResource
		return err
	}
	run := func() {
		for i := 0; i < 64 && !queued; i++ {
			if _, err := o.post(o); err == uct.ErrNoResource {
				queued = p.AB.EP.AddPending(&r) == nil
			}
		}
		for queued {
			p.A.Iface.Progress()
			p.B.Iface.Progress()
		}
	}
	for range 100 {
		run()
	}
	assert.Zero(t, testenv.LeastAllocs(100, run), "pending requests: allocations per 64 posts")
}

func checkGoroutines(t checkT, p *pair) {
	if p.AB.AM != nil {
		require.NoError(t, p.B.Iface.SetAMHandler(3, &count{}))
	}
	all := p.loops(p.AB)
	for _, o := range all { // devices start their goroutines at the first operation
		o.once(p)
		require.NoError(t, o.err, o.name)
	}
	before, rounds := runtime.NumGoroutine(), p.h.rounds(100)
	for range rounds {
		for _, o := range all {
			o.once(p)
		}
	}
	// A device may still be connecting, on its own goroutines.
	assert.Less(t, runtime.NumGoroutine()-before, rounds, "more goroutines after many operations")
}
