package ucp_test

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
)

// orderModel is a worker with several peers without credit, and the state of a serial matcher.
type orderModel struct {
	t       *rapid.T
	b       ucppair.End
	senders []ucppair.End
	recvs   []*orderRecv
	msgs    [][]*orderMsg // by sender
	posted  int
	protos  orderProtos
	junk    uint64         // number of the latest message that uses credit, if senders use tuple queues
	streams []*ucp.Request // for each sender, the stream that lacks credit; nil if there is none
}

// orderProtos are the values of Config.TagProto.
type orderProtos struct{ sender, receiver string }

// queues reports whether messages may use tuple queues.
func (p orderProtos) queues() bool { return p.sender != "" && p.receiver != "" }

// orderRecv is a receive.
type orderRecv struct {
	tag, mask uint64
	order     int
	req       *ucp.Request
	info      ucp.TagInfo
	buf       []byte
	got       *orderMsg // nil: none yet
	cancels   bool      // Cancel was called
	canceled  bool
}

// orderMsg is a message, whose data begins with its sender and number.
type orderMsg struct {
	from, number int
	tag          uint64
	size         int
	req          *ucp.Request
	hidden       bool       // behind a stream that lacks credit
	recv         *orderRecv // that has received it
	canceled     bool
}

const (
	orderJunk  = 99 // tag of the messages that use all credit
	orderTags  = 4
	orderSizes = 20_000

	// settleSteps is far above the number of progress steps of all tests.
	settleSteps = 100_000
)

func (r *orderRecv) fits(tag uint64) bool { return (r.tag^tag)&r.mask == 0 }

// newOrderModel makes workers, connects them, opens tuple queues, and uses all credit of the senders.
func newOrderModel(t *testing.T, rt *rapid.T, set tlsets.Set, protos orderProtos, senders int) *orderModel {
	m := &orderModel{t: rt, protos: protos, streams: make([]*ucp.Request, senders)}
	c, _ := set.Open(t)
	cfg := ucp.Config{TLS: set.TLS, Costs: ucp.CostsDeclared, RndvThresh: 4096, EagerWindow: ucp.FirstWindow, TagProto: protos.receiver, TupleqMax: 2}
	m.b.Open(rt, cfg, c) // rt: its workers close before the next history, or the next attempt to shorten one
	m.senders, m.msgs = make([]ucppair.End, senders), make([][]*orderMsg, senders)
	cfg.TagProto = protos.sender
	for i := range m.senders {
		s := &m.senders[i]
		s.Open(rt, cfg, c)
		var err error
		s.EP, err = s.W.NewEP(m.b.W.Address(), ucp.EPConfig{})
		require.NoError(rt, err)
	}
	m.openQueues()
	for i := range m.senders {
		s := &m.senders[i]
		if protos.queues() && rapid.Bool().Draw(rt, "has credit") {
			continue
		}
		for k := 0; s.EP.WaitingMessages() == 0 || k < 3; k++ {
			require.Less(rt, k, settleSteps, "the sender does not run out of credit")
			m.send(i, m.junkTag(), 0)
			if k%16 == 0 {
				m.settle()
			}
		}
		m.settle()
	}
	return m
}

// openQueues makes messages of some tags use tuple queues, and sends some messages through them.
func (m *orderModel) openQueues() {
	if !m.protos.queues() {
		return
	}
	for tag := range uint64(orderTags) {
		if from := rapid.IntRange(-1, len(m.senders)-1).Draw(m.t, "sender of a queue"); from >= 0 {
			for range 4 {
				r := m.recv(tag, exact)
				m.send(from, tag, 16)
				m.settle()
				require.Equal(m.t, []*orderRecv{r}, m.collect())
			}
			for range rapid.SampledFrom([]int{0, 3, 60}).Draw(m.t, "in the queue") {
				m.send(from, tag, 16)
			}
			m.settle()
		}
	}
}

// junkTag returns the tag of the next message that uses credit. With tuple queues each has a tag of its own, and so no queue.
func (m *orderModel) junkTag() uint64 {
	if m.protos.sender == "" {
		return orderJunk
	}
	m.junk++
	return m.junk<<junkBits | orderJunk
}

// junkBits are the bits of a tag from junkTag that are equal in all of them.
const junkBits = 8

func (m *orderModel) step() (n int) {
	n = m.b.W.Progress()
	for i := range m.senders {
		n += m.senders[i].W.Progress()
	}
	return n
}

