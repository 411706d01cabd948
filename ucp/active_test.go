package ucp

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/ucs"
)

// activeSizes are lengths around the limits of inline messages, bcopy and fragments.
var activeSizes = []int{0, 1, 7, 8, 16, 31, 32, 33, 100, 200, 248, 249, 1000, 4096, 8176, 8192, 9000, 15000}

// received is an active message, copied by the handler.
type received struct {
	header, data []byte
	from         *EP
	recv         *Request // receives the data; nil when it is complete
}

// collect adds a handler to the worker that receives all messages with an id.
func collect(t testing.TB, w *Worker, id uint16) *[]received {
	got := &[]received{}
	w.OnActive(id, func(m *ActiveMessage) {
		x := received{header: append([]byte{}, m.Header...), data: make([]byte, m.Length), from: m.From}
		var err error
		x.recv, err = m.Recv(x.data, nil)
		assert.NoError(t, err)
		*got = append(*got, x)
	})
	return got
}

// have returns a function that reports whether n messages have been received completely.
func have(t testing.TB, got *[]received, n int) func() bool {
	return func() bool {
		pending := false
		for i := range *got {
			x := &(*got)[i]
			if x.recv != nil && x.recv.Done() {
				assert.NoError(t, x.recv.take())
				x.recv = nil
			}
			pending = pending || x.recv != nil
		}
		return !pending && len(*got) == n
	}
}

func TestActive_Sizes(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		got := collect(t, p.b.w, 0xfedc)
		p.connect()
		n := 0
		for _, size := range activeSizes {
			for _, header := range []int{0, 5, 40} {
				head, data := pattern(header, n), pattern(size, n+1)
				require.NoError(t, p.finish(p.a.ep.SendActive(0xfedc, head, data, nil)), "%d, header %d", size, header)
				n++
				p.until(have(t, got, n))
				requireBytes(t, head, (*got)[n-1].header)
				requireBytes(t, data, (*got)[n-1].data)
			}
		}
	})
}

// TestActive_Order: messages of all lengths arrive in the order in which they were sent, also if they waited for a
// lane, for the queue or for credit.
func TestActive_Order(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		got := collect(t, p.b.w, 1)
		p.connect()
		const n = 400
		var reqs []*Request
		for i := range n {
			data := pattern(activeSizes[i*7%len(activeSizes)], i)
			r, err := p.a.ep.SendActive(1, []byte{byte(i), byte(i >> 8)}, data, nil)
			require.NoError(t, err)
			if r != nil {
				reqs = append(reqs, r)
			}
			if i%50 == 0 {
				p.step()
			}
		}
		for _, r := range reqs {
			require.NoError(t, p.finish(r, nil))
		}
		p.until(have(t, got, n))
		for i, m := range *got {
			require.Equal(t, []byte{byte(i), byte(i >> 8)}, m.header, "message %d", i)
			requireBytes(t, pattern(activeSizes[i*7%len(activeSizes)], i), m.data)
		}
	})
}

// TestActive_Reply: a handler replies over the EP of the message.
func TestActive_Reply(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		if p.oneself() {
			t.Skip("both ends share one handler")
		}
		got := collect(t, p.a.w, 2)
		p.b.w.OnActive(2, func(m *ActiveMessage) {
			r, err := m.From.SendActive(2, nil, append([]byte("re: "), m.Data...), nil)
			assert.NoError(t, err)
			if r != nil {
				r.Release()
			}
		})
		p.connect()
		require.NoError(t, p.finish(p.a.ep.SendActive(2, nil, []byte("ping"), nil)))
		p.until(have(t, got, 1))
		assert.Equal(t, "re: ping", string((*got)[0].data))
		assert.Same(t, p.a.ep, (*got)[0].from)
	})
}

// TestActive_Kept: messages that a handler keeps use the credit of the sender.
func TestActive_Kept(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		var kept []*ActiveMessage
		p.b.w.OnActive(3, func(m *ActiveMessage) { kept = append(kept, m.Keep()) })
		p.connect()
		const size = 4000
		var reqs []*Request
		const n = 150 // more than the window
		for i := range n {
			r, err := p.a.ep.SendActive(3, nil, pattern(size, i), nil)
			require.NoError(t, err)
			if r != nil {
				reqs = append(reqs, r)
			}
		}
		for seen := 0; seen < n; {
			p.until(func() bool { return len(kept) > 0 })
			for range 100 {
				p.step()
			}
			batch, held := kept, 0
			kept = nil
			for _, m := range batch {
				held += len(m.Data)
			}
			assert.LessOrEqual(t, held, defaultEagerWindow, "messages use more than the window")
			for _, m := range batch {
				data := make([]byte, size)
				require.NoError(t, p.finish(m.Recv(data, nil)))
				requireBytes(t, pattern(size, seen), data)
				m.Release()
				seen++
			}
		}
		for _, r := range reqs {
			require.NoError(t, p.finish(r, nil))
		}
	})
}

