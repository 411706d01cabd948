package ucp_test

import (
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
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/wrap"
	"github.com/gucx/gucx/wireup"
)

// listLen is the length of a message in many pieces.
const listLen = 100_000

// cut returns b in n pieces of different lengths, some of them empty.
func cut(b []byte, n int) (list [][]byte) {
	for i := n; i > 1; i-- {
		k := len(b)/i - i%2
		list = append(list, b[:k:k], nil)
		b = b[k:]
	}
	return append(list, b)
}

// TestList_AllSchemes: lists and buffers at either side, with more pieces than one call permits, over each transport with
// each scheme.
func TestList_AllSchemes(t *testing.T) {
	overSchemes(t, func(t *testing.T, p *ucppair.Pair) {
		p.Connect()
		for i, parts := range [][2]int{{40, 1}, {1, 40}, {40, 7}, {3, 1}, {1, 3}, {ucp.MaxPieces + 1, 1}, {1, ucp.MaxPieces + 1}} {
			data, buf := testenv.Pattern(listLen, i), make([]byte, listLen)
			recv, err := p.B.W.TagRecvData(ucp.Buffers(cut(buf, parts[1])), 1, exact, nil, nil)
			require.NoError(t, err)
			sent, err := p.A.EP.TagSendData(1, ucp.Buffers(cut(data, parts[0])), nil)
			require.NoError(t, p.Finish(sent, err))
			require.NoError(t, p.Finish(recv, nil))
			testenv.RequireBytes(t, data, buf)
		}
		require.NoError(t, p.A.EP.Err())
	})
}

// TestList_Truncated: a list that is too short is filled, and no other memory is written.
func TestList_Truncated(t *testing.T) {
	overSchemes(t, func(t *testing.T, p *ucppair.Pair) {
		p.Connect()
		data, buf := testenv.Pattern(listLen, 1), make([]byte, listLen)
		recv, err := p.B.W.TagRecvData(ucp.Buffers(cut(buf[:listLen-999], 5)), 1, exact, nil, nil)
		require.NoError(t, err)
		sent, err := p.A.EP.TagSend(1, data, nil)
		require.NoError(t, err)
		require.ErrorIs(t, p.Finish(recv, nil), ucs.ErrTruncated)
		require.NoError(t, p.Finish(sent, nil))
		testenv.RequireBytes(t, data[:listLen-999], buf[:listLen-999])
		testenv.RequireZero(t, buf[listLen-999:], "written past the end")
	})
}

// moves counts the operations of transports by variant.
type moves [64]int

func (m *moves) Before(uct.Variant) error { return nil }

func (m *moves) After(v uct.Variant, _ int, err error) {
	if err == nil {
		m[v]++
	}
}

// overLists runs a test over transports with zcopy puts and gets, with the scheme that uses zcopy for the list of each
// side.
func overLists(t *testing.T, f func(t *testing.T, p *ucppair.Pair, atSender bool, seen *moves)) {
	for _, tls := range []string{"self", "sm", "tcp", `\rc`, "rc_mlx5"} {
		for _, s := range []proto.Scheme{proto.Put, proto.Get} {
			t.Run(fmt.Sprintf("%s/%v", tls, s), func(t *testing.T) {
				set, seen := tlsets.Real(tls, tls), &moves{}
				set.Oneself = tls == "self"
				open := set.Open
				set.Open = func(t testing.TB) (a, b []uct.Component) {
					layer := wrap.Hooks{EP: func(e *wrap.EP) { e.Intercept(seen) }}
					a, b = open(t)
					return layered(a, layer), layered(b, layer)
				}
				f(t, ucppair.New(t, set, ucp.Config{RndvScheme: s.String(), RndvThresh: 1}).Connect(), s == proto.Put, seen)
			})
		}
	}
}

// sendList transfers data to buf. One of the two is in pieces.
func sendList(p *ucppair.Pair, data, buf []byte, atSender bool) (sent, recv *ucp.Request) {
	from, into := ucp.Bytes(data), ucp.Bytes(buf)
	if atSender {
		from = ucp.Buffers(cut(data, 40))
	} else {
		into = ucp.Buffers(cut(buf, 40))
	}
	recv, err := p.B.W.TagRecvData(into, 1, exact, nil, nil)
	require.NoError(p.T, err)
	sent, err = p.A.EP.TagSendData(1, from, nil)
	require.NoError(p.T, err)
	return sent, recv
}

// TestList_Zcopy: a list is put from, or got into, without fragments, and its registrations are released.
func TestList_Zcopy(t *testing.T) {
	overLists(t, func(t *testing.T, p *ucppair.Pair, atSender bool, seen *moves) {
		data, buf, before := testenv.Pattern(listLen, 1), make([]byte, listLen), registrations(&p.A)
		for i := range 2 {
			sent, recv := sendList(p, data, buf, atSender)
			require.NoError(t, p.Finish(recv, nil))
			require.NoError(t, p.Finish(sent, nil))
			testenv.RequireBytes(t, data, buf)
			if i == 0 { // with the messages that connect
				idle(p)
				clear(buf)
				*seen = moves{}
			}
		}
		zcopy, other := uct.PutZcopy, uct.GetZcopy
		if !atSender {
			zcopy, other = other, zcopy
		}
		assert.Positive(t, seen[zcopy])
		assert.Less(t, seen[zcopy], 40, "several pieces with one call")
		assert.Zero(t, seen[other])
		assert.LessOrEqual(t, seen[uct.AMBcopy]+seen[uct.AMShort], 4, "RTS, RTR or ACK, PUT DONE, credit")
		for _, x := range []*ucppair.End{&p.A, &p.B} {
			require.NoError(t, x.W.Purge())
			assert.Equal(t, before, registrations(x), "registrations that are in use")
		}
	})
}

