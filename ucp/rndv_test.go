package ucp_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/internal/proto"
	"github.com/gucx/gucx/ucs"
)

// rndvSizes are lengths around the limits of fragments and thresholds.
var rndvSizes = []int{1, 2024, 2025, 8168, 8169, 1 << 18}

// overSchemes runs a test over transport sets that differ, with each scheme. All messages use rendezvous.
func overSchemes(t *testing.T, f func(t *testing.T, p *ucppair.Pair)) {
	for _, scheme := range tlsets.RndvSchemes {
		t.Run(scheme, func(t *testing.T) {
			for _, set := range faketp.AllSets() {
				set.Run(t, func(t *testing.T) {
					f(t, ucppair.New(t, set, ucp.Config{RndvScheme: scheme, RndvThresh: 1}))
				})
			}
		})
	}
}

// memOf allocates memory of n bytes for x.
func memOf(t testing.TB, x *ucppair.End, n int) *ucp.Mem {
	t.Helper()
	mem, err := x.Ctx.MemAlloc(n)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, mem.Close()) })
	return mem
}

// piece returns n bytes, of mem if registered is set.
func piece(mem *ucp.Mem, n int, inside bool) ([]byte, *ucp.OpParams) {
	if !inside {
		return make([]byte, n), nil
	}
	return mem.Bytes()[8 : 8+n], &ucp.OpParams{Mem: mem}
}

func TestRndv_Sizes(t *testing.T) {
	overSchemes(t, func(t *testing.T, p *ucppair.Pair) {
		const most = 1<<18 + 16
		from, to := memOf(t, &p.A, most), memOf(t, &p.B, most)
		for _, registered := range [][2]bool{{false, false}, {true, false}, {false, true}, {true, true}} {
			t.Run(fmt.Sprintf("sender=%v,receiver=%v", registered[0], registered[1]), func(t *testing.T) {
				p.Connect()
				var recv *ucp.Request
				var buf []byte
				p.B.W.OnActive(1, func(m *ucp.ActiveMessage) {
					assert.Nil(t, m.Data)
					var params *ucp.OpParams
					var err error
					buf, params = piece(to, m.Length, registered[1])
					clear(buf)
					recv, err = m.Recv(buf, params)
					assert.NoError(t, err)
					if want := schemeOf(p); recv != nil && want != proto.Auto {
						assert.True(t, recv.FetchedBy(want), "not by %v", want)
					}
				})
				for i, n := range rndvSizes {
					data, params := piece(from, n, registered[0])
					copy(data, testenv.Pattern(n, i))
					buf = nil
					r, err := p.A.EP.SendActive(1, testenv.Pattern(i, i), data, params)
					require.NoError(t, p.Finish(r, err))
					p.Until(func() bool { return buf != nil })
					require.NoError(t, p.Finish(recv, nil))
					testenv.RequireBytes(t, testenv.Pattern(n, i), buf)
				}
				require.NoError(t, p.Finish(p.A.EP.Close(ucp.CloseFlush)))
			})
		}
	})
}

// schemeOf returns the scheme of the data of a message: the configured one, because unregistered memory is registered
// for it.
func schemeOf(p *ucppair.Pair) proto.Scheme { return p.A.Ctx.RndvScheme() }

// rndvPair is a pair whose messages all use rendezvous. The handler of b keeps them.
type rndvPair struct {
	*ucppair.Pair
	kept     []*ucp.ActiveMessage
	from, to *ucp.Mem
}

func newRndvPair(t testing.TB, set tlsets.Set, scheme string) *rndvPair {
	p := &rndvPair{Pair: ucppair.New(t, set, ucp.Config{RndvScheme: scheme, RndvThresh: 1})}
	p.from, p.to = memOf(t, &p.A, tlsets.LongMessage), memOf(t, &p.B, tlsets.LongMessage)
	p.B.W.OnActive(1, func(m *ucp.ActiveMessage) { p.kept = append(p.kept, m.Keep()) })
	p.Connect()
	return p
}

// eachScheme runs a test with each scheme over a few transport sets. Memory is registered.
func eachScheme(t *testing.T, f func(t *testing.T, p *rndvPair)) {
	sets := []tlsets.Set{
		faketp.Set("like rc+ud", faketp.LikeRC(), faketp.LikeUD()), faketp.Set("like sm", faketp.LikeSM()), faketp.Set("like tcp", faketp.LikeTCP()),
		tlsets.Real("sm", "sm"), tlsets.Real("tcp", "tcp"), tlsets.Real("rc_mlx5", "rc_mlx5"),
	}
	for _, scheme := range tlsets.RndvSchemes[1:] {
		t.Run(scheme, func(t *testing.T) {
			for _, set := range sets {
				t.Run(set.Name, func(t *testing.T) { f(t, newRndvPair(t, set, scheme)) })
			}
		})
	}
}

