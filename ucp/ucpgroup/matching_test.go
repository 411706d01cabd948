package ucpgroup

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
)

// The messages of the receives of one rank are compared with a matcher with two lists: in two communicators, from
// several ranks, with wildcards, synchronous sends, probes, cancels and buffers that are too short. Messages of
// different ranks may arrive in any order, so each has arrived before the next step.

// letter is a message of the model.
type letter struct {
	comm, source, tag int
	number            int // identifies it
	size              int
	sync              *Request // of a synchronous send
}

// post is a receive of the model.
type post struct {
	comm, source, tag int
	req               *Request
	buf               []byte
	want              *letter // nil: none yet
}

func (p *post) takes(l *letter) bool {
	return p.comm == l.comm && (p.source == AnySource || p.source == l.source) && (p.tag == AnyTag || p.tag == l.tag)
}

// history is ranks with the model of the receiving rank.
type history struct {
	t      *testing.T
	x      *stepped
	comms  [2][]*Comm // by rank in the world
	mark   []*Comm    // for markers, which show that a message has arrived
	rng    *rand.Rand
	posts  []*post   // without a message
	kept   []*letter // without a receive
	ended  []*post   // with a message
	sends  []*Request
	number int
}

const (
	receiver  = 2 // rank that receives; it sends to itself too
	modelTags = 3
)

var letterSizes = []int{8, 9, 200, 3000, 9000, 40_000}

func TestMatching_Serial(t *testing.T) {
	for _, tls := range sets {
		t.Run(tls, func(t *testing.T) {
			x := newStepped(t, tls, 4)
			require.NoError(t, x.connected())
			context := uint16(10)
			for range testenv.Rounds(1, 20) {
				rapid.Check(t, func(rt *rapid.T) {
					h := &history{t: t, x: x, rng: rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 2))}
					h.open(context)
					context = (context+3)%(MaxComms-20) + 10
					for range rapid.IntRange(1, 60).Draw(rt, "steps") {
						h.step()
					}
					h.finish()
				})
			}
		})
	}
}

// open makes two communicators of the same ranks, the second one in another order, and one more.
func (h *history) open(context uint16) {
	ranks := allRanks(len(h.x.groups))
	for i := range h.comms {
		h.comms[i] = commsOf(h.x, context+uint16(i), slices.Clone(ranks))
		slices.Reverse(ranks)
	}
	h.mark = commsOf(h.x, context+2, ranks)
}

// commsOf makes a communicator of ranks. The result is by the rank in the world.
func commsOf(x *stepped, context uint16, ranks []int32) []*Comm {
	comms := make([]*Comm, len(x.groups))
	for at, q := range ranks {
		comms[q] = newComm(x.groups[q], context, at, ranks)
	}
	return comms
}

// rankIn returns the rank in a communicator of a rank in the world.
func (h *history) rankIn(comm, world int) int { return h.comms[comm][world].Rank() }

func (h *history) step() {
	switch k := h.rng.IntN(10); {
	case k < 4:
		h.send()
	case k < 8:
		h.post()
	case k == 8:
		h.probe()
	default:
		h.cancel()
	}
}

// send sends a message, and a marker after it, and waits for the marker.
func (h *history) send() {
	h.number++
	comm, from := h.rng.IntN(2), h.rng.IntN(len(h.x.groups))
	l := &letter{comm: comm, source: h.rankIn(comm, from), tag: h.rng.IntN(modelTags), number: h.number, size: letterSizes[h.rng.IntN(len(letterSizes))]}
	send, sync := (*Comm).Isend, h.rng.IntN(4) == 0
	if sync {
		send = (*Comm).IsendSync
	}
	r, err := send(h.comms[comm][from], h.rankIn(comm, receiver), l.tag, l.bytes(), nil)
	require.NoError(h.t, err)
	h.sends = append(h.sends, r)
	if sync {
		l.sync = r
	}
	h.give(l)
	out, err := h.mark[from].Isend(receiver, 0, nil, nil)
	require.NoError(h.t, err)
	in, err := h.mark[receiver].Irecv(from, 0, nil, nil)
	require.NoError(h.t, err)
	require.NoError(h.t, h.x.ended(out, in))
}

