package ucp_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/internal/window"
	"github.com/gucx/gucx/ucs"
)

// activeSizes are lengths around the limits of inline messages, bcopy and fragments.
var activeSizes = []int{0, 1, 7, 8, 16, 31, 32, 33, 100, 200, 248, 249, 1000, 4096, 8176, 8192, 9000, 15000}

// received is an active message, copied by the handler.
type received struct {
	header, data []byte
	from         *ucp.EP
	recv         *ucp.Request // receives the data; nil when it is complete
}

// collect adds a handler to the worker that receives all messages with an id.
func collect(t testing.TB, w *ucp.Worker, id uint16) *[]received {
	got := &[]received{}
	w.OnActive(id, func(m *ucp.ActiveMessage) {
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
				assert.NoError(t, x.recv.Take())
				x.recv = nil
			}
			pending = pending || x.recv != nil
		}
		return !pending && len(*got) == n
	}
}

func TestActive_Sizes(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		got := collect(t, p.B.W, 0xfedc)
		p.Connect()
		n := 0
		for _, size := range activeSizes {
			for _, header := range []int{0, 5, 40} {
				head, data := testenv.Pattern(header, n), testenv.Pattern(size, n+1)
				require.NoError(t, p.Finish(p.A.EP.SendActive(0xfedc, head, data, nil)), "%d, header %d", size, header)
				n++
				p.Until(have(t, got, n))
				testenv.RequireBytes(t, head, (*got)[n-1].header)
				testenv.RequireBytes(t, data, (*got)[n-1].data)
			}
		}
	})
}

// TestActive_Order: messages of all lengths arrive in the order in which they were sent, also if they waited for a
// lane, for the queue or for credit.
func TestActive_Order(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		got := collect(t, p.B.W, 1)
		p.Connect()
		const n = 400
		var reqs []*ucp.Request
		for i := range n {
			data := testenv.Pattern(activeSizes[i*7%len(activeSizes)], i)
			r, err := p.A.EP.SendActive(1, []byte{byte(i), byte(i >> 8)}, data, nil)
			require.NoError(t, err)
			if r != nil {
				reqs = append(reqs, r)
			}
			if i%50 == 0 {
				p.Step()
			}
		}
		for _, r := range reqs {
			require.NoError(t, p.Finish(r, nil))
		}
		p.Until(have(t, got, n))
		for i, m := range *got {
			require.Equal(t, []byte{byte(i), byte(i >> 8)}, m.header, "message %d", i)
			testenv.RequireBytes(t, testenv.Pattern(activeSizes[i*7%len(activeSizes)], i), m.data)
		}
	})
}

// TestActive_Reply: a handler replies over the EP of the message.
func TestActive_Reply(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		if p.Oneself() {
			t.Skip("both ends share one handler")
		}
		got := collect(t, p.A.W, 2)
		p.B.W.OnActive(2, func(m *ucp.ActiveMessage) {
			r, err := m.From.SendActive(2, nil, append([]byte("re: "), m.Data...), nil)
			assert.NoError(t, err)
			if r != nil {
				r.Release()
			}
		})
		p.Connect()
		require.NoError(t, p.Finish(p.A.EP.SendActive(2, nil, []byte("ping"), nil)))
		p.Until(have(t, got, 1))
		assert.Equal(t, "re: ping", string((*got)[0].data))
		assert.Same(t, p.A.EP, (*got)[0].from)
	})
}

// TestActive_Kept: messages that a handler keeps use the credit of the sender.
func TestActive_Kept(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		var kept []*ucp.ActiveMessage
		p.B.W.OnActive(3, func(m *ucp.ActiveMessage) { kept = append(kept, m.Keep()) })
		p.Connect()
		const size = 4000
		var reqs []*ucp.Request
		const n = 150 // more than the window
		for i := range n {
			r, err := p.A.EP.SendActive(3, nil, testenv.Pattern(size, i), nil)
			require.NoError(t, err)
			if r != nil {
				reqs = append(reqs, r)
			}
		}
		for seen := 0; seen < n; {
			p.Until(func() bool { return len(kept) > 0 })
			for range 100 {
				p.Step()
			}
			batch, held := kept, 0
			kept = nil
			for _, m := range batch {
				held += len(m.Data)
			}
			assert.LessOrEqual(t, held, ucp.DefaultEagerWindow, "messages use more than the window")
			for _, m := range batch {
				data := make([]byte, size)
				require.NoError(t, p.Finish(m.Recv(data, nil)))
				testenv.RequireBytes(t, testenv.Pattern(size, seen), data)
				m.Release()
				seen++
			}
		}
		for _, r := range reqs {
			require.NoError(t, p.Finish(r, nil))
		}
	})
}