// settle makes progress until nothing is in flight. A message may be reserved then (see lapse).
func (m *orderModel) settle() {
	for steps, idle := 0, 0; idle < 4; steps, idle = steps+1, idle+1 {
		if m.step() > 0 {
			idle = 0
		}
		if steps == settleSteps {
			m.fail("something is under way for ever")
		}
	}
}

// lapse makes progress until no message is reserved for a probe: the receiver does not query the sender of a reserved
// message for another one.
func (m *orderModel) lapse() {
	m.settle()
	for rounds := 0; reserved(m.b.W) > 0; rounds++ {
		if rounds > ucp.ReservedRounds {
			m.fail("a message is reserved for ever")
		}
		m.b.W.Progress()
	}
	m.settle()
}

// fail fails the test, and logs the state of all workers: when a history is shortened, only failures with the same text
// are the same.
func (m *orderModel) fail(what string) {
	m.t.Logf("receiver: %s", m.b.W.State())
	for i := range m.senders {
		m.t.Logf("sender %d: %s", i, m.senders[i].W.State())
	}
	m.t.Fatal(what)
}

func (m *orderModel) send(from int, tag uint64, size int) *orderMsg {
	x := &orderMsg{from: from, number: len(m.msgs[from]), tag: tag, size: max(size, 16)}
	data := make([]byte, x.size)
	binary.LittleEndian.PutUint64(data, uint64(from))
	binary.LittleEndian.PutUint64(data[8:], uint64(x.number))
	var err error
	if size%2 == 1 {
		x.req, err = m.senders[from].EP.TagSendSync(tag, data, nil)
	} else {
		x.req, err = m.senders[from].EP.TagSend(tag, data, nil)
	}
	require.NoError(m.t, err)
	x.hidden = m.streams[from] != nil
	m.msgs[from] = append(m.msgs[from], x)
	return x
}

// stream sends a stream that lacks credit, or reads it: messages behind it wait until then.
func (m *orderModel) stream() {
	i := rapid.IntRange(0, len(m.senders)-1).Draw(m.t, "sender")
	if m.streams[i] != nil {
		m.readStream(i)
		return
	}
	var err error
	m.streams[i], err = m.senders[i].EP.StreamSend(make([]byte, orderStream), nil)
	require.NoError(m.t, err)
	require.NotNil(m.t, m.streams[i])
}

// orderStream is the length of a stream, which exceeds the window.
const orderStream = 64 << 10

// readStreams reads the streams of all senders.
func (m *orderModel) readStreams() {
	for i := range m.streams {
		m.readStream(i)
	}
}

func (m *orderModel) readStream(i int) {
	if m.streams[i] == nil {
		return
	}
	m.settle() // it connects first
	var n int
	r, err := m.b.W.EPs().Find(m.senders[i].EP.Handshake().RemoteEP()).StreamRecv(make([]byte, orderStream), true, &n, nil)
	require.NoError(m.t, err)
	for steps := 0; r != nil && !r.Done(); steps++ { // tagged messages before the stream may use all credit
		m.settle()
		if r.Done() {
			break
		}
		if steps > len(slices.Concat(m.msgs...)) {
			m.fail("a stream is not sent completely")
		}
		m.receiveAny()
	}
	require.NoError(m.t, r.Take())
	m.settle()
	require.NoError(m.t, m.streams[i].Take())
	m.streams[i] = nil
	for _, x := range m.msgs[i] {
		x.hidden = false
	}
}

// receiveAny receives a message of any sender.
func (m *orderModel) receiveAny() {
	m.recv(0, 0)
	m.settle()
	m.collect()
}

func (m *orderModel) drawSend() *orderMsg {
	tag := rapid.Uint64Range(0, orderTags-1).Draw(m.t, "tag")
	if rapid.IntRange(0, 9).Draw(m.t, "junk") == 0 {
		tag = m.junkTag()
	}
	return m.send(rapid.IntRange(0, len(m.senders)-1).Draw(m.t, "sender"), tag, rapid.SampledFrom([]int{16, 17, 1000, 5001, orderSizes}).Draw(m.t, "size"))
}

// drawRecv posts a receive for some tags, or for the messages that use the credit.
func (m *orderModel) drawRecv() *orderRecv {
	tag, mask := rapid.Uint64Range(0, orderTags-1).Draw(m.t, "tag"), rapid.SampledFrom([]uint64{exact, exact, 1, 2, orderTags - 1, 0}).Draw(m.t, "mask")
	if rapid.IntRange(0, 3).Draw(m.t, "junk") == 0 {
		tag, mask = orderJunk, 1<<junkBits-1
	}
	return m.recv(tag, mask)
}

