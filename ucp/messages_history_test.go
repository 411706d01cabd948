package ucp_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
)

// TestMessageHistories: a random history of messages of all classes from a to b, of put, get and atomics, and of
// progress at either end, has the same visible result over all sets of transports with all rendezvous schemes: that of
// a serial model.
func TestMessageHistories(t *testing.T) {
	for _, set := range messageSets() {
		set.Run(t, func(t *testing.T) {
			talks := make([]*talk, len(tlsets.RndvSchemes))
			for range testenv.Rounds(1, 100) {
				rapid.Check(t, func(rt *rapid.T) {
					i := rapid.IntRange(0, len(tlsets.RndvSchemes)-1).Draw(rt, "scheme")
					if talks[i] == nil {
						talks[i] = newTalk(t, set, tlsets.RndvSchemes[i])
					}
					x := talks[i]
					talks[i] = nil // a failed one is not used again
					x.play(rt)
					talks[i] = x
				})
			}
		})
	}
}

const (
	// talkLimit limits the unreceived bytes of a history. It is less than the window, so that no message waits for a
	// receive that is posted later.
	talkLimit = 150_000
	// talkRndv is the smallest length for rendezvous, unless the scheme is auto.
	talkRndv = 300
)

// talkSizes are lengths around the limits of inline messages, bcopy and fragments.
var talkSizes = []int{0, 1, 8, 33, 248, 249, 1000, 2033, 5000, 8177, 20000}

// talk is a pair on which histories are executed.
type talk struct {
	p *ucppair.Pair
	// messagesOnly omits operations on memory.
	messagesOnly bool
	from, to     *ucp.EP // the EPs of the stream
	out, in      *ucp.Mem
	got          []activeArrival
	began        uint64 // offset of the stream at the beginning of the history

	rt     *rapid.T
	ref    reference
	player *player
	load   int // bytes that were sent
	used   int // bytes of out and in

	tags     []*sentMessage // sent messages, in order
	receives []*tagReceive
	active   []*sentMessage
	stream   []byte // bytes that were sent
	reads    []*reading
	sends    []*sentMessage // sends whose request has not completed
}

// sentMessage is a message that was sent.
type sentMessage struct {
	id     uint16
	tag    uint64
	header []byte
	data   []byte
	req    *ucp.Request
}

// tagReceive is a receive of a tagged message.
type tagReceive struct {
	tag, mask uint64
	buf       []byte
	info      ucp.TagInfo
	req       *ucp.Request
	err       error
}

// activeArrival is an active message that has arrived.
type activeArrival struct {
	id           uint16
	header, data []byte
	req          *ucp.Request       // receives the data
	kept         *ucp.ActiveMessage // not received yet
}

// reading is a receive of the stream.
type reading struct {
	buf []byte
	n   int
	req *ucp.Request
}

// Ids of active messages, by the behavior of their handlers.
const (
	talkCopied = 1 + iota
	talkKept
	talkFetched
)

func newTalk(t *testing.T, set tlsets.Set, scheme string) *talk {
	cfg := ucp.Config{RndvScheme: scheme}
	if scheme != tlsets.RndvSchemes[0] {
		cfg.RndvThresh = talkRndv
	}
	p := ucppair.New(t, set, cfg)
	x := &talk{p: p, messagesOnly: set.MessagesOnly}
	x.from, x.to = openStream(p)
	x.out, x.in = memOf(t, &p.A, talkLimit), memOf(t, &p.B, talkLimit)
	for id := uint16(talkCopied); id <= talkFetched; id++ {
		p.B.W.OnActive(id, x.onActive)
	}
	return x
}

// onActive is the handler of active messages.
func (x *talk) onActive(m *ucp.ActiveMessage) {
	h := activeArrival{id: m.ID, header: slices.Clone(m.Header)}
	switch m.ID {
	case talkKept:
		h.kept = m.Keep()
	default:
		x.receive(&h, m)
	}
	x.got = append(x.got, h)
}

// receive receives the data of an active message, in registered memory if some is left.
func (x *talk) receive(h *activeArrival, m *ucp.ActiveMessage) {
	var p *ucp.OpParams
	h.data, p = x.room(x.in, m.Length, m.ID == talkFetched)
	var err error
	h.req, err = m.Recv(h.data, p)
	assert.NoError(x.p.T, err)
}