// send starts a rendezvous.
func (p *rndvPair) send(n, seed int) *ucp.Request {
	p.T.Helper()
	copy(p.from.Bytes(), testenv.Pattern(n, seed))
	r, err := p.A.EP.SendActive(1, []byte{byte(seed)}, p.from.Bytes()[:n], &ucp.OpParams{Mem: p.from})
	require.NoError(p.T, err)
	require.NotNil(p.T, r)
	return r
}

// announcement returns the next announced message that was kept.
func (p *rndvPair) announcement() *ucp.ActiveMessage {
	p.T.Helper()
	p.Until(func() bool { return len(p.kept) > 0 })
	m := p.kept[0]
	p.kept = p.kept[1:]
	return m
}

// recv receives a message, and releases it.
func (p *rndvPair) recv(m *ucp.ActiveMessage, buf []byte) *ucp.Request {
	p.T.Helper()
	r, err := m.Recv(buf, &ucp.OpParams{Mem: p.to})
	require.NoError(p.T, err)
	m.Release()
	return r
}

// TestRndv_Later: kept messages are received later. A flush does not wait for them.
func TestRndv_Later(t *testing.T) {
	eachScheme(t, func(t *testing.T, p *rndvPair) {
		for seed := range 3 {
			r := p.send(tlsets.LongMessage, seed)
			m := p.announcement()
			require.NoError(t, p.Flush())
			assert.False(t, r.Done())
			assert.Equal(t, []byte{byte(seed)}, m.Header)
			clear(p.to.Bytes())
			require.NoError(t, p.Finish(p.recv(m, p.to.Bytes()), nil))
			require.NoError(t, p.Finish(r, nil))
			testenv.RequireBytes(t, testenv.Pattern(tlsets.LongMessage, seed), p.to.Bytes())
		}
	})
}

// TestRndv_Truncated: the buffer has the first bytes, and the send succeeds.
func TestRndv_Truncated(t *testing.T) {
	eachScheme(t, func(t *testing.T, p *rndvPair) {
		for _, n := range []int{0, 1, tlsets.LongMessage - 1} {
			r := p.send(tlsets.LongMessage, n)
			m := p.announcement()
			clear(p.to.Bytes())
			recv, err := m.Recv(p.to.Bytes()[:n], &ucp.OpParams{Mem: p.to})
			assert.ErrorIs(t, p.Finish(recv, err), ucs.ErrTruncated)
			testenv.RequireBytes(t, testenv.Pattern(tlsets.LongMessage, n)[:n], p.to.Bytes()[:n])
			testenv.RequireZero(t, p.to.Bytes()[n:], "written past the end of the buffer")
			require.NoError(t, p.Finish(r, nil))
			_, err = m.Recv(p.to.Bytes(), nil)
			assert.ErrorIs(t, err, ucs.ErrInvalidParam, "received twice")
			m.Release()
		}
		require.NoError(t, p.A.EP.Err())
	})
}

// TestRndv_Dropped: the send of a message that is not received completes.
func TestRndv_Dropped(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		calls := 0
		p.B.W.OnActive(1, func(*ucp.ActiveMessage) { calls++ })
		var kept *ucp.ActiveMessage
		p.B.W.OnActive(2, func(m *ucp.ActiveMessage) {
			kept = m.Keep()
			_, err := m.Recv(nil, nil)
			assert.ErrorIs(t, err, ucs.ErrInvalidParam, "the message that was kept")
		})
		p.Connect()
		data := testenv.Pattern(tlsets.LongMessage, 1)
		require.NoError(t, p.Finish(p.A.EP.SendActive(1, nil, data, nil)))
		assert.Equal(t, 1, calls)
		require.NoError(t, p.Finish(p.A.EP.SendActive(7, nil, data, nil)), "there is no handler")
		r, err := p.A.EP.SendActive(2, nil, data, nil)
		require.NoError(t, err)
		p.Until(func() bool { return kept != nil })
		kept.Release()
		require.NoError(t, p.Finish(r, nil))
	})
}

