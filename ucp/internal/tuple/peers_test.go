package tuple

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/ucs"
)

// die ends the connection of a peer on both sides. Messages in flight arrive first if late is set, and are lost
// otherwise.
func (p *peer) die(late bool) {
	if p.dead {
		return
	}
	p.Sender.End(ucs.StatusConnReset)
	for _, x := range p.conns {
		x.cut(ucs.StatusConnReset)
	}
	p.outside()
	for late && p.arrive() {
	}
	p.dead = true
	for _, e := range p.outbox {
		if e.send != nil {
			e.send.ended = append(e.send.ended, ucs.StatusConnReset)
		}
	}
	for _, s := range p.waits {
		s.ended = append(s.ended, ucs.StatusConnReset)
	}
	p.waits, p.outbox, p.there, p.back = nil, nil, nil, nil
	p.Source.End()
}

// sentBy returns the message of a receive, with its number among those of its peer.
func (w *world) sentBy() map[uint64]*recv {
	has := map[uint64]*recv{}
	for _, v := range w.recvs {
		if v.at == hasMessage {
			require.Nil(w.t, has[v.id()], "message %d came twice", v.id())
			has[v.id()] = v
		}
	}
	return has
}

// checkOrder checks that no message was overtaken: a receive has the first message of a peer that matches and that no
// earlier receive has, and a message has the first receive that matches and had none. Messages of a dead peer may be
// lost.
func (w *world) checkOrder() {
	has := w.sentBy()
	for _, p := range w.peers {
		for k, s := range p.sends {
			require.LessOrEqual(w.t, len(s.ended), 1, "message %d ends once", s.id)
			if !p.dead && has[s.id] != nil {
				require.Equal(w.t, []ucs.Status{ucs.StatusOK}, s.ended, "message %d was received", s.id)
			}
			if p.dead {
				require.Len(w.t, s.ended, 1, "message %d of a dead peer", s.id)
			}
			w.checkEarlier(has, p, k)
		}
	}
	require.False(w.t, w.Paused())
	queues, steady := w.Queues()
	if !steady { // a queue is offered, and the sender has sent no message of its tag since others waited
		require.True(w.t, slices.ContainsFunc(w.peers, func(p *peer) bool { return p.limit < unlimited || p.waited }))
	}
	require.LessOrEqual(w.t, queues, w.cfg.Max)
}

// checkEarlier checks that no receive before that of the k-th message of a peer, and no receive at all if the message
// has none, matches the message and has a later one of the peer, or none.
func (w *world) checkEarlier(has map[uint64]*recv, p *peer, k int) {
	s := p.sends[k]
	got := has[s.id]
	if s.lost() || got == nil && p.dead {
		return
	}
	for _, v := range w.recvs {
		if v == got {
			return
		}
		if v.at == wasCanceled || (s.tag^v.node.Tag)&v.node.Mask != 0 {
			continue
		}
		require.Equal(w.t, hasMessage, v.at, "receive %d of tag %d, mask %x, has nothing, and message %d of tag %d is there", v.order, v.node.Tag, v.node.Mask, s.id, s.tag)
		for _, later := range p.sends[k+1:] {
			require.NotEqual(w.t, later.id, v.id(), "message %d of tag %d has been overtaken", s.id, s.tag)
		}
	}
}

// TestModel_Peers: with several senders of the same tags, some of which die at any time, no message is overtaken or
// received twice, and each send completes once.
func TestModel_Peers(t *testing.T) {
	var others, through, died uint64
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(rt, settings(rt), rapid.IntRange(2, 3).Draw(rt, "peers"))
		any := func(rt *rapid.T) *peer { return w.peers[rapid.IntRange(0, len(w.peers)-1).Draw(rt, "peer")] }
		for _, p := range w.peers {
			p.prompt, p.unsure = rapid.Bool().Draw(rt, "prompt"), rapid.Bool().Draw(rt, "unsure")
			p.limit = rapid.SampledFrom([]int{unlimited, 1, 2, 5, 20}).Draw(rt, "limit")
			w.open(p, rapid.Uint64Range(0, 3).Draw(rt, "open"))
		}
		tag := rapid.Uint64Range(0, 3)
		steps := w.steps()
		step := func(rt *rapid.T) {
			for n := rapid.IntRange(1, 12).Draw(rt, "steps"); n > 0; n-- {
				steps[rapid.IntRange(0, len(steps)-1).Draw(rt, "step")]()
			}
		}
		send := func(rt *rapid.T) {
			if p := any(rt); !p.dead {
				p.send(tag.Draw(rt, "tag"), rapid.SampledFrom([]int{8, 8, 8, maxLen, maxLen + 1}).Draw(rt, "len"))
			}
		}
		post := func(rt *rapid.T) {
			w.post(tag.Draw(rt, "tag"), rapid.SampledFrom(masks).Draw(rt, "mask"), 8, rapid.IntRange(0, 9).Draw(rt, "typed") == 0)
		}
		rt.Repeat(map[string]func(*rapid.T){
			"send": send, "send again": send, "send more": send, "post": post, "post again": post, "post more": post,
			"step": step, "step again": step, "step more": step,
			"settle": func(*rapid.T) {
				for _, p := range w.peers {
					p.outside()
				}
				w.settle()
			},
			"cancel receive": func(rt *rapid.T) {
				if len(w.recvs) > 0 {
					w.cancel(w.recvs[rapid.IntRange(0, len(w.recvs)-1).Draw(rt, "which")])
				}
			},
			"cancel send": func(rt *rapid.T) {
				if p := any(rt); len(p.sends) > 0 {
					p.sends[rapid.IntRange(0, len(p.sends)-1).Draw(rt, "which")].cancel()
				}
			},
			"probe": func(rt *rapid.T) { w.Probe(tag.Draw(rt, "tag"), rapid.SampledFrom(masks).Draw(rt, "mask")) },
			"peer inside": func(rt *rapid.T) {
				for _, q := range any(rt).byNumber {
					q.inside = true
				}
			},
			"stream": func(rt *rapid.T) {
				p := any(rt)
				p.stream, p.waited = !p.stream, true
			},
			"peer dies": func(rt *rapid.T) {
				if rapid.IntRange(0, 7).Draw(rt, "really") == 0 {
					any(rt).die(rapid.Bool().Draw(rt, "late"))
					died++
				}
			},
		})
		for _, p := range w.peers {
			p.stream = false
			p.outside()
		}
		w.settle()
		w.checkOrder()
		others += w.stats.others.Load()
		through += w.stats.receives.Load()
	})
	t.Logf("%d through queues, %d closed for another sender, %d died", through, others, died)
	happened(t, others, through, died)
}
