package ucp

import (
	"encoding/binary"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
	p, w := x.p, x.p.a.w
	p.b.w.OnActive(keptID, func(m *ActiveMessage) { m.Keep() })
	r, err := x.bad.SendActive(keptID, nil, make([]byte, 100_000), nil)
	require.NoError(t, err)
	p.until(func() bool { return r.remote != 0 && r.awaits() })
	x.handle(hostileMsg{wire.AMRTR, namesEP | namesRequest, (&wire.RTR{Length: 100_000, Recv: 9}).Append(nil)})
	require.Equal(t, placeDelegated, r.place())
	bad := w.stats.badMessages.Load()
	x.handle(hostileMsg{wire.AMAnswer, namesEP | namesRequest, make([]byte, wire.AnswerLen)})
	require.Equal(t, bad+1, w.stats.badMessages.Load())
	require.False(t, r.Done())
	require.NoError(t, p.finish(r, nil))
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
		return hostileMsg{wire.AMTagFirst, namesEP, (&wire.Part{Value: maxEager, ID: 1}).Append(hostileHead(9))}
	},
	"kept": func(int) hostileMsg {
		return hostileMsg{wire.AMActive, namesEP, append(hostileHead(activeWord(keptID, nil)), make([]byte, 1000)...)}
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
			w := x.p.a.w
			var kept []*ActiveMessage
			w.OnActive(keptID, func(m *ActiveMessage) { kept = append(kept, m.Keep()) })
			for i := 0; x.bad.Err() == nil; i++ {
				require.LessOrEqual(t, i, (victimWindow+window.MaxReserve)/messageCharge, "the limit is not enforced")
				x.handle(next(i))
			}
			require.ErrorIs(t, x.bad.Err(), ucs.ErrRemoteInvalid)
			require.ErrorContains(t, x.bad.Err(), "more than its credit")
			x.bounded()
			x.othersWork()
			for _, m := range kept {
				m.Release()
			}
			for m := range w.tag.table.Messages() {
				assert.Nil(t, m.Owner.in, "the rest was dropped")
			}
			x.allEnd()
		})
	}
}

// TestMessages_Flood: a peer whose messages are not received waits when it has no more credit. Another peer has as much
// credit as before.
func TestMessages_Flood(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.grown()
		other, err := p.a.w.NewEP(p.b.w.Address(), EPConfig{})
		require.NoError(t, err)
		const size = 1000
		var waiting []*Request
		for p.a.ep.msgs.Credit >= charge(size) || len(waiting) < 100 {
			r, err := p.a.ep.TagSend(1, pattern(size, 1), nil)
			require.NoError(t, err)
			if r != nil {
				waiting = append(waiting, r)
			}
			p.step()
		}
		for i := range 300 {
			data, buf := pattern(size, i), make([]byte, size)
			r, err := other.TagSend(2, data, nil)
			require.NoError(t, err)
			require.NoError(t, p.finish(p.b.w.TagRecv(buf, 2, exact, nil, nil)))
			require.NoError(t, p.finish(r, nil))
			requireBytes(t, data, buf)
		}
		require.LessOrEqual(t, p.unreceived(), 2*(defaultEagerWindow+2*window.MaxReserve))
		require.False(t, waiting[len(waiting)-1].Done())
		for _, r := range waiting {
			buf := make([]byte, size)
			for !r.Done() {
				require.NoError(t, p.finish(p.b.w.TagRecv(buf, 1, exact, nil, nil)))
				requireBytes(t, pattern(size, 1), buf)
				p.step()
			}
			require.NoError(t, r.take())
		}
	})
}

// unreceived returns the memory that b uses for unreceived messages, in bytes.
func (p *pair) unreceived() (n int) {
	for m := range p.b.w.tag.table.Messages() {
		n += cap(m.Owner.buf)
	}
	return n
}

// TestMessages_HugeAnnouncement: the length that a peer announces to an Unpacker allocates no memory. The Unpacker gets
// data as it arrives, and fails with the peer.
func TestMessages_HugeAnnouncement(t *testing.T) {
	x := newVictim(t)
	w, to := x.p.a.w, &drain{t: t, most: 500}
	r, err := w.TagRecvData(To(to), 9, exact, nil, nil)
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
	x.bad.fail(ucs.StatusConnReset, ucs.ErrConnReset, nil)
	x.p.until(r.Done)
	require.Equal(t, 1, to.finished)
	require.ErrorIs(t, to.err, ucs.ErrTruncated)
	x.othersWork()
	x.allEnd()
}

// TestMessages_LongKeys: keys of unreceived announcements count for the limit of a peer.
func TestMessages_LongKeys(t *testing.T) {
	x := newVictim(t)
	w := x.p.a.w
	key, most := make([]byte, 1900), 0
	for i := 0; x.bad.Err() == nil; i++ {
		rts := &wire.RTS{ID: uint64(i + 1), Length: 1 << 20, Key: key}
		x.handle(hostileMsg{wire.AMTagRTS, namesEP, rts.Append(hostileHead(9))})
		kept := 0
		for m := range w.tag.table.Messages() {
			kept += cap(m.Owner.buf)
		}
		most = max(most, kept)
	}
	assert.LessOrEqual(t, most, 2*(victimWindow+window.MaxReserve))
	x.allEnd()
}

// TestMessages_LaterVersion: an active message that this version does not know fails the connection of its id on both
// sides, and the error says why.
func TestMessages_LaterVersion(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		if p.oneself() {
			t.Skip("one worker")
		}
		p.both()
		a, b := p.a.ep, p.b.ep
		for _, x := range []*EP{a, b} {
			require.NoError(t, p.finish(x.TagSend(1, nil, nil)))
		}
		p.idle()
		for _, short := range []bool{true, false} {
			msg := packer(binary.LittleEndian.AppendUint64(nil, a.link.conn.RemoteEP()))
			if short {
				msg = msg[:wire.NameLen-1]
			}
			bad := p.b.w.stats.badMessages.Load()
			_, err := a.lane(wireup.AM).AM.AMBcopy(uct.MaxAMID, msg)
			require.NoError(t, err)
			p.until(func() bool { return p.b.w.stats.badMessages.Load() > bad })
			require.Equal(t, short, b.Err() == nil)
		}
		require.ErrorIs(t, b.Err(), ucs.ErrUnsupported)
		require.ErrorContains(t, b.Err(), "active message 31, of a later version")
		p.until(func() bool { return a.Err() != nil })
		if strings.HasSuffix(t.Name(), "/tcp") { // otherwise the lane may fail before the reason arrives
			require.ErrorContains(t, a.Err(), "failed at the peer, unsupported operation")
		}
	})
}

// packer packs a given message.
type packer []byte

func (p packer) Pack(dst []byte) int { return copy(dst, p) }
