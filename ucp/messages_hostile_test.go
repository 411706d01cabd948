package ucp_test

import (
	"encoding/binary"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/internal/window"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// TestMessages_ForgedAtomicReply: a peer cannot complete a message whose data is in flight with a reply to an atomic:
// the caller would get its buffer back while it is read.
func TestMessages_ForgedAtomicReply(t *testing.T) {
	x := newVictim(t)
	p, w := x.p, x.p.A.W
	p.B.W.OnActive(keptID, func(m *ucp.ActiveMessage) { m.Keep() })
	r, err := x.bad.SendActive(keptID, nil, make([]byte, 100_000), nil)
	require.NoError(t, err)
	p.Until(func() bool { return r.RemoteID() != 0 && r.Awaits() })
	x.handle(hostileMsg{wire.AMRTR, namesEP | namesRequest, (&wire.RTR{Length: 100_000, Recv: 9}).Append(nil)})
	require.True(t, r.Delegated())
	bad := w.BadMessages().Load()
	x.handle(hostileMsg{wire.AMAnswer, namesEP | namesRequest, make([]byte, wire.AnswerLen)})
	require.Equal(t, bad+1, w.BadMessages().Load())
	require.False(t, r.Done())
	require.NoError(t, p.Finish(r, nil))
}

// floods are messages that a peer sends again and again, beyond its credit.
var floods = map[string]func(i int) hostileMsg{
	"tag": func(int) hostileMsg {
		return hostileMsg{wire.AMTag, namesEP, append(hostileHead(9), make([]byte, 1000)...)}
	},
	"synchronous": func(i int) hostileMsg {
		return hostileMsg{wire.AMTagSync, namesEP, (&wire.Part{ID: uint64(i + 1)}).Append(hostileHead(9))}
	},
	"first fragments of tags": func(i int) hostileMsg {
		return hostileMsg{wire.AMTagFirst, namesEP, (&wire.Part{Value: 3000, ID: uint64(i)}).Append(hostileHead(9))}
	},
	"a long tag": func(int) hostileMsg {
		return hostileMsg{wire.AMTagFirst, namesEP, (&wire.Part{Value: ucp.MaxEager, ID: 1}).Append(hostileHead(9))}
	},
	"kept": func(int) hostileMsg {
		return hostileMsg{wire.AMActive, namesEP, append(hostileHead(ucp.ActiveWord(keptID, nil)), make([]byte, 1000)...)}
	},
	"first fragments": func(i int) hostileMsg {
		return hostileMsg{wire.AMActiveFirst, namesEP, (&wire.Part{Value: 3000, ID: uint64(i)}).Append(hostileHead(keptID))}
	},
	"announcements": func(i int) hostileMsg {
		return hostileMsg{wire.AMActiveRTS, namesEP, (&wire.RTS{ID: uint64(i + 1), Length: 1 << 30}).Append(hostileHead(keptID))}
	},
	"stream": func(i int) hostileMsg {
		return hostileMsg{wire.AMStream, namesEP, append(hostileHead(uint64(1000*i)), make([]byte, 1000)...)}
	},
}

// hostileHead returns the head of a message. hostileMsg sets its id.
func hostileHead(word uint64) []byte { return (&wire.Head{Word: word}).Append(nil) }

// TestMessages_NoCredit: a peer that sends more than its credit fails, the memory that the worker uses for it is
// limited, and other peers are not affected.
func TestMessages_NoCredit(t *testing.T) {
	for name, next := range floods {
		t.Run(name, func(t *testing.T) {
			x := newVictim(t)
			w := x.p.A.W
			var kept []*ucp.ActiveMessage
			w.OnActive(keptID, func(m *ucp.ActiveMessage) { kept = append(kept, m.Keep()) })
			for i := 0; x.bad.Err() == nil; i++ {
				require.LessOrEqual(t, i, (victimWindow+window.MaxReserve)/window.MessageCharge, "the limit is not enforced")
				x.handle(next(i))
			}
			require.ErrorIs(t, x.bad.Err(), ucs.ErrRemoteInvalid)
			require.ErrorContains(t, x.bad.Err(), "more than its credit")
			x.bounded()
			x.othersWork()
			for _, m := range kept {
				m.Release()
			}
			for m := range w.Tags().Messages() {
				assert.False(t, m.Owner.Incomplete(), "the rest was dropped")
			}
			x.allEnd()
		})
	}
}

// TestMessages_Flood: a peer whose messages are not received waits when it has no more credit. Another peer has as much
// credit as before.
func TestMessages_Flood(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		growWindow(p)
		other, err := p.A.W.NewEP(p.B.W.Address(), ucp.EPConfig{})
		require.NoError(t, err)
		const size = 1000
		var waiting []*ucp.Request
		for p.A.EP.Messages().Credit >= window.Charge(size) || len(waiting) < 100 {
			r, err := p.A.EP.TagSend(1, testenv.Pattern(size, 1), nil)
			require.NoError(t, err)
			if r != nil {
				waiting = append(waiting, r)
			}
			p.Step()
		}
		for i := range 300 {
			data, buf := testenv.Pattern(size, i), make([]byte, size)
			r, err := other.TagSend(2, data, nil)
			require.NoError(t, err)
			require.NoError(t, p.Finish(p.B.W.TagRecv(buf, 2, exact, nil, nil)))
			require.NoError(t, p.Finish(r, nil))
			testenv.RequireBytes(t, data, buf)
		}
		require.LessOrEqual(t, unreceivedBytes(p), 2*(ucp.DefaultEagerWindow+2*window.MaxReserve))
		require.False(t, waiting[len(waiting)-1].Done())
		for _, r := range waiting {
			buf := make([]byte, size)
			for !r.Done() {
				require.NoError(t, p.Finish(p.B.W.TagRecv(buf, 1, exact, nil, nil)))
				testenv.RequireBytes(t, testenv.Pattern(size, 1), buf)
				p.Step()
			}
			require.NoError(t, r.Take())
		}
	})
}

