package ucttest

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// sender is an iface with an EP to B, driven by its own goroutine.
type sender struct {
	l      *link
	h      *Harness
	result uint64
	done   bool
	status uct.Status
	c      uct.Completion
}

// senders opens n ifaces and connects them to B.
func (p *pair) senders(t checkT, n int) []*sender {
	t.Helper()
	var out []*sender
	for i := range n {
		side := p.open(t, "sender "+string(rune('1'+i)), p.A)
		l, _ := p.connect(t, side, p.B)
		s := &sender{l: l, h: p.h}
		s.c.Func = func(c *uct.Completion) { s.done, s.status = true, c.Status }
		out = append(out, s)
	}
	return out
}

// parallel runs work on a goroutine for each sender, drives B on this goroutine, and returns when all have returned.
func (p *pair) parallel(t checkT, all []*sender, work func(i int, s *sender) bool) {
	t.Helper()
	var wg sync.WaitGroup
	var failed atomic.Int32
	start := make(chan struct{})
	for i, s := range all {
		wg.Go(func() {
			<-start
			if !work(i, s) {
				failed.Add(1)
			}
		})
	}
	close(start)
	var ended atomic.Bool
	go func() {
		wg.Wait()
		ended.Store(true)
	}()
	for !ended.Load() {
		if p.B.Iface.Progress() == 0 {
			runtime.Gosched()
		}
	}
	require.Zero(t, failed.Load(), "senders that got stuck or failed")
}

// drive progresses until cond is true; it returns false when its budget is spent. It yields after each step, so that
// senders alternate on a single CPU.
func (s *sender) drive(cond func() bool) bool {
	w := s.h.patience(timerBudget)
	for !cond() {
		if w.spent(s.l.From.Iface.Progress()) {
			return false
		}
		w.yield()
	}
	return true
}

// fetch posts one fetching operation, waits for its completion and returns the old value.
func (s *sender) fetch(v *atomicVariant, off int, compare, value uint64) (old uint64, ok bool) {
	s.done, s.status = false, ucs.StatusOK
	var err error
	ok = s.drive(func() bool {
		s.c.Count, s.c.Status = 1, ucs.StatusOK
		var pending bool
		pending, err = v.call(s.l, s.l.Raddr+uint64(off), s.l.Key, compare, value, &s.result, &s.c)
		s.done = err == nil && !pending
		return err != uct.ErrNoResource
	})
	ok = ok && err == nil && s.drive(func() bool { return s.done })
	return s.result, ok && s.status == ucs.StatusOK
}

// add posts an atomic add without result.
func (s *sender) add(size, off int) bool {
	var err error
	ok := s.drive(func() bool {
		err = s.l.Atomics.AtomicPost(uct.AtomicAdd, size, 1, s.l.Raddr+uint64(off), s.l.Key)
		return err != uct.ErrNoResource
	})
	return ok && err == nil
}

func (s *sender) flush() bool {
	var err error
	ok := s.drive(func() bool {
		var pending bool
		pending, err = s.l.EP.Flush(nil)
		return !pending && err != uct.ErrNoResource
	})
	return ok && err == nil
}

func checkAtomicSenders(t checkT, p *pair) {
	const count = 4
	each := p.h.rounds(200)
	all := p.senders(t, count)
	mem := p.B.Mem.Bytes()
	for _, size := range []int{4, 8} {
		fetch := atomicVariant{uct.AtomicAdd, size, true}
		post := atomicVariant{uct.AtomicAdd, size, false}
		a := &p.A.Iface.Attr().Atomic
		clear(mem[:64])
		var olds [count][]uint64
		p.parallel(t, all, func(i int, s *sender) bool {
			for range each {
				if fetch.in(a) {
					old, ok := s.fetch(&fetch, 0, 0, 1)
					if !ok {
						return false
					}
					olds[i] = append(olds[i], old)
				}
				if post.in(a) && !s.add(size, 32) {
					return false
				}
			}
			return s.flush()
		})
		if fetch.in(a) {
			checkPermutation(t, olds[:], count*each)
			assert.EqualValues(t, count*each, word(mem, size), "sum of fetching additions")
		}
		if post.in(a) {
			assert.EqualValues(t, count*each, word(mem[32:], size), "sum of posted additions")
		}
	}
}

// checkPermutation checks that the old values are a permutation of 0..n-1 and increase for each sender.
func checkPermutation(t checkT, olds [][]uint64, n int) {
	t.Helper()
	var all []uint64
	for i, list := range olds {
		assert.True(t, slices.IsSorted(list), "old values of sender %d fall", i)
		all = append(all, list...)
	}
	slices.Sort(all)
	require.Len(t, all, n)
	for i, old := range all {
		require.EqualValues(t, i, old, "old values are not a permutation")
	}
}

// wordCall is an operation on the word of wordModel.
type wordCall struct {
	op             uct.AtomicOp
	size           int
	compare, value uint64
}

// wordModel is the sequential specification of a word that AtomicOp.Apply changes.
var wordModel = porcupine.Model{
	Init: func() any { return uint64(0) },
	Step: func(state, input, output any) (bool, any) {
		in, old := input.(wordCall), state.(uint64)
		return output.(uint64) == old, in.op.Apply(in.size, old, in.compare, in.value)
	},
}

func checkLinearizable(t checkT, p *pair) {
	const count, each = 3, 12
	for _, size := range []int{4, 8} {
		var variants []atomicVariant
		for _, v := range claimedAtomics(p.A.Iface.Attr()) {
			if v.fetch && v.size == size {
				variants = append(variants, v)
			}
		}
		if len(variants) == 0 {
			continue
		}
		clear(p.B.Mem.Bytes()[:64])
		all := p.senders(t, count)
		var clock atomic.Int64
		var history [count][]porcupine.Operation
		p.parallel(t, all, func(i int, s *sender) bool {
			for k := range each {
				v := variants[(i+k)%len(variants)]
				in := wordCall{v.op, size, uint64(k % 3), uint64(1 + (i*each+k)%5)}
				start := clock.Add(1)
				old, ok := s.fetch(&v, 0, in.compare, in.value)
				if !ok {
					return false
				}
				history[i] = append(history[i], porcupine.Operation{
					ClientId: i, Input: in, Call: start, Output: old, Return: clock.Add(1),
				})
			}
			return true
		})
		ok := porcupine.CheckOperations(wordModel, slices.Concat(history[:]...))
		assert.True(t, ok, "no order explains the old values of %d-byte atomics", size)
	}
}