// recv posts a receive.
func (m *orderModel) recv(tag, mask uint64) *orderRecv {
	r := &orderRecv{tag: tag, mask: mask, order: m.posted, buf: make([]byte, orderSizes+1)}
	m.posted++
	var err error
	r.req, err = m.b.W.TagRecv(r.buf, r.tag, r.mask, &r.info, nil)
	require.NoError(m.t, err)
	m.recvs = append(m.recvs, r)
	return r
}

// collect records the receives that have completed since the last call.
func (m *orderModel) collect() (ended []*orderRecv) {
	for _, r := range m.recvs {
		if r.got != nil || r.canceled || r.req != nil && !r.req.Done() {
			continue
		}
		if r.req != nil {
			err := r.req.Take()
			if r.cancels && err != nil {
				require.ErrorIs(m.t, err, ucs.ErrCanceled)
				r.canceled = true
				continue
			}
			require.NoError(m.t, err)
		}
		from, number := binary.LittleEndian.Uint64(r.buf), binary.LittleEndian.Uint64(r.buf[8:])
		x := m.msgs[from][number]
		require.Nil(m.t, x.recv, "two receives have matched a message")
		require.False(m.t, x.canceled, "a receive has matched a canceled message")
		require.True(m.t, r.fits(x.tag))
		require.Equal(m.t, ucp.TagInfo{Tag: x.tag, Length: x.size, From: r.info.From}, r.info)
		r.got, x.recv = x, r
		ended = append(ended, r)
	}
	return ended
}

// first returns the message of a sender that a receive matches; nil if there is none.
func (m *orderModel) first(from int, r *orderRecv) *orderMsg {
	for _, x := range m.msgs[from] {
		if x.recv == nil && !x.canceled && r.fits(x.tag) {
			if x.hidden {
				return nil
			}
			return x
		}
	}
	return nil
}

// firsts returns the messages that a receive may match: the first one of each sender.
func (m *orderModel) firsts(r *orderRecv) (all []*orderMsg) {
	for i := range m.senders {
		if x := m.first(i, r); x != nil {
			all = append(all, x)
		}
	}
	return all
}

// cancel cancels a receive.
func (m *orderModel) cancel() *orderRecv {
	var pending []*orderRecv
	for _, r := range m.recvs {
		if r.got == nil && !r.canceled {
			pending = append(pending, r)
		}
	}
	if len(pending) == 0 {
		return nil
	}
	r := pending[rapid.IntRange(0, len(pending)-1).Draw(m.t, "receive")]
	if r.req != nil && !r.req.Done() {
		m.cancelRecv(r)
	}
	return r
}

// cancelRecv cancels a receive that is not complete. It returns false if a message has matched, or if a tuple queue returns the
// receive later.
func (m *orderModel) cancelRecv(r *orderRecv) bool {
	r.cancels = true
	if !r.req.Cancel() {
		return false
	}
	require.ErrorIs(m.t, r.req.Take(), ucs.ErrCanceled)
	r.canceled = true
	return true
}

// cancelSend cancels a message whose send has not completed.
func (m *orderModel) cancelSend() {
	var pending []*orderMsg
	for _, msgs := range m.msgs {
		for _, x := range msgs {
			if x.req != nil && !x.req.Done() && x.tag%(1<<junkBits) != orderJunk {
				pending = append(pending, x)
			}
		}
	}
	if len(pending) == 0 {
		return
	}
	x := pending[rapid.IntRange(0, len(pending)-1).Draw(m.t, "message")]
	x.req.Cancel()
	m.settle()
	x.canceled = x.req.Done() && x.req.Status() == ucs.StatusCanceled
}

// finish receives all messages that are left, and waits for all requests.
func (m *orderModel) finish() {
	m.readStreams()
	m.collect()
	for _, r := range m.recvs {
		if r.got == nil && !r.canceled {
			require.True(m.t, m.cancelRecv(r) || m.protos.queues())
		}
	}
	m.settle()
	require.Empty(m.t, m.collect())
	left := 0
	for _, msgs := range m.msgs {
		for _, x := range msgs {
			if x.recv == nil && !x.canceled {
				left++
			}
		}
	}
	for range left {
		r := &orderRecv{order: m.posted, buf: make([]byte, orderSizes+1)}
		m.posted++
		var err error
		r.req, err = m.b.W.TagRecv(r.buf, 0, 0, &r.info, nil)
		require.NoError(m.t, err)
		m.recvs = append(m.recvs, r)
		m.settle()
		require.Len(m.t, m.collect(), 1)
	}
	for _, msgs := range m.msgs {
		for _, x := range msgs {
			if x.req != nil {
				require.True(m.t, x.req.Done())
				x.req.Release()
			}
		}
	}
}

