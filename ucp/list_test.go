package ucp

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
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
	overSchemes(t, func(t *testing.T, p *pair) {
		p.connect()
		for i, parts := range [][2]int{{40, 1}, {1, 40}, {40, 7}, {3, 1}, {1, 3}, {maxPieces + 1, 1}, {1, maxPieces + 1}} {
			data, buf := pattern(listLen, i), make([]byte, listLen)
			recv, err := p.b.w.TagRecvData(Buffers(cut(buf, parts[1])), 1, exact, nil, nil)
			require.NoError(t, err)
			sent, err := p.a.ep.TagSendData(1, Buffers(cut(data, parts[0])), nil)
			require.NoError(t, p.finish(sent, err))
			require.NoError(t, p.finish(recv, nil))
			requireBytes(t, data, buf)
		}
		require.NoError(t, p.a.ep.Err())
	})
}

// TestList_Truncated: a list that is too short is filled, and no other memory is written.
func TestList_Truncated(t *testing.T) {
	overSchemes(t, func(t *testing.T, p *pair) {
		p.connect()
		data, buf := pattern(listLen, 1), make([]byte, listLen)
		recv, err := p.b.w.TagRecvData(Buffers(cut(buf[:listLen-999], 5)), 1, exact, nil, nil)
		require.NoError(t, err)
		sent, err := p.a.ep.TagSend(1, data, nil)
		require.NoError(t, err)
		require.ErrorIs(t, p.finish(recv, nil), ucs.ErrTruncated)
		require.NoError(t, p.finish(sent, nil))
		requireBytes(t, data[:listLen-999], buf[:listLen-999])
		requireZero(t, buf[listLen-999:], "written past the end")
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
func overLists(t *testing.T, f func(t *testing.T, p *pair, atSender bool, seen *moves)) {
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
				f(t, newPair(t, set, Config{RndvScheme: s.String(), RndvThresh: 1}).connect(), s == proto.Put, seen)
			})
		}
	}
}

// sendList transfers data to buf. One of the two is in pieces.
func (p *pair) sendList(data, buf []byte, atSender bool) (sent, recv *Request) {
	from, into := Bytes(data), Bytes(buf)
	if atSender {
		from = Buffers(cut(data, 40))
	} else {
		into = Buffers(cut(buf, 40))
	}
	recv, err := p.b.w.TagRecvData(into, 1, exact, nil, nil)
	require.NoError(p.t, err)
	sent, err = p.a.ep.TagSendData(1, from, nil)
	require.NoError(p.t, err)
	return sent, recv
}

