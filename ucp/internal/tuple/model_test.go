package tuple

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/ucs"
)

// id returns the number of the message that a receive has.
func (v *recv) id() uint64 {
	var b [8]byte
	copy(b[:], v.buf)
	return binary.LittleEndian.Uint64(b[:])
}

// lost reports whether a message was canceled.
func (s *send) lost() bool { return len(s.ended) > 0 && s.ended[0] != ucs.StatusOK }

// check compares the receives with a serial matcher: each receive, in order, has the earliest message that it matches
// and that no earlier receive has. Canceled messages and receives do not count.
func (w *world) check() {
	p := w.peers[0]
	taken := map[*send]bool{}
	for _, v := range w.recvs {
		if v.at == wasCanceled {
			continue
		}
		var want *send
		for _, s := range p.sends {
			if !taken[s] && !s.lost() && (s.tag^v.node.Tag)&v.node.Mask == 0 {
				want = s
				break
			}
		}
		if want == nil {
			require.NotEqual(w.t, hasMessage, v.at, "receive %d of tag %d has a message", v.order, v.node.Tag)
			continue
		}
		taken[want] = true
		require.Equal(w.t, hasMessage, v.at, "receive %d of tag %d, mask %x, is to have message %d", v.order, v.node.Tag, v.node.Mask, want.id)
		require.Equal(w.t, want.id, v.id(), "receive %d of tag %d, mask %x", v.order, v.node.Tag, v.node.Mask)
		require.Equal(w.t, len(want.data), v.n)
	}
	for _, s := range p.sends {
		require.LessOrEqual(w.t, len(s.ended), 1, "message %d ends once", s.id)
		if taken[s] {
			require.Len(w.t, s.ended, 1, "message %d was received", s.id)
		}
	}
	require.False(w.t, w.Paused())
	_, steady := w.Waiting(p)
	require.True(w.t, steady)
	queues, _ := w.Queues()
	require.LessOrEqual(w.t, queues, w.cfg.Max)
}

// Waiting returns that of the peer's Sender.
func (w *world) Waiting(p *peer) (int, bool) { return p.Sender.Waiting() }

// settings returns some settings that make rare events likely.
func settings(t *rapid.T) Config {
	return Config{
		Max: rapid.IntRange(1, 4).Draw(t, "max"), MaxMessage: maxLen,
		Wildcards: true,
	}
}

// masks of receives, most of them exact.
var masks = []uint64{exactMask, exactMask, exactMask, exactMask, exactMask, exactMask, 1, 0}

// TestModel: for any order of messages, receives, cancels, probes and steps of the transport, the receives have the
// messages of a serial matcher.
func TestModel(t *testing.T) {
	var sum [4]uint64
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(rt, settings(rt), 1)
		p := w.peers[0]
		p.prompt, p.unsure = rapid.Bool().Draw(rt, "prompt"), rapid.Bool().Draw(rt, "unsure")
		p.limit = rapid.SampledFrom([]int{unlimited, 1, 2, 5, 20}).Draw(rt, "limit")
		tag := rapid.Uint64Range(0, 3)
		steps := w.steps()
		step := func(rt *rapid.T) {
			for n := rapid.IntRange(1, 12).Draw(rt, "steps"); n > 0; n-- {
				steps[rapid.IntRange(0, len(steps)-1).Draw(rt, "step")]()
			}
		}
		send := func(rt *rapid.T) {
			p.send(tag.Draw(rt, "tag"), rapid.SampledFrom([]int{8, 8, 8, 20, maxLen, maxLen + 1}).Draw(rt, "len"))
		}
		post := func(rt *rapid.T) {
			w.post(tag.Draw(rt, "tag"), rapid.SampledFrom(masks).Draw(rt, "mask"),
				rapid.SampledFrom([]int{8, 20, maxLen}).Draw(rt, "room"), rapid.IntRange(0, 9).Draw(rt, "typed") == 0)
		}
		for n := range rapid.Uint64Range(0, 4).Draw(rt, "open") {
			w.open(p, n)
		}
		burst := func(rt *rapid.T) {
			for range rapid.IntRange(1, 8).Draw(rt, "burst") {
				send(rt)
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"send": burst, "send again": send, "post": post, "post again": post,
			"step": step, "step again": step, "settle": func(*rapid.T) { p.outside(); w.settle() },
			"cancel receive": func(rt *rapid.T) {
				if len(w.recvs) > 0 {
					w.cancel(w.recvs[rapid.IntRange(0, len(w.recvs)-1).Draw(rt, "which")])
				}
			},
			"cancel send": func(rt *rapid.T) {
				if len(p.sends) > 0 {
					p.sends[rapid.IntRange(0, len(p.sends)-1).Draw(rt, "which")].cancel()
				}
			},
			"probe": func(rt *rapid.T) { w.Probe(tag.Draw(rt, "tag"), rapid.SampledFrom(masks).Draw(rt, "mask")) },
			"peer inside": func(rt *rapid.T) {
				for _, q := range p.byNumber {
					q.inside = true
				}
			},
			"peer outside": func(rt *rapid.T) { p.outside() },
			"stream":       func(rt *rapid.T) { p.stream = !p.stream },
		})
		p.stream = false
		p.outside()
		w.settle()
		w.check()
		w.checkProbes()
		for i, c := range []uint64{w.stats.receives.Load(), w.stats.resent.Load(), w.stats.wildcards.Load(), w.stats.evicted.Load()} {
			sum[i] += c
		}
	})
	t.Logf("%d through queues, %d sent again; closed: %d wildcards, %d evicted", sum[0], sum[1], sum[2], sum[3])
	happened(t, sum[:]...)
}

// happened checks that some sequences have counted each event: all of them together about 20 times at least. With
// -short there are a fifth as many sequences, and sometimes none has it.
func happened(t *testing.T, counts ...uint64) {
	t.Helper()
	for i, n := range counts {
		if n == 0 && !testing.Short() {
			assert.Fail(t, "it has not happened", "count %d of %v", i, counts)
		}
	}
}

// open makes messages of a tag use a queue.
func (w *world) open(p *peer, tag uint64) {
	for range firstRequest + 1 {
		w.post(tag, exactMask, maxLen, false)
		p.send(tag, 8)
		w.settle()
	}
}

// outside makes the peer be in the middle of no message.
func (p *peer) outside() {
	for _, q := range p.byNumber {
		q.inside = false
	}
}

// checkProbes probes for messages that no receive has matched: a probe finds the first one, after the queues have
// closed for it.
func (w *world) checkProbes() {
	has := map[uint64]bool{}
	for _, v := range w.recvs {
		if v.at == hasMessage {
			has[v.id()] = true
		}
	}
	for _, mask := range []uint64{exactMask, 1, 0} {
		for tag := range uint64(4) {
			w.Probe(tag, mask)
			w.settle()
			want := uint64(0)
			for _, s := range w.peers[0].sends {
				if !has[s.id] && !s.lost() && (s.tag^tag)&mask == 0 {
					want = s.id
					break
				}
			}
			got := uint64(0)
			if n := w.Probe(tag, mask); n != nil {
				got = binary.LittleEndian.Uint64(n.Owner.data)
			} else if i := slices.IndexFunc(w.peers[0].waits, func(s *send) bool { return (s.tag^tag)&mask == 0 }); i >= 0 {
				got = w.peers[0].waits[i].id
			}
			require.Equal(w.t, want, got, "probe of tag %d, mask %x", tag, mask)
		}
	}
}