// TestRndv_Several: several rendezvous at a time, with eager messages between them. Handlers are called in order.
func TestRndv_Several(t *testing.T) {
	eachScheme(t, func(t *testing.T, p *rndvPair) {
		const n = 24
		got := collect(t, p.B.W, 1)
		var reqs []*ucp.Request
		for i := range n {
			params, data := &ucp.OpParams{Mem: p.from}, p.from.Bytes()[i*100:][:90_000-i]
			if i%3 == 0 {
				params = nil
			}
			r, err := p.A.EP.SendActive(1, []byte{byte(i)}, data, params)
			require.NoError(t, err)
			reqs = append(reqs, r)
			if i%4 == 0 {
				p.Step()
			}
		}
		for _, r := range reqs {
			require.NoError(t, p.Finish(r, nil))
		}
		p.Until(have(t, got, n))
		for i, m := range *got {
			assert.Equal(t, []byte{byte(i)}, m.header)
			testenv.RequireBytes(t, p.from.Bytes()[i*100:][:90_000-i], m.data)
		}
	})
}

// TestRndv_DataDoesNotBlockOthers: messages and puts continue while the data of a large message is in flight in fragments.
func TestRndv_DataDoesNotBlockOthers(t *testing.T) {
	p := newRndvPair(t, faketp.Set("like sm", faketp.LikeSM()), "am")
	p.B.W.OnActive(2, func(m *ucp.ActiveMessage) { assert.NoError(t, m.CopyLocally()) })
	r := p.send(tlsets.LongMessage, 1)
	recv := p.recv(p.announcement(), p.to.Bytes())
	for range 3 {
		p.Step()
	}
	require.False(t, recv.Done())
	require.NoError(t, p.Finish(p.A.EP.Put([]byte{1}, p.B.Mem.Addr(), p.A.Key, nil)))
	require.NoError(t, p.Finish(p.A.EP.SendActive(2, nil, nil, nil)))
	assert.False(t, recv.Done(), "the message waited for the earlier data")
	require.NoError(t, p.Finish(recv, nil))
	require.NoError(t, p.Finish(r, nil))
	testenv.RequireBytes(t, p.from.Bytes(), p.to.Bytes())
}

// TestRndv_CloseFlush: CloseFlush waits for the data of messages that were sent or are received.
func TestRndv_CloseFlush(t *testing.T) {
	eachScheme(t, func(t *testing.T, p *rndvPair) {
		r := p.send(tlsets.LongMessage, 1)
		m := p.announcement()
		closing, err := p.A.EP.Close(ucp.CloseFlush)
		require.NoError(t, err)
		for range 100 {
			p.Step()
		}
		require.False(t, closing.Done())
		recv := p.recv(m, p.to.Bytes())
		require.NoError(t, p.Finish(recv, nil))
		require.NoError(t, p.Finish(closing, nil))
		require.True(t, r.Done())
		require.NoError(t, p.Finish(r, nil))
		testenv.RequireBytes(t, p.from.Bytes(), p.to.Bytes())
	})
}

// TestRndv_CloseDuringTransfer: either side closes its EP, with messages in each state. The requests of both sides complete once, or
// fail with the reason.
func TestRndv_CloseDuringTransfer(t *testing.T) {
	for _, bySender := range []bool{true, false} {
		t.Run(fmt.Sprintf("bySender=%v", bySender), func(t *testing.T) {
			eachScheme(t, func(t *testing.T, p *rndvPair) {
				for steps := range 6 {
					p.closeAfterSteps(t, bySender, steps)
				}
			})
		})
	}
}

// closeAfterSteps closes an EP some steps after a receive was posted.
func (p *rndvPair) closeAfterSteps(t *testing.T, bySender bool, steps int) {
	sent := []*ucp.Request{p.send(tlsets.LongMessage, steps)}
	m := p.announcement()
	sent = append(sent, p.send(tlsets.LongMessage, steps))
	late := p.announcement()
	recv := p.recv(m, p.to.Bytes())
	for range steps {
		p.Step()
	}
	ep, other := late.From, p.A.EP
	if bySender {
		ep, other = other, ep
	}
	require.NoError(t, p.Finish(ep.Close(ucp.CloseForce)))
	p.Until(func() bool { return other.Err() != nil })
	if recv != nil {
		sent = append(sent, recv)
	}
	for _, r := range sent {
		if err := p.Finish(r, nil); err != nil {
			known := errors.Is(err, ucs.ErrPeerClosed) || errors.Is(err, ucs.ErrCanceled)
			assert.True(t, known, "%v", err)
		}
	}
	_, err := late.Recv(p.to.Bytes(), nil)
	assert.Error(t, err, "the data is lost with the connection")
	late.Release()
	if p.A.EP.Err() != nil && !bySender {
		require.NoError(t, p.Finish(p.A.EP.Close(ucp.CloseForce)))
	}
	p.A.EP, err = p.A.W.NewEP(p.B.W.Address(), ucp.EPConfig{})
	require.NoError(t, err)
}