// unreceivedBytes returns the memory that b uses for unreceived messages, in bytes.
func unreceivedBytes(p *ucppair.Pair) (n int) {
	for m := range p.B.W.Tags().Messages() {
		n += m.Owner.BufferLen()
	}
	return n
}

// TestMessages_HugeAnnouncement: the length that a peer announces to an Unpacker allocates no memory. The Unpacker gets
// data as it arrives, and fails with the peer.
func TestMessages_HugeAnnouncement(t *testing.T) {
	x := newVictim(t)
	w, to := x.p.A.W, &drain{t: t, most: 500}
	r, err := w.TagRecvData(ucp.To(to), 9, exact, nil, nil)
	require.NoError(t, err)
	x.track(r, err)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	x.handle(hostileMsg{wire.AMTagRTS, namesEP, (&wire.RTS{ID: 7, Length: 1 << 30}).Append(hostileHead(9))})
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
	for i := range 3 {
		x.handle(hostileMsg{wire.AMData, namesEP | namesRequest, frag(0, 0, uint64(200*i), 200)})
	}
	require.Len(t, to.data, 400, "it rejects more")
	require.False(t, r.Done())
	x.bad.Fail(ucs.StatusConnReset, ucs.ErrConnReset, nil)
	x.p.Until(r.Done)
	require.Equal(t, 1, to.finished)
	require.ErrorIs(t, to.err, ucs.ErrTruncated)
	x.othersWork()
	x.allEnd()
}

// TestMessages_LongKeys: keys of unreceived announcements count for the limit of a peer.
func TestMessages_LongKeys(t *testing.T) {
	x := newVictim(t)
	w := x.p.A.W
	key, most := make([]byte, 1900), 0
	for i := 0; x.bad.Err() == nil; i++ {
		rts := &wire.RTS{ID: uint64(i + 1), Length: 1 << 20, Key: key}
		x.handle(hostileMsg{wire.AMTagRTS, namesEP, rts.Append(hostileHead(9))})
		kept := 0
		for m := range w.Tags().Messages() {
			kept += m.Owner.BufferLen()
		}
		most = max(most, kept)
	}
	assert.LessOrEqual(t, most, 2*(victimWindow+window.MaxReserve))
	x.allEnd()
}

// TestMessages_LaterVersion: an active message that this version does not know fails the connection of its id on both
// sides, and the error says why.
func TestMessages_LaterVersion(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		if p.Oneself() {
			t.Skip("one worker")
		}
		p.Both()
		a, b := p.A.EP, p.B.EP
		for _, x := range []*ucp.EP{a, b} {
			require.NoError(t, p.Finish(x.TagSend(1, nil, nil)))
		}
		idle(p)
		for _, short := range []bool{true, false} {
			msg := packer(binary.LittleEndian.AppendUint64(nil, a.Handshake().RemoteEP()))
			if short {
				msg = msg[:wire.NameLen-1]
			}
			bad := p.B.W.BadMessages().Load()
			_, err := a.Lane(wireup.AM).AM.AMBcopy(uct.MaxAMID, msg)
			require.NoError(t, err)
			p.Until(func() bool { return p.B.W.BadMessages().Load() > bad })
			require.Equal(t, short, b.Err() == nil)
		}
		require.ErrorIs(t, b.Err(), ucs.ErrUnsupported)
		require.ErrorContains(t, b.Err(), "active message 31, of a later version")
		p.Until(func() bool { return a.Err() != nil })
		if strings.HasSuffix(t.Name(), "/tcp") { // otherwise the lane may fail before the reason arrives
			require.ErrorContains(t, a.Err(), "failed at the peer, unsupported operation")
		}
	})
}

// packer packs a given message.
type packer []byte

func (p packer) Pack(dst []byte) int { return copy(dst, p) }