// room returns n bytes, of mem if registered is set and some are left.
func (x *talk) room(mem *ucp.Mem, n int, registered bool) ([]byte, *ucp.OpParams) {
	if !registered || n > talkLimit-x.used {
		return make([]byte, n), nil
	}
	x.used += n
	b := mem.Bytes()[x.used-n : x.used : x.used]
	clear(b)
	return b, &ucp.OpParams{Mem: mem}
}

// play executes a history and checks the results.
func (x *talk) play(rt *rapid.T) {
	x.rt, x.load, x.used = rt, 0, 0
	x.tags, x.receives, x.active, x.stream, x.reads, x.sends, x.got = nil, nil, nil, nil, nil, nil, nil
	x.ref, x.player = reference{}, &player{p: x.p}
	x.began = bytesStreamed(x.to)
	clear(x.p.B.Mem.Bytes()[:histLen])
	for range rapid.IntRange(1, 30).Draw(rt, "length") {
		talkActs[rapid.IntRange(0, len(talkActs)-1).Draw(rt, "act")](x)
		x.progress(&x.p.A)
		x.progress(&x.p.B)
	}
	x.checkTags()
	x.checkActive()
	x.checkStream()
	x.checkMemory()
	x.checkRest()
}

func (x *talk) progress(e *ucppair.End) {
	for range rapid.IntRange(0, 3).Draw(x.rt, "progress") {
		e.W.Progress()
	}
}

// bytesStreamed returns the number of bytes of the stream that have arrived.
func bytesStreamed(e *ucp.EP) uint64 { return e.Messages().Stream().ReceiveOffset() }

// talkActs are the actions of a history.
var talkActs = []func(x *talk){
	(*talk).tagSend, (*talk).tagSend, (*talk).tagSend, (*talk).tagRecv, (*talk).tagRecv, (*talk).tagRecv,
	(*talk).tagProbe, (*talk).tagCancel, (*talk).activeSend, (*talk).activeSend, (*talk).activeSend,
	(*talk).streamSend, (*talk).streamSend, (*talk).streamRecv, (*talk).streamRecv, (*talk).sendCancel,
	(*talk).remote, (*talk).remote, (*talk).remote,
}

// message draws the data of a message.
func (x *talk) message() (data []byte, p *ucp.OpParams) {
	n := rapid.SampledFrom(talkSizes).Draw(x.rt, "n")
	if x.load+n > talkLimit {
		n = 1
	}
	x.load += n
	data, p = x.room(x.out, n, rapid.Bool().Draw(x.rt, "registered"))
	copy(data, testenv.Pattern(n, rapid.IntRange(0, 255).Draw(x.rt, "seed")))
	return data, p
}

// sent records a message and its request.
func (x *talk) sent(s *sentMessage, r *ucp.Request, err error) *sentMessage {
	require.NoError(x.rt, err)
	if s.req = r; r != nil {
		x.sends = append(x.sends, s)
	}
	return s
}

// tag draws one of a few tags, and a mask with which some of them match.
func (x *talk) tag() (tag, mask uint64) {
	tag = rapid.Uint64Range(0, 3).Draw(x.rt, "tag")
	return tag, rapid.SampledFrom([]uint64{exact, exact, 1, 2, 0}).Draw(x.rt, "mask")
}

func (x *talk) tagSend() {
	tag, _ := x.tag()
	send := x.from.TagSend
	if rapid.IntRange(0, 3).Draw(x.rt, "sync") == 0 {
		send = x.from.TagSendSync
	}
	data, p := x.message()
	s := &sentMessage{tag: tag, data: slices.Clone(data)}
	r, err := send(tag, data, p)
	x.tags = append(x.tags, x.sent(s, r, err))
}

func (x *talk) newTagReceive(tag, mask uint64) (*tagReceive, *ucp.OpParams) {
	n := rapid.SampledFrom(talkSizes).Draw(x.rt, "room")
	h := &tagReceive{tag: tag, mask: mask}
	var p *ucp.OpParams
	h.buf, p = x.room(x.in, n, rapid.Bool().Draw(x.rt, "registered"))
	x.receives = append(x.receives, h)
	return h, p
}