// checkOrder checks that no message has overtaken another one of its sender.
func (m *orderModel) checkOrder() {
	for _, msgs := range m.msgs {
		for i, late := range msgs {
			if late.recv == nil {
				continue
			}
			for _, early := range msgs[:i] {
				if !early.canceled && late.recv.fits(early.tag) && (early.recv == nil || early.recv.order > late.recv.order) {
					m.t.Fatalf("message %d was overtaken by %d", early.number, late.number)
				}
			}
			for _, r := range m.recvs[:late.recv.order] {
				if r.fits(late.tag) && !r.canceled && r.got == nil {
					m.t.Fatalf("receive %d was overtaken by %d", r.order, late.recv.order)
				}
			}
		}
	}
}

// TestOrder_Model: in each step, receives match the messages of a serial matcher, although most senders have no credit.
func TestOrder_Model(t *testing.T) {
	overOrderSets(t, func(t *testing.T, set tlsets.Set, protos orderProtos) {
		rapid.Check(t, func(rt *rapid.T) {
			senders := rapid.SampledFrom([]int{1, 3}).Draw(rt, "senders")
			m := newOrderModel(t, rt, set, protos, senders)
			rt.Repeat(map[string]func(*rapid.T){
				"send": func(*rapid.T) {
					x := m.drawSend()
					m.settle()
					m.oneMatch(m.recvs, func(r *orderRecv) bool { return r.fits(x.tag) }, x)
				},
				"receive": func(*rapid.T) {
					r := m.drawRecv()
					want := m.firsts(r)
					m.settle()
					if len(want) == 0 {
						require.Empty(rt, m.collect())
						return
					}
					require.Equal(rt, []*orderRecv{r}, m.collect())
					require.True(rt, slices.Contains(want, r.got))
				},
				"cancel": func(*rapid.T) {
					m.cancel()
					m.settle()
					require.Empty(rt, m.collect())
				},
				"cancel send": func(*rapid.T) { m.cancelSend() },
				"burst": func(*rapid.T) {
					m.burst()
					m.settle()
					require.Empty(rt, m.collect())
				},
				"probe":  func(*rapid.T) { m.probe() },
				"remove": func(*rapid.T) { m.remove() },
			})
			m.finish()
			m.checkOrder()
		})
	})
}

// overOrderSets runs a test without tuple queues and with them.
func overOrderSets(t *testing.T, f func(t *testing.T, set tlsets.Set, protos orderProtos)) {
	testenv.SkipRace(t, oneGoroutine)
	for _, set := range []tlsets.Set{faketp.Set("like sm", faketp.LikeSM()), faketp.Set("like tcp", faketp.LikeTCP())} {
		t.Run(set.Name, func(t *testing.T) { f(t, set, orderProtos{}) })
	}
	for _, proto := range []string{"tupleq", "tupleq_copy"} {
		t.Run(proto, func(t *testing.T) { f(t, queues(), orderProtos{proto, proto}) })
		t.Run(proto+", sender", func(t *testing.T) { f(t, queues(), orderProtos{sender: proto}) })
		t.Run(proto+", receiver", func(t *testing.T) { f(t, queues(), orderProtos{receiver: proto}) })
	}
}

// burst sends many messages of a tag for which no receive is posted.
func (m *orderModel) burst() {
	from, tag := rapid.IntRange(0, len(m.senders)-1).Draw(m.t, "sender"), rapid.Uint64Range(0, orderTags-1).Draw(m.t, "tag")
	if slices.ContainsFunc(m.recvs, func(r *orderRecv) bool { return r.got == nil && !r.canceled && r.fits(tag) }) {
		return
	}
	for range rapid.IntRange(1, 60).Draw(m.t, "messages") {
		m.send(from, tag, 16)
	}
}

// oneMatch checks that the first pending receive that fits has matched x, and no other receive has matched anything.
func (m *orderModel) oneMatch(recvs []*orderRecv, fits func(*orderRecv) bool, x *orderMsg) {
	for _, r := range recvs {
		if r.got == nil && !r.canceled && fits(r) {
			require.Equal(m.t, []*orderRecv{r}, m.collect())
			require.Same(m.t, x, r.got)
			return
		}
	}
	require.Empty(m.t, m.collect())
}