func TestActive_Errors(t *testing.T) {
	p := newPair(t, faketp.Set("like sm", faketp.LikeSM()), Config{}).connect()
	_, err := p.a.ep.SendActive(1, make([]byte, MaxActiveHeader+1), nil, nil)
	require.ErrorIs(t, err, ucs.ErrTooLong)
	r, err := p.a.ep.SendActive(1, nil, []byte{1}, &OpParams{Mem: p.a.mem})
	require.ErrorIs(t, err, ucs.ErrInvalidParam)
	require.Nil(t, r)
	require.NoError(t, p.finish(p.a.ep.Close(CloseFlush)))
	_, err = p.a.ep.SendActive(1, nil, nil, nil)
	require.ErrorIs(t, err, ucs.ErrClosed)
}

// TestActive_CanceledCredit: a message that is canceled while it waits for the full queue returns its credit.
func TestActive_CanceledCredit(t *testing.T) {
	p := newPair(t, tlsets.Real("sm", "sm"), Config{})
	got := collect(t, p.b.w, 1)
	p.connect()
	require.NoError(t, p.finish(p.a.ep.SendActive(1, nil, []byte{1}, nil)))
	p.until(have(t, got, 1))
	require.NoError(t, p.flush())
	p.until(func() bool { return p.a.ep.msgs.Credit > firstWindow }) // the credit that b granted has arrived
	credit, sent := p.a.ep.msgs.Credit, 0
	var held *Request
	for held == nil {
		r, err := p.a.ep.SendActive(1, nil, pattern(100, 1), nil)
		require.NoError(t, err)
		held = r
		sent++
	}
	require.NotZero(t, held.flags&reqQueued, "the queue fills before the window")
	require.True(t, held.Cancel())
	held.Release()
	sent--
	require.Equal(t, credit-int64(sent)*charge(100), p.a.ep.msgs.Credit)
	p.until(have(t, got, sent+1))
}

// TestActive_KeptWhileItsConnectionCloses: a message that was kept before or after its connection has closed counts
// until it is released.
func TestActive_KeptWhileItsConnectionCloses(t *testing.T) {
	for _, first := range []string{"keep", "close"} {
		t.Run(first+" first", func(t *testing.T) {
			p := newPair(t, faketp.Set("like sm", faketp.LikeSM()), Config{}).connect().warm()
			var kept *ActiveMessage
			p.b.w.OnActive(3, func(m *ActiveMessage) {
				if first == "keep" {
					kept = m.Keep()
				}
				r, err := m.From.Close(CloseForce)
				assert.NoError(t, err)
				if r != nil {
					r.Release()
				}
				if first == "close" {
					kept = m.Keep()
				}
			})
			for range 2 { // the connection of the second one is closed
				r, err := p.a.ep.SendActive(3, nil, []byte("message"), nil)
				require.NoError(t, err)
				if r != nil {
					r.Release()
				}
			}
			p.until(func() bool { return kept != nil })
			p.until(func() bool { return kept.msgs.closed })
			assert.Equal(t, "message", string(kept.Data))
			assert.Equal(t, charge(len("message")), p.b.w.messages.leftBytes)
			kept.Release()
			assert.Zero(t, p.b.w.messages.leftBytes)
		})
	}
}

// TestActive_KeptTwiceReturnsCreditOnce: a message returns its credit once, however often it was kept.
func TestActive_KeptTwiceReturnsCreditOnce(t *testing.T) {
	p := newPair(t, faketp.Set("like sm", faketp.LikeSM()), Config{}).connect().warm()
	var kept []*ActiveMessage
	p.b.w.OnActive(3, func(m *ActiveMessage) { kept = append(kept, m.Keep(), m.Keep()) })
	for range 2 {
		require.NoError(t, p.finish(p.a.ep.SendActive(3, nil, []byte("message"), nil)))
	}
	p.until(func() bool { return len(kept) == 4 })
	account := kept[0].msgs
	account.UpdateDue()
	held, due := account.Held, account.Due
	assert.Equal(t, 2*charge(len("message")), held)
	for _, m := range kept {
		assert.Equal(t, "message", string(m.Data))
		m.Release()
	}
	assert.Zero(t, account.Held)
	account.UpdateDue()
	assert.Equal(t, due+held, account.Due)
}
