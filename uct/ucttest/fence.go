package ucttest

import (
	"encoding/binary"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/uct"
)

var fenceChecks = []check{
	{
		name: "fence/matrix",
		rule: "operations posted after a fence of the EP or iface take effect on the target after those posted before it, for all variants and lengths",
		any:  uct.CapPut, run: checkFenceMatrix,
	},
	{
		name: "fence/message",
		rule: "a message posted after a fence is delivered after the puts and atomics before it have taken effect",
		any:  uct.CapPut, run: checkFenceMessage,
	},
}

// The matrix uses a block of the target's memory in which all 8-byte words have the same value. Large operations access
// the whole block. Small operations and atomics access placeLen bytes at placeOff, near the end of the block, which the
// last packets of a large operation access.
const (
	blockLen  = 12 << 10
	placeOff  = blockLen - 128
	placeLen  = 64 // maximum length of small operations, in bytes
	backlog   = 6  // maximum number of operations before the fence
	wordBytes = 8
)

// step is an operation of the matrix.
type step struct {
	name  string
	reads bool
	// post posts the operation. It writes value to each word of its range, or reads the words into the data of the
	// result, which is complete when its done is true.
	post func(p *pair, l *link, value uint64) (*seen, error)
}

// seen is the result of an operation.
type seen struct {
	data []byte // nil for puts
	done bool
}

// words returns n bytes that consist of 8-byte words of the same value.
func words(value uint64, n int) []byte {
	b := make([]byte, 0, n+wordBytes)
	for len(b) < n {
		b = binary.NativeEndian.AppendUint64(b, value)
	}
	return b[:n]
}

// allWords reports whether every complete word of b has the value.
func allWords(b []byte, value uint64) bool {
	for ; len(b) >= wordBytes; b = b[wordBytes:] {
		if binary.NativeEndian.Uint64(b) != value {
			return false
		}
	}
	return true
}

// steps returns the claimed operations, each small and large.
func steps(a *uct.IfaceAttr) (all []step) {
	for _, v := range claimedPut(a) {
		for _, r := range v.ranges() {
			all = append(all, step{name: r.of + " put " + v.name, post: func(p *pair, l *link, value uint64) (*seen, error) {
				return &seen{done: true}, v.put(p, l, l.Raddr+uint64(r.off), l.Key, words(value, r.n))
			}})
		}
	}
	for _, v := range claimedGet(a) {
		for _, r := range v.ranges() {
			all = append(all, step{name: r.of + " get " + v.name, reads: true, post: func(p *pair, l *link, _ uint64) (*seen, error) {
				return getSeen(p, l, &v, r)
			}})
		}
	}
	for _, v := range []atomicVariant{{uct.AtomicSwap, wordBytes, false}, {uct.AtomicSwap, wordBytes, true}} {
		if v.in(&a.Atomic) {
			all = append(all, step{name: v.name(), post: func(p *pair, l *link, value uint64) (*seen, error) {
				return swapPlace(p, l, &v, value)
			}})
		}
	}
	return all
}

// span is a range of the block.
type span struct {
	of     string
	off, n int
}

// ranges returns the ranges of the small and of the large operation, or only one of them if the limits of the variant
// permit only one.
func (v *opVariant) ranges() (out []span) {
	if short := v.clamp(placeLen); short <= blockLen-placeOff {
		out = append(out, span{"short", placeOff, short})
	}
	if v.max >= 4*placeLen {
		long := min(v.max, blockLen)
		out = append(out, span{"long", blockLen - long, long})
	}
	return out
}

func getSeen(p *pair, l *link, v *getVariant, r span) (*seen, error) {
	s, op := &seen{}, &getOp{n: r.n}
	err := v.get(p, l, l.Raddr+uint64(r.off), l.Key, op)
	s.data, s.done = op.data, op.done
	if op.comp != nil && !op.done {
		end := op.comp.onFire
		op.comp.onFire = func() {
			end()
			s.data, s.done = op.data, true
		}
	}
	return s, err
}

// swapPlace exchanges the word at placeOff for value.
func swapPlace(p *pair, l *link, v *atomicVariant, value uint64) (*seen, error) {
	call := &atomicCall{}
	err := v.post(p, l, l.Raddr+placeOff, l.Key, 0, value, call)
	s := &seen{done: call.done}
	if call.comp != nil && !call.done {
		call.comp.onFire = func() { call.done, s.done = true, true }
	}
	return s, err
}

// fenced posts a fence and retries while it returns ErrNoResource.
func (p *pair) fenced(t checkT, fence func() error) {
	t.Helper()
	require.NoError(t, p.push(t, fence), "fence")
}

