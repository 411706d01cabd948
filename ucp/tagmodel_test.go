package ucp_test

import (
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

// tagModel is a serial matcher, which is compared with a worker: two lists, searched from the front.
type tagModel struct {
	t    *rapid.T
	p    *ucppair.Pair
	recv []*modelRecv
	msgs []*modelMsg
	seed int
	// settle makes progress until nothing is in flight. If it is nil, each message is in one of the two tables of the
	// worker.
	settle func()
	masks  []uint64 // of receives
}

func (m *tagModel) tag() uint64 { return rapid.Uint64Range(0, 3).Draw(m.t, "tag") }

// anyMasks are masks of receives, half of them exact.
var anyMasks = []uint64{exact, exact, 1, 2, 0}

// come waits until a message has matched a receive, or is unexpected.
func (m *tagModel) come() {
	if m.settle != nil {
		m.settle()
		return
	}
	m.p.Until(func() bool {
		return len(slices.Collect(m.p.B.W.Tags().Receives())) == len(m.recv) && m.p.B.W.Tags().Unexpected() == len(m.msgs)
	})
}

type modelRecv struct {
	tag, mask uint64
	buf       []byte
	info      ucp.TagInfo
	req       *ucp.Request
}

type modelMsg struct {
	tag  uint64
	data []byte
	req  *ucp.Request // of the send; nil if it has completed
	sync bool
}

// modelSizes are lengths for inline messages, bcopy, fragments and rendezvous.
var modelSizes = []int{0, 8, 31, 300, 3000, 9000, 40_000}

func (m *tagModel) fits(r *modelRecv, tag uint64) bool { return (r.tag^tag)&r.mask == 0 }

// send sends a message and waits until it has arrived.
func (m *tagModel) send() {
	if len(m.msgs) > 20 {
		return
	}
	m.seed++
	x := &modelMsg{
		tag:  m.tag(),
		data: testenv.Pattern(rapid.SampledFrom(modelSizes).Draw(m.t, "size"), m.seed),
		sync: rapid.Bool().Draw(m.t, "sync"),
	}
	var err error
	if x.sync {
		x.req, err = m.p.A.EP.TagSendSync(x.tag, x.data, nil)
	} else {
		x.req, err = m.p.A.EP.TagSend(x.tag, x.data, nil)
	}
	require.NoError(m.t, err)
	for i, r := range m.recv {
		if m.fits(r, x.tag) {
			m.recv = append(m.recv[:i], m.recv[i+1:]...)
			m.come()
			m.received(r, x)
			return
		}
	}
	m.msgs = append(m.msgs, x)
	m.come()
}

// received checks the message of a receive.
func (m *tagModel) received(r *modelRecv, x *modelMsg) {
	var err error
	if r.req != nil {
		err = m.p.Finish(r.req, nil)
	}
	m.checkReceived(r, x, err)
}

func (m *tagModel) checkReceived(r *modelRecv, x *modelMsg, err error) {
	if len(x.data) > len(r.buf) {
		require.ErrorIs(m.t, err, ucs.ErrTruncated)
	} else {
		require.NoError(m.t, err)
	}
	n := min(len(x.data), len(r.buf))
	require.Equal(m.t, x.data[:n], r.buf[:n])
	require.Equal(m.t, make([]byte, len(r.buf)-n), r.buf[n:])
	require.Equal(m.t, x.tag, r.info.Tag)
	require.Equal(m.t, len(x.data), r.info.Length)
	require.NoError(m.t, m.p.Finish(x.req, nil))
}

// newRecv returns a receive that is not posted yet.
func (m *tagModel) newRecv() *modelRecv {
	return &modelRecv{
		tag:  m.tag(),
		mask: rapid.SampledFrom(m.masks).Draw(m.t, "mask"),
		buf:  make([]byte, rapid.SampledFrom(modelSizes).Draw(m.t, "room")),
	}
}

// take removes the message that a receive matches; nil if there is none.
func (m *tagModel) take(r *modelRecv) *modelMsg {
	for i, x := range m.msgs {
		if m.fits(r, x.tag) {
			m.msgs = append(m.msgs[:i:i], m.msgs[i+1:]...)
			return x
		}
	}
	return nil
}

// post posts a receive.
func (m *tagModel) post() {
	r := m.newRecv()
	x := m.take(r)
	var err error
	r.req, err = m.p.B.W.TagRecv(r.buf, r.tag, r.mask, &r.info, nil)
	if x == nil {
		require.NoError(m.t, err)
		require.NotNil(m.t, r.req)
		m.recv = append(m.recv, r)
		return
	}
	m.checkReceived(r, x, m.p.Finish(r.req, err))
}

// cancel cancels a receive.
func (m *tagModel) cancel() {
	if len(m.recv) == 0 {
		return
	}
	i := rapid.IntRange(0, len(m.recv)-1).Draw(m.t, "which")
	r := m.recv[i]
	m.recv = append(m.recv[:i], m.recv[i+1:]...)
	if !r.req.Cancel() { // a queue of the transport has it, and will return it
		require.NotNil(m.t, m.settle)
	}
	require.ErrorIs(m.t, m.p.Finish(r.req, nil), ucs.ErrCanceled)
}

// probe probes for a message, and may remove it, to receive or drop it.
func (m *tagModel) probe() {
	r := m.newRecv()
	remove := rapid.Bool().Draw(m.t, "remove")
	if m.settle != nil { // the first probe closes queues
		m.settle()
		_, _, _ = m.p.B.W.TagProbe(r.tag, r.mask, false)
		m.settle()
	}
	found, info, ok := m.p.B.W.TagProbe(r.tag, r.mask, remove)
	kept := append([]*modelMsg(nil), m.msgs...)
	x := m.take(r)
	require.Equal(m.t, x != nil, ok)
	if !ok || !remove {
		m.msgs = kept
		if ok {
			require.Equal(m.t, x.tag, info.Tag)
			require.Equal(m.t, len(x.data), info.Length)
		}
		return
	}
	if rapid.Bool().Draw(m.t, "drop") {
		found.Release()
		err := m.p.Finish(x.req, nil)
		if x.sync {
			require.ErrorIs(m.t, err, ucs.ErrCanceled)
		} else {
			require.NoError(m.t, err)
		}
		return
	}
	var err error
	r.req, err = found.Recv(r.buf, &r.info, nil)
	m.checkReceived(r, x, m.p.Finish(r.req, err))
}

// drain completes all operations.
func (m *tagModel) drain() {
	for len(m.recv) > 0 {
		m.cancel()
	}
	for len(m.msgs) > 0 {
		r := &modelRecv{buf: make([]byte, 40_000)}
		x := m.take(r)
		var err error
		r.req, err = m.p.B.W.TagRecv(r.buf, 0, 0, &r.info, nil)
		m.checkReceived(r, x, m.p.Finish(r.req, err))
	}
}

// TestTag_Model: any history of sends, receives, cancels and probes has the results of a serial matcher.
func TestTag_Model(t *testing.T) {
	for _, set := range []tlsets.Set{faketp.Set("like sm", faketp.LikeSM()), tlsets.Real("sm", "sm")} {
		t.Run(set.Name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				m := &tagModel{t: rt, p: ucppair.New(t, set, ucp.Config{}).Connect(), masks: anyMasks}
				rt.Repeat(map[string]func(*rapid.T){
					"send": func(*rapid.T) { m.send() }, "receive": func(*rapid.T) { m.post() },
					"cancel": func(*rapid.T) { m.cancel() }, "probe": func(*rapid.T) { m.probe() },
				})
				m.drain()
			})
		})
	}
}