// probe probes for a message until all peers have replied.
func (m *orderModel) probe() {
	r := &orderRecv{tag: rapid.Uint64Range(0, orderTags-1).Draw(m.t, "tag"), mask: rapid.SampledFrom([]uint64{exact, 1, 0}).Draw(m.t, "mask")}
	_, _, ok := m.b.W.TagProbe(r.tag, r.mask, false)
	m.settle()
	if m.protos.queues() { // the first probe has closed queues
		_, _, _ = m.b.W.TagProbe(r.tag, r.mask, false)
		m.settle()
	}
	want := m.firsts(r)
	_, info, found := m.b.W.TagProbe(r.tag, r.mask, false)
	require.Equal(m.t, len(want) > 0, found)
	require.True(m.t, found || !ok)
	if found {
		require.True(m.t, slices.ContainsFunc(want, func(x *orderMsg) bool { return x.tag == info.Tag && x.size == info.Length }))
	}
}

// remove probes for a message and removes it, until all peers have replied.
func (m *orderModel) remove() {
	r := &orderRecv{tag: rapid.Uint64Range(0, orderTags-1).Draw(m.t, "tag"), mask: rapid.SampledFrom([]uint64{exact, 1, 0}).Draw(m.t, "mask")}
	want := m.firsts(r)
	for range 6 { // queues close, the query, the offer, and again if another peer has replied first
		if x := m.take(m.b.W.TagProbe(r.tag, r.mask, true)); x != nil {
			require.True(m.t, slices.Contains(want, x))
			return
		}
		m.settle()
	}
	require.Empty(m.t, want)
}

// take receives a message that a probe has removed.
func (m *orderModel) take(u *ucp.TagMessage, info ucp.TagInfo, ok bool) *orderMsg {
	if !ok {
		return nil
	}
	r := &orderRecv{tag: info.Tag, mask: exact, order: m.posted, buf: make([]byte, orderSizes+1)}
	m.posted++
	var err error
	r.req, err = u.Recv(r.buf, &r.info, nil)
	require.NoError(m.t, err)
	m.recvs = append(m.recvs, r)
	m.settle()
	m.collect()
	require.NotNil(m.t, r.got)
	return r.got
}

// TestOrder_Crossing: sends, receives, cancels and probes while queries and offers are in flight. No message overtakes
// another one, and none is lost.
func TestOrder_Crossing(t *testing.T) {
	overOrderSets(t, func(t *testing.T, set tlsets.Set, protos orderProtos) {
		rapid.Check(t, func(rt *rapid.T) {
			senders := rapid.SampledFrom([]int{1, 3}).Draw(rt, "senders")
			m := newOrderModel(t, rt, set, protos, senders)
			rt.Repeat(map[string]func(*rapid.T){
				"send":    func(*rapid.T) { m.drawSend() },
				"receive": func(*rapid.T) { m.drawRecv() },
				"stream":  func(*rapid.T) { m.collect(); m.stream() },
				"burst":   func(*rapid.T) { m.collect(); m.burst() },
				"cancel":  func(*rapid.T) { m.collect(); m.cancel() },
				"probe": func(*rapid.T) {
					_, _, _ = m.b.W.TagProbe(rapid.Uint64Range(0, orderTags-1).Draw(rt, "tag"), exact, false)
				},
				"remove": func(*rapid.T) { m.take(m.b.W.TagProbe(rapid.Uint64Range(0, orderTags-1).Draw(rt, "tag"), exact, true)) },
				"settle": func(*rapid.T) { m.settle() },
				"step": func(*rapid.T) {
					if i := rapid.IntRange(0, senders).Draw(rt, "worker"); i < senders {
						m.senders[i].W.Progress()
					} else {
						m.b.W.Progress()
					}
				},
			})
			m.checkMatched()
			m.readStreams()
			m.checkMatched()
			m.checkOrder()
			m.finish()
			m.checkOrder()
		})
	})
}

// checkMatched checks that no receive is pending that matches a message.
func (m *orderModel) checkMatched() {
	m.lapse()
	m.collect()
	for _, r := range m.recvs {
		if r.got == nil && !r.canceled && len(m.firsts(r)) > 0 {
			m.fail("a receive and its message do not meet")
		}
	}
}

// reserved is the number of messages that are reserved for probes of w.
func reserved(w *ucp.Worker) int {
	_, n := w.BlockedSenders()
	return n
}