// bytes returns the data of a message: its number, and a pattern of it.
func (l *letter) bytes() []byte {
	b := make([]byte, l.size)
	for i := range b {
		b[i] = byte(l.number + i)
	}
	binary.LittleEndian.PutUint64(b, uint64(l.number))
	return b
}

// give matches a message with the first receive, or stores it.
func (h *history) give(l *letter) {
	for i, p := range h.posts {
		if p.takes(l) {
			p.want = l
			h.posts = slices.Delete(h.posts, i, i+1)
			h.ended = append(h.ended, p)
			return
		}
	}
	h.kept = append(h.kept, l)
}

// first returns the first stored message that a receive matches, or -1.
func (h *history) first(p *post) int { return slices.IndexFunc(h.kept, p.takes) }

// draw draws a source and a tag, perhaps wildcards.
func (h *history) draw() *post {
	p := &post{comm: h.rng.IntN(2), source: h.rng.IntN(len(h.x.groups)), tag: h.rng.IntN(modelTags)}
	if h.rng.IntN(3) == 0 {
		p.source = AnySource
	}
	if h.rng.IntN(3) == 0 {
		p.tag = AnyTag
	}
	return p
}

// post posts a receive.
func (h *history) post() {
	p := h.draw()
	p.buf = make([]byte, letterSizes[h.rng.IntN(len(letterSizes))])
	var err error
	p.req, err = h.comms[p.comm][receiver].Irecv(p.source, p.tag, p.buf, nil)
	require.NoError(h.t, err)
	if i := h.first(p); i >= 0 {
		p.want = h.kept[i]
		h.kept = slices.Delete(h.kept, i, i+1)
		h.ended = append(h.ended, p)
		return
	}
	require.False(h.t, p.req.Done())
	h.posts = append(h.posts, p)
}

// probe probes for a message.
func (h *history) probe() {
	p := h.draw()
	st, found, err := h.comms[p.comm][receiver].Iprobe(p.source, p.tag)
	require.NoError(h.t, err)
	i := h.first(p)
	require.Equal(h.t, i >= 0, found)
	if found {
		require.Equal(h.t, h.kept[i].status(), st)
	}
}

func (l *letter) status() Status { return Status{Source: l.source, Tag: l.tag, Len: l.size} }

// cancel cancels an unmatched receive.
func (h *history) cancel() {
	if len(h.posts) == 0 {
		return
	}
	i := h.rng.IntN(len(h.posts))
	require.True(h.t, h.posts[i].req.Cancel())
	_, err := h.posts[i].req.take()
	require.ErrorIs(h.t, err, ucs.ErrCanceled)
	h.posts = slices.Delete(h.posts, i, i+1)
}

// finish compares the receives, and receives the other messages in order.
func (h *history) finish() {
	for len(h.posts) > 0 {
		h.cancel()
	}
	for _, l := range h.kept {
		require.False(h.t, l.sync != nil && l.sync.Done(), "a synchronous send has ended that nobody has received")
	}
	for len(h.kept) > 0 {
		h.post()
		for len(h.posts) > 0 {
			h.cancel()
		}
	}
	for _, p := range h.ended {
		h.compare(p)
	}
	require.NoError(h.t, h.x.ended(h.sends...))
}

// compare compares the result of a receive.
func (h *history) compare(p *post) {
	h.x.until(p.req.Done)
	st, err := p.req.take()
	require.Equal(h.t, p.want.status(), st)
	if p.want.size > len(p.buf) {
		require.ErrorIs(h.t, err, ucs.ErrTruncated)
	} else {
		require.NoError(h.t, err)
	}
	n := min(p.want.size, len(p.buf))
	require.True(h.t, slices.Equal(p.want.bytes()[:n], p.buf[:n]), "message %d", p.want.number)
}
