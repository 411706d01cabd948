package match

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// exact is the mask of a receive for one tag.
const exact = ^uint64(0)

// recv and msg are the records of tests; their owners are their numbers.
type (
	recv  = Recv[int]
	msg   = Msg[int]
	table = Table[int, int]
)

func newTable() *table {
	t := &table{}
	t.Init()
	return t
}

// tagBits are the bits in which the tags of histories differ: at both ends and in the middle.
var tagBits = [...]uint64{1, 1 << 20, 1 << 40, 1 << 63}

// spread puts the low four bits of n into tagBits, and the rest into bits that all tags share.
func spread(n int) (tag uint64) {
	for i, b := range tagBits {
		if n&(1<<i) != 0 {
			tag |= b
		}
	}
	return tag
}

// masks are all masks that distinguish some of the tags, more than there are indexes, besides 0 and all ones.
func masks() []uint64 {
	m := []uint64{exact, 0}
	for n := 1; n < 1<<len(tagBits); n++ {
		m = append(m, spread(n))
	}
	return m
}

// serial is a simple table, the model.
type serial struct {
	receives []*recv
	messages []*msg
}

func (s *serial) arrive(tag uint64) *recv {
	for i, r := range s.receives {
		if (r.Tag^tag)&r.Mask == 0 {
			s.receives = slices.Delete(s.receives, i, i+1)
			return r
		}
	}
	return nil
}

func (s *serial) peek(tag, mask uint64) *msg {
	for _, m := range s.messages {
		if (m.Tag^tag)&mask == 0 {
			return m
		}
	}
	return nil
}

// drop removes an element of a list, and reports whether the list had it.
func drop[E any](list *[]*E, e *E) bool {
	i := slices.Index(*list, e)
	if i >= 0 {
		*list = slices.Delete(*list, i, i+1)
	}
	return i >= 0
}

// history is a table, its model, and removed entries.
type history struct {
	t     *rapid.T
	table *table
	model serial
	masks []uint64 // those in use
	gone  []*recv  // were posted, may be posted again
	past  []*msg   // removed messages
}

func (h *history) tag() uint64 { return spread(rapid.IntRange(0, 15).Draw(h.t, "tag")) }
func (h *history) mask() uint64 {
	return rapid.SampledFrom(h.masks).Draw(h.t, "mask")
}

// arrive: a message matches a receive or becomes unexpected.
func (h *history) arrive() {
	tag := h.tag()
	want := h.model.arrive(tag)
	if h.table.Expects() && h.table.First().Ready(tag) && rapid.Bool().Draw(h.t, "in place") {
		require.Same(h.t, want, h.table.First())
		h.table.TakeFirst(want)
	} else {
		require.Same(h.t, want, h.table.Arrive(tag))
	}
	if want != nil {
		h.gone = append(h.gone, want)
		return
	}
	m := &msg{}
	if n := len(h.past); n > 0 {
		m, h.past = h.past[n-1], h.past[:n-1]
	}
	m.Tag = tag
	h.table.Keep(m)
	h.model.messages = append(h.model.messages, m)
}

// receive: a receive matches a message or is posted.
func (h *history) receive() {
	tag, mask := h.tag(), h.mask()
	want := h.model.peek(tag, mask)
	require.Same(h.t, want, h.table.Take(tag, mask))
	if want != nil {
		drop(&h.model.messages, want)
		h.past = append(h.past, want)
		return
	}
	r := &recv{}
	if n := len(h.gone); n > 0 {
		r, h.gone = h.gone[n-1], h.gone[:n-1]
	}
	r.Tag, r.Mask = tag, mask
	h.table.Expect(r)
	h.model.receives = append(h.model.receives, r)
}

// probe: a probe finds a message, which is removed later.
func (h *history) probe() {
	tag, mask := h.tag(), h.mask()
	want := h.model.peek(tag, mask)
	require.Same(h.t, want, h.table.Peek(tag, mask))
	if want != nil && rapid.Bool().Draw(h.t, "take") {
		require.True(h.t, h.table.Remove(want))
		drop(&h.model.messages, want)
		h.past = append(h.past, want)
	}
}

// cancel: a receive is removed; it may have been removed before.
func (h *history) cancel() {
	all := slices.Concat(h.model.receives, h.gone)
	if len(all) == 0 {
		return
	}
	r := rapid.SampledFrom(all).Draw(h.t, "receive")
	was := drop(&h.model.receives, r)
	require.Equal(h.t, was, h.table.Cancel(r))
	if was {
		h.gone = append(h.gone, r)
	}
}

// lose: a message is removed; it may have been removed before.
func (h *history) lose() {
	all := slices.Concat(h.model.messages, h.past)
	if len(all) == 0 {
		return
	}
	m := rapid.SampledFrom(all).Draw(h.t, "message")
	was := drop(&h.model.messages, m)
	require.Equal(h.t, was, h.table.Remove(m))
	if was {
		h.past = append(h.past, m)
	}
}

// lookEvery is the number of steps of a history between checks of all of it.
const lookEvery = 8

// look compares the table with the model.
func (h *history) look() {
	require.Equal(h.t, len(h.model.receives) > 0, h.table.Expects())
	require.Equal(h.t, len(h.model.messages), h.table.Unexpected())
	require.True(h.t, slices.Equal(h.model.receives, slices.Collect(h.table.Receives())))
	require.True(h.t, slices.Equal(h.model.messages, slices.Collect(h.table.Messages())))
	h.table.check(h.t)
}

// TestTable_AsTheModel: a history has the same outcome as with two lists. The ratio of receives and messages varies, so
// that either side becomes long.
func TestTable_AsTheModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		h := &history{t: rt, table: newTable()}
		h.masks = rapid.SliceOfNDistinct(rapid.SampledFrom(masks()), 1, 16, rapid.ID[uint64]).Draw(rt, "masks")
		arrivals := rapid.IntRange(1, 12).Draw(rt, "arrivals")
		for i := range rapid.IntRange(1, 200).Draw(rt, "length") {
			switch n := rapid.IntRange(0, 16).Draw(rt, "what"); {
			case n < arrivals:
				h.arrive()
			case n < 13:
				h.receive()
			case n < 15:
				h.probe()
			case n < 16:
				h.cancel()
			default:
				h.lose()
			}
			if i%lookEvery == 0 {
				h.look()
			}
		}
		h.look()
	})
}

// TestTable_LongAsTheModel: the same with steps that need no search, so that both sides are long at the same time:
// receives are posted and messages added without matching.
func TestTable_LongAsTheModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		h := &history{t: rt, table: newTable(), masks: masks()}
		h.fill(rapid.Uint64().Draw(rt, "seed"))
		h.look()
		for range rapid.IntRange(1, 200).Draw(rt, "length") {
			switch rapid.IntRange(0, 5).Draw(rt, "what") {
			case 0:
				h.arrive()
			case 1:
				h.receive()
			case 2:
				h.probe()
			case 3:
				h.cancel()
			default:
				h.lose()
			}
		}
		h.look()
	})
}

// fill makes both sides long.
func (h *history) fill(seed uint64) {
	rng := newRand(seed)
	for range 100 {
		r := &recv{Tag: spread(rng.IntN(16)), Mask: h.masks[rng.IntN(len(h.masks))]}
		h.table.Expect(r)
		h.model.receives = append(h.model.receives, r)
		m := &msg{Tag: spread(rng.IntN(16))}
		h.table.Keep(m)
		h.model.messages = append(h.model.messages, m)
	}
}