func TestActive_Errors(t *testing.T) {
	p := ucppair.New(t, faketp.Set("like sm", faketp.LikeSM()), ucp.Config{}).Connect()
	_, err := p.A.EP.SendActive(1, make([]byte, ucp.MaxActiveHeader+1), nil, nil)
	require.ErrorIs(t, err, ucs.ErrTooLong)
	r, err := p.A.EP.SendActive(1, nil, []byte{1}, &ucp.OpParams{Mem: p.A.Mem})
	require.ErrorIs(t, err, ucs.ErrInvalidParam)
	require.Nil(t, r)
	require.NoError(t, p.Finish(p.A.EP.Close(ucp.CloseFlush)))
	_, err = p.A.EP.SendActive(1, nil, nil, nil)
	require.ErrorIs(t, err, ucs.ErrClosed)
}

// TestActive_CanceledCredit: a message that is canceled while it waits for the full queue returns its credit.
func TestActive_CanceledCredit(t *testing.T) {
	p := ucppair.New(t, tlsets.Real("sm", "sm"), ucp.Config{})
	got := collect(t, p.B.W, 1)
	p.Connect()
	require.NoError(t, p.Finish(p.A.EP.SendActive(1, nil, []byte{1}, nil)))
	p.Until(have(t, got, 1))
	require.NoError(t, p.Flush())
	p.Until(func() bool { return p.A.EP.Messages().Credit > ucp.FirstWindow }) // the credit that b granted has arrived
	credit, sent := p.A.EP.Messages().Credit, 0
	var held *ucp.Request
	for held == nil {
		r, err := p.A.EP.SendActive(1, nil, testenv.Pattern(100, 1), nil)
		require.NoError(t, err)
		held = r
		sent++
	}
	require.True(t, held.Queued(), "the queue fills before the window")
	require.True(t, held.Cancel())
	held.Release()
	sent--
	require.Equal(t, credit-int64(sent)*window.Charge(100), p.A.EP.Messages().Credit)
	p.Until(have(t, got, sent+1))
}

// TestActive_KeptWhileItsConnectionCloses: a message that was kept before or after its connection has closed counts
// until it is released.
func TestActive_KeptWhileItsConnectionCloses(t *testing.T) {
	for _, first := range []string{"keep", "close"} {
		t.Run(first+" first", func(t *testing.T) {
			p := ucppair.New(t, faketp.Set("like sm", faketp.LikeSM()), ucp.Config{}).Connect().Warm()
			var kept *ucp.ActiveMessage
			p.B.W.OnActive(3, func(m *ucp.ActiveMessage) {
				if first == "keep" {
					kept = m.Keep()
				}
				r, err := m.From.Close(ucp.CloseForce)
				assert.NoError(t, err)
				if r != nil {
					r.Release()
				}
				if first == "close" {
					kept = m.Keep()
				}
			})
			for range 2 { // the connection of the second one is closed
				r, err := p.A.EP.SendActive(3, nil, []byte("message"), nil)
				require.NoError(t, err)
				if r != nil {
					r.Release()
				}
			}
			p.Until(func() bool { return kept != nil })
			p.Until(func() bool { return kept.MessagesOf().Closed() })
			assert.Equal(t, "message", string(kept.Data))
			assert.Equal(t, window.Charge(len("message")), p.B.W.LeftBytes())
			kept.Release()
			assert.Zero(t, p.B.W.LeftBytes())
		})
	}
}

// TestActive_KeptTwiceReturnsCreditOnce: a message returns its credit once, however often it was kept.
func TestActive_KeptTwiceReturnsCreditOnce(t *testing.T) {
	p := ucppair.New(t, faketp.Set("like sm", faketp.LikeSM()), ucp.Config{}).Connect().Warm()
	var kept []*ucp.ActiveMessage
	p.B.W.OnActive(3, func(m *ucp.ActiveMessage) { kept = append(kept, m.Keep(), m.Keep()) })
	for range 2 {
		require.NoError(t, p.Finish(p.A.EP.SendActive(3, nil, []byte("message"), nil)))
	}
	p.Until(func() bool { return len(kept) == 4 })
	account := kept[0].MessagesOf()
	account.UpdateDue()
	held, due := account.Held, account.Due
	assert.Equal(t, 2*window.Charge(len("message")), held)
	for _, m := range kept {
		assert.Equal(t, "message", string(m.Data))
		m.Release()
	}
	assert.Zero(t, account.Held)
	account.UpdateDue()
	assert.Equal(t, due+held, account.Due)
}