// TestList_Zcopy: a list is put from, or got into, without fragments, and its registrations are released.
func TestList_Zcopy(t *testing.T) {
	overLists(t, func(t *testing.T, p *pair, atSender bool, seen *moves) {
		data, buf, before := pattern(listLen, 1), make([]byte, listLen), p.a.registrations()
		for i := range 2 {
			sent, recv := p.sendList(data, buf, atSender)
			require.NoError(t, p.finish(recv, nil))
			require.NoError(t, p.finish(sent, nil))
			requireBytes(t, data, buf)
			if i == 0 { // with the messages that connect
				p.idle()
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
		for _, x := range []*end{&p.a, &p.b} {
			require.NoError(t, x.w.Purge())
			assert.Equal(t, before, x.registrations(), "registrations that are in use")
		}
	})
}

// TestList_CloseDuringTransfer: if an EP closes during the transfer, no registration remains in use, and each request completes.
func TestList_CloseDuringTransfer(t *testing.T) {
	overLists(t, func(t *testing.T, p *pair, atSender bool, _ *moves) {
		data, buf, before := pattern(listLen, 1), make([]byte, listLen), p.a.registrations()
		for steps := range 6 {
			sent, recv := p.sendList(data, buf, atSender)
			for range 3 * steps {
				p.a.w.Progress()
			}
			p.b.w.Progress()
			require.NoError(t, p.finish(p.a.ep.Close(CloseForce)))
			_ = p.finish(sent, nil)
			recv.Cancel() // if the message has not matched it
			_ = p.finish(recv, nil)
			for _, x := range []*end{&p.a, &p.b} {
				require.NoError(t, x.w.Purge())
				require.Equal(t, before, x.registrations())
			}
			p.connect()
		}
	})
}

// TestAllocs_List: a list allocates nothing after warm-up.
func TestAllocs_List(t *testing.T) {
	p := newPair(t, tlsets.Real("sm", "sm"), Config{RndvScheme: "get_zcopy", RndvThresh: 1}).connect()
	data, list := p.a.mem.Bytes(), cut(make([]byte, memLen), 10)
	params := &OpParams{Mem: p.a.mem}
	do := func() {
		recv, err := p.b.w.TagRecvData(Buffers(list), 1, exact, nil, nil)
		if err != nil {
			panic(err)
		}
		p.endBoth(p.a.ep.TagSend(1, data, params))
		p.endBoth(recv, nil)
	}
	for range 300 {
		do()
	}
	testenv.NoAllocs(t, "list", do)
}

// TestList_EmptyRequest: a receiver that requests no byte of a list, as an untrusted peer may, gets none.
func TestList_EmptyRequest(t *testing.T) {
	p := newPair(t, tlsets.Real("sm", "sm"), Config{RndvScheme: putScheme, RndvThresh: 1}).connect().warm()
	sent, err := p.a.ep.TagSendData(1, Buffers(cut(pattern(listLen, 1), 7)), nil)
	require.NoError(t, err)
	p.until(func() bool { return sent.awaits() })
	rtr := wire.RTR{EP: p.a.ep.id, ID: sent.remote, Recv: 1, Addr: p.b.mem.Addr(), Key: p.b.mem.Pack()}
	p.a.w.handleRTR(rtr.Append(nil), nil)
	require.NoError(t, p.finish(sent, nil))
}

// TestList_LaneReplaced: if the lane breaks after a part of a list was transferred, the transfer starts again over the
// next lane. Neither side gets an error.
func TestList_LaneReplaced(t *testing.T) {
	first, second := faketp.LikeRC(), likeRC2()
	first.Caps &^= uct.CapAM
	second.Caps &^= uct.CapAM
	for _, atSender := range []bool{true, false} {
		cfg := Config{RndvScheme: putScheme, RndvThresh: 1}
		if !atSender {
			cfg.RndvScheme = "get_zcopy"
		}
		t.Run(cfg.RndvScheme, func(t *testing.T) {
			p := newPair(t, faketp.Set("two", first, second, faketp.LikeUD()), cfg).connect().warm()
			mover := p.a.ep
			if !atSender {
				mover = p.b.peerEP(t)
				mover.requestLane(wireup.RMA)
				p.until(func() bool { return mover.lane(wireup.RMA) != nil })
			}
			data, buf := pattern(listLen, 1), make([]byte, listLen)
			sent, recv := p.sendList(data, buf, atSender)
			lane := mover.lane(wireup.RMA).EP.(*faketp.EP)
			lane.Iface.Frozen = true
			p.until(func() bool { return lane.InFlight == lane.Iface.Kind.Depth })
			lane.Fail(ucs.StatusIOError)
			lane.Iface.Frozen = false
			require.NoError(t, p.finish(sent, nil))
			require.NoError(t, p.finish(recv, nil))
			requireBytes(t, data, buf)
			assert.Positive(t, counters(mover.w)["worker.repeated_transfers"])
			require.NoError(t, p.a.ep.Err())
		})
	}
}

// TestList_AnotherDomain: a list that waits for the next lane is registered with the domain of that lane, and
// deregistered from the first one.
func TestList_AnotherDomain(t *testing.T) {
	p := newPair(t, configured("rc, two devices", twoHCAs, `\rc`), Config{RndvScheme: putScheme}).connect().warm()
	w, before := p.a.w, p.a.registrations()
	r, d := w.newRequest(p.a.ep, &putDataStage), Buffers(cut(pattern(listLen, 1), 7))
	r.pieces = p.a.ep.pieces(&d.buffer, listLen, &putList)
	require.NotNil(t, r.pieces)
	next := slices.IndexFunc(w.ifaces, func(i *iface) bool { return i != nil && putList.movesAnyLength(i) && i.domain != r.pieces.domain })
	require.GreaterOrEqual(t, next, 0)
	require.True(t, r.renewPieces(w.ifaces[next], &putList))
	require.Same(t, w.ifaces[next].domain, r.pieces.domain)
	require.Equal(t, listLen, r.pieces.len())
	for _, x := range r.pieces.pieces {
		require.NotNil(t, x.mem)
		require.Same(t, x.cached.Mem.In(w.ifaces[next].domain), x.mem)
	}
	w.freePieces(r.pieces)
	r.pieces = nil
	w.recycle(r)
	require.NoError(t, w.Purge())
	require.Equal(t, before, p.a.registrations())
}