func (x *talk) tagRecv() {
	h, p := x.newTagReceive(x.tag())
	h.req, h.err = x.p.B.W.TagRecv(h.buf, h.tag, h.mask, &h.info, p)
}

// tagProbe probes for a message, and receives it if there is one.
func (x *talk) tagProbe() {
	tag, mask := x.tag()
	remove := rapid.Bool().Draw(x.rt, "remove")
	m, info, ok := x.p.B.W.TagProbe(tag, mask, remove)
	if !ok {
		return
	}
	h, p := x.newTagReceive(tag, mask)
	if remove {
		require.Equal(x.rt, info, m.Info())
		x.progress(&x.p.A)
		x.progress(&x.p.B)
		h.req, h.err = m.Recv(h.buf, &h.info, p)
	} else {
		h.req, h.err = x.p.B.W.TagRecv(h.buf, tag, mask, &h.info, p)
	}
	if h.req == nil {
		require.Equal(x.rt, info, h.info)
	}
}

// tagCancel cancels a receive. The model removes it.
func (x *talk) tagCancel() {
	if len(x.receives) == 0 {
		return
	}
	i := rapid.IntRange(0, len(x.receives)-1).Draw(x.rt, "which")
	if h := x.receives[i]; h.req != nil && h.req.Cancel() {
		require.ErrorIs(x.rt, h.req.Take(), ucs.ErrCanceled)
		x.receives = slices.Delete(x.receives, i, i+1)
	}
}

// sendCancel cancels the latest send if it was neither posted nor announced. The model removes it.
func (x *talk) sendCancel() {
	if len(x.sends) == 0 {
		return
	}
	s := x.sends[len(x.sends)-1]
	isIt := func(other *sentMessage) bool { return other == s }
	if s.req.WaitsForReceive() { // other tests have canceled sends of announced messages
		return
	}
	if (slices.Contains(x.tags, s) || slices.Contains(x.active, s)) && s.req.Cancel() {
		require.ErrorIs(x.rt, s.req.Take(), ucs.ErrCanceled)
		x.sends = x.sends[:len(x.sends)-1]
		x.tags, x.active = slices.DeleteFunc(x.tags, isIt), slices.DeleteFunc(x.active, isIt)
	}
}

func (x *talk) activeSend() {
	id := uint16(rapid.IntRange(talkCopied, talkFetched).Draw(x.rt, "id"))
	header := testenv.Pattern(rapid.SampledFrom([]int{0, 0, 7, 300}).Draw(x.rt, "header"), x.load)
	data, p := x.message()
	s := &sentMessage{id: id, header: slices.Clone(header), data: slices.Clone(data)}
	r, err := x.from.SendActive(id, header, data, p)
	x.active = append(x.active, x.sent(s, r, err))
}

func (x *talk) streamSend() {
	data, p := x.message()
	x.stream = append(x.stream, data...)
	r, err := x.from.StreamSend(data, p)
	x.sent(&sentMessage{}, r, err)
}

func (x *talk) streamRecv() {
	r := &reading{buf: make([]byte, 1+rapid.SampledFrom(talkSizes).Draw(x.rt, "room"))}
	var err error
	r.req, err = x.to.StreamRecv(r.buf, rapid.Bool().Draw(x.rt, "all"), &r.n, nil)
	require.NoError(x.rt, err)
	x.reads = append(x.reads, r)
}

// remote is an operation on memory.
func (x *talk) remote() {
	if !x.messagesOnly {
		x.player.play(x.rt, drawAct(x.rt), &x.ref)
	}
}

// matched returns the message of each receive, in the order in which they were posted, and the messages that match
// none. Each message matches the first unmatched receive with its tag, whether the message or the receive was first.
func (x *talk) matched() (got []*sentMessage, rest []*sentMessage) {
	got = make([]*sentMessage, len(x.receives))
	for _, s := range x.tags {
		i := slices.IndexFunc(x.receives, func(h *tagReceive) bool { return (h.tag^s.tag)&h.mask == 0 })
		for i >= 0 && got[i] != nil {
			next := slices.IndexFunc(x.receives[i+1:], func(h *tagReceive) bool { return (h.tag^s.tag)&h.mask == 0 })
			if next < 0 {
				i = -1
			} else {
				i += 1 + next
			}
		}
		if i < 0 {
			rest = append(rest, s)
		} else {
			got[i] = s
		}
	}
	return got, rest
}