// TestList_CloseDuringTransfer: if an EP closes during the transfer, no registration remains in use, and each request completes.
func TestList_CloseDuringTransfer(t *testing.T) {
	overLists(t, func(t *testing.T, p *ucppair.Pair, atSender bool, _ *moves) {
		data, buf, before := testenv.Pattern(listLen, 1), make([]byte, listLen), registrations(&p.A)
		for steps := range 6 {
			sent, recv := sendList(p, data, buf, atSender)
			for range 3 * steps {
				p.A.W.Progress()
			}
			p.B.W.Progress()
			require.NoError(t, p.Finish(p.A.EP.Close(ucp.CloseForce)))
			_ = p.Finish(sent, nil)
			recv.Cancel() // if the message has not matched it
			_ = p.Finish(recv, nil)
			for _, x := range []*ucppair.End{&p.A, &p.B} {
				require.NoError(t, x.W.Purge())
				require.Equal(t, before, registrations(x))
			}
			p.Connect()
		}
	})
}

// TestAllocs_List: a list allocates nothing after warm-up.
func TestAllocs_List(t *testing.T) {
	p := ucppair.New(t, tlsets.Real("sm", "sm"), ucp.Config{RndvScheme: "get_zcopy", RndvThresh: 1}).Connect()
	data, list := p.A.Mem.Bytes(), cut(make([]byte, tlsets.MemLen), 10)
	params := &ucp.OpParams{Mem: p.A.Mem}
	do := func() {
		recv, err := p.B.W.TagRecvData(ucp.Buffers(list), 1, exact, nil, nil)
		if err != nil {
			panic(err)
		}
		p.MustFinish(p.A.EP.TagSend(1, data, params))
		p.MustFinish(recv, nil)
	}
	for range 300 {
		do()
	}
	testenv.NoAllocs(t, "list", do)
}

// TestList_EmptyRequest: a receiver that requests no byte of a list, as an untrusted peer may, gets none.
func TestList_EmptyRequest(t *testing.T) {
	p := ucppair.New(t, tlsets.Real("sm", "sm"), ucp.Config{RndvScheme: putScheme, RndvThresh: 1}).Connect().Warm()
	sent, err := p.A.EP.TagSendData(1, ucp.Buffers(cut(testenv.Pattern(listLen, 1), 7)), nil)
	require.NoError(t, err)
	p.Until(func() bool { return sent.Awaits() })
	rtr := wire.RTR{EP: p.A.EP.ID(), ID: sent.RemoteID(), Recv: 1, Addr: p.B.Mem.Addr(), Key: p.B.Mem.Pack()}
	p.A.W.Handler(wire.AMRTR)(rtr.Append(nil), nil)
	require.NoError(t, p.Finish(sent, nil))
}

// TestList_LaneReplaced: if the lane breaks after a part of a list was transferred, the transfer starts again over the
// next lane. Neither side gets an error.
func TestList_LaneReplaced(t *testing.T) {
	first, second := faketp.LikeRC(), likeRC2()
	first.Caps &^= uct.CapAM
	second.Caps &^= uct.CapAM
	for _, atSender := range []bool{true, false} {
		cfg := ucp.Config{RndvScheme: putScheme, RndvThresh: 1}
		if !atSender {
			cfg.RndvScheme = "get_zcopy"
		}
		t.Run(cfg.RndvScheme, func(t *testing.T) {
			p := ucppair.New(t, faketp.Set("two", first, second, faketp.LikeUD()), cfg).Connect().Warm()
			mover := p.A.EP
			if !atSender {
				mover = peerEP(t, &p.B)
				mover.RequestLane(wireup.RMA)
				p.Until(func() bool { return mover.Lane(wireup.RMA) != nil })
			}
			data, buf := testenv.Pattern(listLen, 1), make([]byte, listLen)
			sent, recv := sendList(p, data, buf, atSender)
			lane := mover.Lane(wireup.RMA).EP.(*faketp.EP)
			lane.Iface.Frozen = true
			p.Until(func() bool { return lane.InFlight == lane.Iface.Kind.Depth })
			lane.Fail(ucs.StatusIOError)
			lane.Iface.Frozen = false
			require.NoError(t, p.Finish(sent, nil))
			require.NoError(t, p.Finish(recv, nil))
			testenv.RequireBytes(t, data, buf)
			assert.Positive(t, counters(mover.Worker())["worker.repeated_transfers"])
			require.NoError(t, p.A.EP.Err())
		})
	}
}