// row is one direction of a case of the matrix.
type row struct {
	l             *link
	fence         func() error
	first, second *step
	before, after []*seen
	last          uint64 // value of the last posted operation
}

func checkFenceMatrix(t checkT, p *pair) {
	all := steps(p.A.Iface.Attr())
	value := uint64(1)
	for i := range all {
		for k := range all {
			if all[i].reads && all[k].reads {
				continue
			}
			rows := []*row{
				{l: p.AB, fence: p.AB.EP.Fence, first: &all[i], second: &all[k]},
				{l: p.BA, fence: p.B.Iface.Fence, first: &all[i], second: &all[k]},
			}
			value = p.tryFence(t, rows, value)
		}
	}
}

// tryFence runs a case in all its rows. Values above value are unused; it returns the new maximum.
func (p *pair) tryFence(t checkT, rows []*row, value uint64) uint64 {
	t.Helper()
	start := value
	for _, r := range rows {
		copy(r.l.To.Mem.Bytes()[:blockLen], words(start, blockLen))
		r.last = start
		value = r.postBefore(t, p, value)
	}
	for _, r := range rows {
		p.fenced(t, r.fence)
		value++
		r.after = append(r.after, p.pushStep(t, r, r.second, value))
	}
	for _, r := range rows {
		p.flush(t, r.l)
		p.until(t, "an operation did not end", func() bool { return ended(r.before) && ended(r.after) })
		r.check(t, start)
	}
	return value + 1
}

// postBefore posts the first operation of the case up to backlog times, until ErrNoResource, but at least once.
func (r *row) postBefore(t checkT, p *pair, value uint64) uint64 {
	t.Helper()
	for range backlog {
		value++
		s, err := r.first.post(p, r.l, value)
		if err == uct.ErrNoResource {
			break
		}
		require.NoError(t, err, r.first.name)
		r.book(r.first, value)
		r.before = append(r.before, s)
	}
	if len(r.before) == 0 {
		r.before = append(r.before, p.pushStep(t, r, r.first, value))
	}
	return value
}

// pushStep posts an operation and retries while the post returns ErrNoResource.
func (p *pair) pushStep(t checkT, r *row, x *step, value uint64) (s *seen) {
	t.Helper()
	require.NoError(t, p.push(t, func() (err error) {
		s, err = x.post(p, r.l, value)
		return err
	}), x.name)
	r.book(x, value)
	return s
}

func (r *row) book(x *step, value uint64) {
	if !x.reads {
		r.last = value
	}
}

func ended(all []*seen) bool {
	for _, s := range all {
		if !s.done {
			return false
		}
	}
	return true
}

// check checks the words at placeOff and the data that operations before and after the fence have read.
func (r *row) check(t checkT, start uint64) {
	t.Helper()
	what := r.l.From.Name + ": " + r.first.name + ", fence, " + r.second.name
	for _, s := range r.before {
		require.True(t, !r.first.reads || allWords(s.data, start), "%s: read what came after the fence", what)
	}
	if r.second.reads {
		got := r.after[0].data
		value := binary.NativeEndian.Uint64(got[max(0, len(got)-(blockLen-placeOff)):])
		require.True(t, start < value && value <= r.last, "%s: did not read what was written before the fence", what)
		return
	}
	place := r.l.To.Mem.Bytes()[placeOff : placeOff+wordBytes]
	require.Equal(t, r.last, binary.NativeEndian.Uint64(place), "%s: not the newest value", what)
}

func checkFenceMessage(t checkT, p *pair) {
	if p.AB.AM == nil {
		t.Skipf("no active messages")
	}
	v := anyAM(p.A.Iface.Attr())
	place := p.B.Mem.Bytes()[placeOff : placeOff+wordBytes]
	value, arrived, what := uint64(0), 0, ""
	require.NoError(t, p.B.Iface.SetAMHandler(3, uct.AMHandlerFunc(func([]byte, uct.Desc) bool {
		arrived++
		assert.Equal(t, value, binary.NativeEndian.Uint64(place), "%s, fence, message", what)
		return false
	})))
	for i, x := range steps(p.A.Iface.Attr()) {
		if x.reads {
			continue
		}
		what, value = x.name, value+1
		r := &row{l: p.AB}
		s := p.pushStep(t, r, &x, value)
		p.fenced(t, p.AB.EP.Fence)
		before := arrived
		require.NoError(t, p.push(t, func() error { return v.send(p, p.AB, 3, pattern(i, 64)) }))
		p.until(t, "no message", func() bool { return arrived > before && s.done })
	}
}