// checkTags compares the results of receives with the model.
func (x *talk) checkTags() {
	got, rest := x.matched()
	for i, s := range got {
		if s != nil {
			x.receives[i].check(x, s)
		}
	}
	for i, s := range got {
		if h := x.receives[i]; s == nil {
			require.NotNil(x.rt, h.req, "receive %d", i)
			require.True(x.rt, h.req.Cancel(), "receive %d fits nothing", i)
			h.req.Release()
		}
	}
	for _, s := range rest {
		h := &tagReceive{buf: make([]byte, len(s.data))}
		h.req, h.err = x.p.B.W.TagRecv(h.buf, 0, 0, &h.info, nil)
		h.check(x, s)
	}
	require.Zero(x.rt, x.p.B.W.Tags().Unexpected())
}

// check waits for a receive and checks that it has received that message.
func (h *tagReceive) check(x *talk, s *sentMessage) {
	err := x.p.Finish(h.req, h.err)
	n := min(len(h.buf), len(s.data))
	if n < len(s.data) {
		require.ErrorIs(x.rt, err, ucs.ErrTruncated)
	} else {
		require.NoError(x.rt, err)
	}
	require.Equal(x.rt, s.tag, h.info.Tag)
	require.Equal(x.rt, len(s.data), h.info.Length)
	require.Same(x.rt, x.to, h.info.From)
	testenv.RequireBytes(x.p.T, s.data[:n], h.buf[:n])
	testenv.RequireZero(x.p.T, h.buf[n:], "behind the message")
}

// checkActive compares the active messages that have arrived with those that were sent.
func (x *talk) checkActive() {
	x.p.Until(func() bool { return len(x.got) >= len(x.active) })
	require.Len(x.rt, x.got, len(x.active))
	for i, s := range x.active {
		h := &x.got[i]
		if h.kept != nil {
			x.receive(h, h.kept)
			h.kept.Release()
		}
		require.NoError(x.rt, x.p.Finish(h.req, nil))
		require.Equal(x.rt, s.id, h.id)
		testenv.RequireBytes(x.p.T, s.header, h.header)
		testenv.RequireBytes(x.p.T, s.data, h.data)
	}
}

// checkStream compares the bytes that have arrived with those that were sent.
func (x *talk) checkStream() {
	x.p.Until(func() bool { return bytesStreamed(x.to)-x.began == uint64(len(x.stream)) })
	var got []byte
	for _, r := range x.reads {
		if r.req != nil {
			r.req.Cancel()
			r.req.Release()
		}
		got = append(got, r.buf[:r.n]...)
	}
	got = append(got, readStream(x.p, x.to, len(x.stream)-len(got))...)
	testenv.RequireBytes(x.p.T, x.stream, got)
	require.Nil(x.rt, x.to.StreamData())
}

// checkMemory compares the memory of b, and the bytes that were read from it, with the model.
func (x *talk) checkMemory() {
	require.NoError(x.rt, x.p.Flush())
	for _, r := range x.player.reqs {
		require.NoError(x.rt, x.p.Finish(r, nil))
	}
	for _, check := range x.player.results {
		check(x.rt)
	}
	testenv.RequireBytes(x.p.T, x.ref.mem[:], x.p.B.Mem.Bytes()[:histLen])
}

// checkRest checks that no requests, charges and parts of messages remain after everything was received.
func (x *talk) checkRest() {
	for _, s := range x.sends {
		require.NoError(x.rt, x.p.Finish(s.req, nil))
	}
	out, in := x.from.Messages(), x.to.Messages()
	x.p.Until(func() bool { in.UpdateDue(); return out.Credit+in.Due == in.Size })
	require.Zero(x.rt, in.Held)
	require.Nil(x.rt, in.Inbound())
	x.p.Until(func() bool { return ucp.RequestsInUse(x.p.A.W) == 0 && ucp.RequestsInUse(x.p.B.W) == 0 })
	require.Zero(x.rt, x.p.A.W.RemoteRequests().Len())
	require.Zero(x.rt, x.p.B.W.RemoteRequests().Len())
}
