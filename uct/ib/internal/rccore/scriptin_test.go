package rccore

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/internal/ibport"
	"github.com/gucx/gucx/uct/ib/internal/rcwire"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// extension is an Extension that records its calls.
type extension struct {
	s         *script
	completed []verbs.WC
	control   [][]byte
	refuse    bool
	failed    []uct.EP
	lost      int
}

func (x *extension) HandleCompletion(wc verbs.WC) { x.completed = append(x.completed, wc) }
func (x *extension) HandleCQError()               { x.lost++ }
func (x *extension) HandleControl(_ uct.EP, data []byte) bool {
	x.control = append(x.control, bytes.Clone(data))
	return !x.refuse
}

func (x *extension) HandleFailure(outer uct.EP) {
	assert.NotContains(x.s.t, x.s.failed, outer, "before OnError")
	x.failed = append(x.failed, outer)
}

// words are the words that a handler has received.
type words []uint32

func (w *words) HandleNotify(word uint32) { *w = append(*w, word) }

// A message of any length up to SEG_SIZE goes to its handler, and its buffer is posted again.
func TestReceive_Message(t *testing.T) {
	const depth = 8
	s := newScript(t, Config{RxDepth: depth, SegSize: 256, FCWindow: 4})
	e := s.connected()
	var got [][]byte
	require.NoError(t, s.SetAMHandler(5, uct.AMHandlerFunc(func(data []byte, _ uct.Desc) bool {
		got = append(got, bytes.Clone(data))
		return false
	})))
	for i := range 3 * depth { // more messages than buffers
		n := []int{0, 1, 255, 256}[i%4]
		s.arrive(e, uint32(rcwire.AM(5, 0)), fillBytes(n))
		require.Len(t, got, i+1)
		require.True(t, bytes.Equal(fillBytes(n), got[i]))
	}
	assert.Empty(t, s.errs)
}

// When half of the window is due, a separate message returns the credits, unless an active message
// of the user has returned them.
func TestReceive_Credits(t *testing.T) {
	s := newScript(t, Config{RxDepth: 64, FCWindow: 4})
	e, other := s.connected(), s.connected()
	in := uint32(rcwire.AM(0, 0))
	s.arrive(e, in, nil)
	s.arrive(other, in, nil)
	assert.Empty(t, s.took(), "one of four")
	s.arrive(e, in, nil)
	assert.Equal(t, verbs.SendWR{ID: 1, Opcode: verbs.OpSendWithImm, Flags: verbs.SendSignaled, Imm: uint32(rcwire.Credits(2))}, s.one())
	assert.Zero(t, e.creditsDue)
	assert.EqualValues(t, 1, other.creditsDue)
	require.NoError(t, other.AMShort(7, 0, nil))
	assert.Equal(t, uint32(rcwire.AM(7, 1)), s.one().Imm)
	require.NoError(t, other.AMShort(7, 0, nil))
	assert.Equal(t, uint32(rcwire.AM(7, 0)), s.one().Imm, "once")
	s.arrive(other, in, nil)
	assert.Empty(t, s.took())

	// The EP can use returned credits again, from a separate or an active message.
	assert.EqualValues(t, 2, other.Credits)
	s.arrive(other, uint32(rcwire.Credits(1)), nil)
	assert.EqualValues(t, 3, other.Credits)
	s.arrive(other, uint32(rcwire.AM(0, 1)), nil)
	assert.EqualValues(t, 4, other.Credits)
	assert.Equal(t, uint32(rcwire.Credits(2)), s.one().Imm)
	assert.Empty(t, s.errs)
	s.arrive(other, uint32(rcwire.Credits(1)), nil)
	assert.Equal(t, []uct.EP{other}, s.failed, "it was granted four")
	assert.ErrorIs(t, s.errs[0], ucs.ErrRemoteInvalid)
}

// Credits for which the queue has no slot are returned later, once per EP.
func TestReceive_CreditsWithoutRoom(t *testing.T) {
	s := newScript(t, Config{RxDepth: 64, FCWindow: 2, TxDepth: 2})
	eps := []*EP{s.connected(), s.connected(), s.connected()}
	for _, e := range eps {
		require.NoError(t, e.PutShort(nil, farAddr, farKey))
		require.NoError(t, e.PutShort(nil, farAddr, farKey))
		s.took()
		s.arrive(e, uint32(rcwire.AM(0, 0)), nil)
	}
	assert.Empty(t, s.took())
	require.NoError(t, eps[1].Close()) // a closed EP returns none
	s.took()
	for _, e := range []*EP{eps[0], eps[2]} {
		s.complete(e, 1, verbs.WCSuccess)
		assert.Equal(t, uint32(rcwire.Credits(1)), s.one().Imm)
	}
	s.complete(eps[0], 3, verbs.WCSuccess)
	assert.Empty(t, s.took())
}

// Credits of messages received before Connect are returned after it.
func TestReceive_BeforeConnect(t *testing.T) {
	s := newScript(t, Config{RxDepth: 64, FCWindow: 2})
	e := s.newEP()
	s.arrive(e, uint32(rcwire.AM(0, 0)), nil)
	assert.Empty(t, s.took())
	require.NoError(t, e.Connect(s.DeviceAddr(nil), e.EPAddr(nil)))
	s.Progress()
	assert.Equal(t, uint32(rcwire.Credits(1)), s.one().Imm)
}

// An invalid message fails its EP and no other; its buffer is posted again.
func TestReceive_Malformed(t *testing.T) {
	const seg, depth = 256, 8
	am := uint32(rcwire.AM(0, 0))
	for name, tt := range map[string]struct {
		wc   verbs.WC
		want error
	}{
		"too long":        {verbs.WC{Flags: verbs.WCWithImm, Imm: am, ByteLen: seg + 1}, ucs.ErrRemoteInvalid},
		"no immediate":    {verbs.WC{Imm: am}, ucs.ErrRemoteInvalid},
		"reserved bit":    {verbs.WC{Flags: verbs.WCWithImm, Imm: 1 << 7}, ucs.ErrRemoteInvalid},
		"credits":         {verbs.WC{Flags: verbs.WCWithImm, Imm: uint32(rcwire.AM(0, 1))}, ucs.ErrRemoteInvalid},
		"no extension":    {verbs.WC{Flags: verbs.WCWithImm, Imm: uint32(rcwire.Extension())}, ucs.ErrRemoteInvalid},
		"the peer closes": {verbs.WC{Flags: verbs.WCWithImm, Imm: uint32(rcwire.Disconnect())}, ucs.ErrPeerClosed},
		"length":          {verbs.WC{Status: verbs.WCLocLenErr}, ucs.ErrTruncated},
		"memory":          {verbs.WC{Status: verbs.WCLocProtErr, Flags: verbs.WCWithImm, Imm: am}, ucs.ErrLocalAccess},
		"memory of a word": {verbs.WC{Status: verbs.WCLocProtErr, Opcode: verbs.WCRecvRDMAWithImm,
			Flags: verbs.WCWithImm}, ucs.ErrLocalAccess},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t, Config{RxDepth: depth, SegSize: seg})
			require.NoError(t, s.SetAMHandler(0, uct.AMHandlerFunc(func([]byte, uct.Desc) bool {
				t.Error("it was handled")
				return false
			})))
			if tt.wc.Opcode == 0 {
				tt.wc.Opcode = verbs.WCRecv
			}
			for range 2 * depth {
				tt.wc.QPN = 0xabcdef // of an EP that does not exist any more
				s.arriveAs(tt.wc, nil)
			}
			assert.Empty(t, s.errs)
			e, other := s.connected(), s.connected()
			for range 2 * depth {
				tt.wc.QPN = e.QPN
				s.arriveAs(tt.wc, nil)
			}
			assert.Equal(t, []uct.EP{e}, s.failed)
			require.Len(t, s.errs, 1)
			assert.ErrorIs(t, s.errs[0], tt.want)
			assert.True(t, other.Ready())
		})
	}
}

// A flushed receive waits for the event with the cause.
func TestReceive_Flushed(t *testing.T) {
	s := newScript(t, Config{})
	e := s.connected()
	s.arriveAs(verbs.WC{QPN: e.QPN, Opcode: verbs.WCRecv, Status: verbs.WCWRFlushErr}, nil)
	assert.Empty(t, s.errs)
	s.AsyncEvent(verbs.AsyncEvent{Type: verbs.EventPeerClosed, QP: e.link.(*QPLink).QP})
	assert.Equal(t, 1, s.Progress())
	require.Len(t, s.errs, 1)
	assert.ErrorIs(t, s.errs[0], ucs.ErrPeerClosed)
}

// An asynchronous event of a QP fails its EP with the status of the event. Other events have no
// effect on it.
func TestAsyncEvent(t *testing.T) {
	for typ, want := range map[verbs.EventType]error{
		verbs.EventQPFatal: ucs.ErrConnReset, verbs.EventQPReqErr: ucs.ErrIO, verbs.EventQPAccessErr: ucs.ErrIO,
		verbs.EventPeerClosed: ucs.ErrPeerClosed, verbs.EventCommEst: nil,
	} {
		s := newScript(t, Config{})
		e, other := s.connected(), s.connected()
		s.AsyncEvent(verbs.AsyncEvent{Type: typ, QP: e.link.(*QPLink).QP})
		found := s.Progress()
		if want == nil {
			assert.Empty(t, s.errs)
			assert.Zero(t, found)
			continue
		}
		require.Len(t, s.errs, 1)
		assert.ErrorIs(t, s.errs[0], want)
		assert.Equal(t, 1, found)
		assert.True(t, other.Ready())
		assert.Zero(t, s.Progress(), "once")
		s.AsyncEvent(verbs.AsyncEvent{Type: typ, QP: other.link.(*QPLink).QP})
		qp := other.link.(*QPLink).QP
		require.NoError(t, other.Close())
		s.AsyncEvent(verbs.AsyncEvent{Type: typ, QP: qp})
		assert.Zero(t, s.Progress(), "it is closed")
		assert.Len(t, s.errs, 1)
	}
	s := newScript(t, Config{})
	e := s.connected()
	s.AsyncEvent(verbs.AsyncEvent{Type: verbs.EventQPFatal})
	s.AsyncEvent(verbs.AsyncEvent{Type: verbs.EventCQErr})
	assert.Zero(t, s.Progress())
	assert.True(t, e.Ready(), "of no QP, and of another completion queue")
	s.AsyncEvent(verbs.AsyncEvent{Type: verbs.EventCQErr, CQ: s.VerbsCQ()})
	assert.Equal(t, 1, s.Progress())
	assert.ErrorIs(t, s.errs[0], ucs.ErrIO)
}

// A word goes to the handler of its EP and costs a credit. Without a handler it is dropped.
func TestNotify(t *testing.T) {
	const depth = 8
	s := newScript(t, Config{RxDepth: depth, FCWindow: 4})
	e := s.connected()
	var got words
	word := func(e *EP, w uint32) {
		s.arriveAs(verbs.WC{QPN: e.QPN, Opcode: verbs.WCRecvRDMAWithImm, Flags: verbs.WCWithImm, Imm: w, ByteLen: 1 << 20}, nil)
	}
	word(e, 1)
	assert.EqualValues(t, 1, e.creditsDue)
	e.SetNotifyHandler(&got)
	for i := range uint32(3 * depth) {
		word(e, i<<8)
		require.Len(t, got, int(i)+1)
		require.Equal(t, i<<8, got[i])
	}
	s.took()
	due := e.creditsDue
	word(&EP{QPN: 0xabcdef}, 7)
	assert.Equal(t, due, e.creditsDue)
	require.NoError(t, e.Close())
	e.SetNotifyHandler(&got)
	n := len(got)
	word(e, 9)
	assert.Len(t, got, n)
	assert.Empty(t, s.errs)
}

// Messages and completions of an extension go only to the extension.
func TestExtension(t *testing.T) {
	ext := &extension{}
	s := newScript(t, Config{TxDepth: 2, RxDepth: 8}, func(p *Params) { p.Extension = ext })
	ext.s = s
	e := s.newEP()
	assert.ErrorIs(t, e.SendControl(nil), ucs.ErrInvalidState)
	s.arrive(e, uint32(rcwire.Extension()), []byte("early"))
	assert.Empty(t, ext.control, "it is not connected")
	e = s.connected()
	assert.True(t, e.Ready())
	assert.NoError(t, e.Err())
	data := fillBytes(MaxControl)
	require.NoError(t, e.SendControl(data))
	assert.Equal(t, verbs.SendWR{ID: 1, Opcode: verbs.OpSendWithImm, Flags: verbs.SendInline | verbs.SendSignaled,
		Inline: data, Imm: uint32(rcwire.Extension())}, s.one())
	require.NoError(t, e.SendControl(data[:3]))
	assert.Equal(t, data[:3], s.one().Inline)
	assert.Equal(t, uct.ErrNoResource, e.SendControl(data))
	for range 20 {
		s.arrive(e, uint32(rcwire.Extension()), data)
	}
	assert.Len(t, ext.control, 20)
	assert.Equal(t, data, ext.control[19])
	assert.Zero(t, e.creditsDue, "they take no credit")

	wc := verbs.WC{QPN: e.QPN, ID: ExtensionID | 5, Opcode: verbs.WCRecv}
	s.wcs = append(s.wcs, wc)
	assert.Equal(t, 1, s.Progress())
	assert.Equal(t, []verbs.WC{wc}, ext.completed)
	assert.Empty(t, s.errs)
	ext.refuse = true
	s.arrive(e, uint32(rcwire.Extension()), nil)
	require.Len(t, s.errs, 1)
	assert.ErrorIs(t, s.errs[0], ucs.ErrRemoteInvalid)
	assert.Equal(t, []uct.EP{e}, ext.failed)
	assert.ErrorIs(t, e.SendControl(nil), uct.ErrEPFailed)
	assert.False(t, e.Ready())
	assert.Equal(t, s.errs[0], e.Err())
	s.arrive(e, uint32(rcwire.Extension()), data)
	assert.Len(t, ext.control, 21, "it has failed")
}

// AddPending accepts a request if any kind of operation has no resource, and the request runs when
// all have.
func TestPending(t *testing.T) {
	const depth = 2
	for name, tt := range map[string]struct {
		take    func(s *script, e *EP)
		release func(s *script, e *EP)
	}{
		"places": {
			func(_ *script, e *EP) {
				for e.PutShort(nil, farAddr, farKey) == nil {
				}
			},
			func(s *script, e *EP) { s.complete(e, 1, verbs.WCSuccess) },
		},
		"credits": {
			func(s *script, e *EP) {
				require.NoError(s.t, e.AMShort(0, 0, nil))
				s.complete(e, 1, verbs.WCSuccess)
			},
			func(s *script, e *EP) { s.arrive(e, uint32(rcwire.Credits(1)), nil) },
		},
		"ops": {
			func(s *script, _ *EP) { s.ops.freeCount, s.ops.free = 0, nil },
			func(s *script, e *EP) {
				s.ops.put(new(op))
				require.NoError(s.t, e.postNop())
				s.complete(e, e.PI, verbs.WCSuccess)
			},
		},
		"buffers": {
			func(s *script, _ *EP) {
				for s.tx.Free() > 0 {
					_, _ = s.tx.Get()
				}
			},
			func(s *script, e *EP) {
				for i := range s.cfg.TxBuffers {
					s.tx.Put(uint32(i))
				}
				require.NoError(s.t, e.postNop())
				s.complete(e, e.PI, verbs.WCSuccess)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t, Config{TxDepth: depth, FCWindow: 1, RxDepth: 64})
			e := s.connected()
			ran := 0
			r := &uct.PendingReq{Func: func(*uct.PendingReq) error { ran++; return nil }}
			assert.Equal(t, uct.ErrBusy, e.AddPending(r))
			tt.take(s, e)
			require.NoError(t, e.AddPending(r))
			assert.Equal(t, uct.ErrNoResource, e.PutShort(nil, farAddr, farKey), "nothing overtakes it")
			assert.Equal(t, uct.ErrNoResource, e.AMShort(0, 0, nil))
			_, err := e.PutZcopy(s.pieces(2), farAddr, farKey, nil)
			assert.Equal(t, uct.ErrNoResource, err)
			second := &uct.PendingReq{Func: r.Func}
			require.NoError(t, e.AddPending(second))
			var purged []*uct.PendingReq
			e.PurgePending(func(r *uct.PendingReq) { purged = append(purged, r) })
			assert.Equal(t, []*uct.PendingReq{r, second}, purged)
			require.NoError(t, e.AddPending(r))
			s.Progress()
			assert.Zero(t, ran, "nothing has become free")
			tt.release(s, e)
			assert.Equal(t, 1, ran)
			require.NoError(t, e.PutShort(nil, farAddr, farKey))
			assert.ErrorIs(t, s.newEP().AddPending(r), ucs.ErrInvalidState)
		})
	}
}

// An EP reserves slots of the completion queue as it needs them, and other EPs get the slots that it
// does not use.
func TestLeases_Script(t *testing.T) {
	s := newScript(t, Config{TxDepth: 64, TxCQDepth: reserveStep + 4})
	a, b := s.connected(), s.connected()
	put := func(e *EP) error { return e.PutShort(nil, farAddr, farKey) }
	require.NoError(t, put(a))
	assert.Equal(t, 4, s.cqFree)
	require.NoError(t, put(b))
	assert.Zero(t, s.cqFree)
	for range reserveStep - 1 {
		require.NoError(t, put(a))
	}
	for range 3 {
		require.NoError(t, put(b))
	}
	assert.Equal(t, uct.ErrNoResource, put(b))
	assert.Equal(t, uct.ErrNoResource, put(a))
	s.complete(a, reserveStep-2, verbs.WCSuccess)
	for range reserveStep - 2 {
		require.NoError(t, put(b))
	}
	assert.Equal(t, uct.ErrNoResource, put(b))
	assert.Equal(t, uct.ErrNoResource, put(a))
	assert.EqualValues(t, 2, a.cqSlots, "what it uses")
	s.complete(a, a.PI, verbs.WCSuccess)
	require.NoError(t, a.Close()) // the disconnect message needs one slot
	require.NoError(t, put(b), "also of one that is closing")
	assert.Equal(t, uct.ErrNoResource, put(b))
}

// roomLink is a link over a queue that several EPs share.
type roomLink struct {
	Link
	room *int
}

func (l roomLink) Reserve(n int) int { n = min(n, *l.room); *l.room -= n; return n }
func (l roomLink) Unreserve(n int)   { *l.room += n }

// If a shared queue is full, an EP gets places that other EPs reserve without using them, also if
// the completion queue has only one free slot.
func TestLeases_SharedQueue(t *testing.T) {
	s := newScript(t, Config{TxDepth: 64, TxCQDepth: reserveStep + 1})
	a, b := s.connected(), s.connected()
	room := reserveStep
	a.link, b.link = roomLink{a.link, &room}, roomLink{b.link, &room}
	put := func(e *EP) error { return e.PutShort(nil, farAddr, farKey) }
	require.NoError(t, put(a))
	assert.Zero(t, room)
	assert.Equal(t, 1, s.cqFree)
	for range reserveStep - 1 {
		require.NoError(t, put(b))
	}
	assert.Equal(t, uct.ErrNoResource, put(b))
	assert.Equal(t, uct.ErrNoResource, put(a))
	s.complete(a, 1, verbs.WCSuccess)
	require.NoError(t, put(b))
	s.complete(b, b.PI, verbs.WCSuccess)
	for _, e := range []*EP{a, b} {
		require.NoError(t, e.Close())
		s.complete(e, e.PI, verbs.WCSuccess)
	}
	assert.Equal(t, reserveStep, room)
	assert.Equal(t, s.cfg.TxCQDepth, s.cqFree)
}

// Unsignaled work requests of all EPs use at most half of the completion queue, and EPs above the
// limit post a signaled one.
func TestModeration_Shares(t *testing.T) {
	s := newScript(t, Config{TxDepth: 64, TxCQDepth: 32, Moderation: 12})
	a := s.connected()
	assert.EqualValues(t, 12, s.Moderation)
	for range 8 {
		require.NoError(t, a.PutShort(nil, farAddr, farKey))
	}
	s.complete(a, 1, verbs.WCSuccess) // 7 are unsignaled
	b := s.connected()
	assert.EqualValues(t, 8, s.Moderation)
	s.took()
	s.Progress()
	assert.Empty(t, s.took())
	c := s.connected()
	assert.EqualValues(t, 5, s.Moderation)
	s.Progress()
	assert.EqualValues(t, 9, s.one().ID)
	s.complete(a, 9, verbs.WCSuccess)
	for _, e := range []*EP{b, c} {
		require.NoError(t, e.Close())
		s.complete(e, e.PI, verbs.WCSuccess)
	}
	assert.EqualValues(t, 12, s.Moderation)
}

// The address of an EP contains the parameters that the peer needs.
func TestNewEP_Addr(t *testing.T) {
	s := newScript(t, Config{SegSize: 2048, FCWindow: 9, MaxRDAtomic: 3})
	e := s.newEP()
	got, err := rcwire.ParseEPAddr(e.EPAddr(nil))
	require.NoError(t, err)
	l := e.link.(*QPLink)
	assert.Equal(t, rcwire.EPAddr{MTU: s.Port().Attr.ActiveMTU, MaxReads: 3, QPN: l.QP.Number(), PSN: l.psn, SegLen: 2048, Credits: 9}, got)
	assert.Equal(t, uct.EP(e), s.Find(e.QPN))
	assert.Len(t, e.EPAddr(nil), s.Attr().EPAddrLen)
	got.Credits = 5
	require.NoError(t, e.Connect(s.DeviceAddr(nil), got.Append(nil)))
	assert.EqualValues(t, 5, e.Credits, "what the peer grants")
}

// Connect sets the QP attributes from the configuration and the address of the peer.
func TestConnect_QP(t *testing.T) {
	s := newScript(t, Config{MaxRDAtomic: 5, Timeout: 4096 << 9, RetryCount: 3, RNRTimeout: 40 * time.Microsecond})
	e := s.newEP()
	l := e.link.(*QPLink)
	access := verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic
	at := l.QP.Query()
	assert.Equal(t, verbs.QPStateInit, at.State)
	assert.Equal(t, access, at.AccessFlags)
	assert.EqualValues(t, 1, at.Port)
	peer := rcwire.EPAddr{MTU: verbs.MTU512, MaxReads: 2, QPN: e.QPN, PSN: 0x123456, SegLen: uint32(s.cfg.SegSize), Credits: 1}
	require.NoError(t, e.Connect(s.DeviceAddr(nil), peer.Append(nil)))
	at = l.QP.Query()
	at.Cap, at.AH, at.CurState = verbs.QPCap{}, verbs.AHAttr{}, 0
	assert.Equal(t, verbs.QPAttr{State: verbs.QPStateRTS, PathMTU: verbs.MTU512, RQPSN: 0x123456, SQPSN: l.psn, DestQPN: e.QPN,
		AccessFlags: access, MaxRDAtomic: 2, MaxDestRD: 5, MinRNRTimer: 4, Port: 1, Timeout: 9, RetryCnt: 3, RNRRetry: verbs.RNRForever}, at)

	far := peer
	far.MTU, far.MaxReads = verbs.MTU4096, 99
	e = s.newEP()
	require.NoError(t, e.Connect(s.DeviceAddr(nil), far.Append(nil)))
	at = e.link.(*QPLink).QP.Query()
	assert.Equal(t, s.Port().Attr.ActiveMTU, at.PathMTU)
	assert.EqualValues(t, 5, at.MaxRDAtomic)
	short := peer
	short.SegLen--
	assert.ErrorIs(t, s.newEP().Connect(s.DeviceAddr(nil), short.Append(nil)), uct.ErrInvalidParam)
}

// NewEP returns an error if the QP supports less inline data than the iface declares.
func TestNewEP_InsufficientInline(t *testing.T) {
	s := newScript(t, Config{})
	s.MaxInline = 1 << 20
	_, err := s.NewEP(uct.EPParams{})
	assert.ErrorIs(t, err, uct.ErrNoMemory)
	assert.Zero(t, s.eps.n)
	s.MaxInline = 128
	s.newEP()
}

// Progress does not poll a queue whose watch is idle, unless it has other work.
func TestProgress_Watch(t *testing.T) {
	s := newScript(t, Config{})
	word := uint32(1)
	s.watch = &ucs.Watch{Word: &word, Quiet: 1, Attention: new(uint32)}
	s.polls = 0
	assert.Zero(t, s.Progress())
	assert.Zero(t, s.polls)
	s.raise(attnDeferred)
	assert.Zero(t, s.Progress())
	assert.Equal(t, 1, s.polls)
	assert.Zero(t, s.Progress())
	assert.Equal(t, 1, s.polls, "it is done")
	word = 2
	assert.Zero(t, s.Progress())
	assert.Equal(t, 2, s.polls)
	assert.Equal(t, s.watch, s.Watch())
	word = 1
	s.watch.Quiet = 0 // the cleanup must poll
}

// Zero selects the default, and each limit itself is valid.
func TestConfig_Defaults(t *testing.T) {
	c, err := Config{}.withDefaults()
	require.NoError(t, err)
	assert.Equal(t, Config{TxDepth: 256, TxCQDepth: 4096, TxBuffers: 256, TxMaxInline: 128, TxMaxSGE: 5, Moderation: 64, MaxPoll: 16,
		RxDepth: 1024, SegSize: 8256, FCWindow: 128, Timeout: defaultTimeout, RetryCount: 7, RNRTimeout: defaultRNRTimeout,
		MaxRDAtomic: 16, IB: c.IB}, c)
	set, err := Config{Timeout: 7, RNRTimeout: 8}.withDefaults()
	require.NoError(t, err)
	assert.EqualValues(t, 7, set.Timeout)
	assert.EqualValues(t, 8, set.RNRTimeout)
	for name, tt := range map[string]struct {
		set       func(c *Config, v int)
		low, high int
	}{
		"TX_QUEUE_LEN":     {func(c *Config, v int) { c.TxDepth = v }, 1, 1 << 15},
		"TX_CQ_LEN":        {func(c *Config, v int) { c.TxCQDepth = v }, 1, 1 << 20},
		"TX_BUFS":          {func(c *Config, v int) { c.TxBuffers = v }, 1, 1 << 20},
		"TX_MAX_SGE":       {func(c *Config, v int) { c.TxMaxSGE = v }, 2, 16},
		"TX_CQ_MODERATION": {func(c *Config, v int) { c.Moderation = v }, 1, 1 << 15},
		"MAX_POLL":         {func(c *Config, v int) { c.MaxPoll = v }, 1, 1 << 10},
		"RX_QUEUE_LEN":     {func(c *Config, v int) { c.RxDepth = v }, 4, 1 << 15},
		"FC_WND_SIZE":      {func(c *Config, v int) { c.FCWindow = v }, 1, 1<<16 - 1},
		"RETRY_COUNT":      {func(c *Config, v int) { c.RetryCount = v }, 1, 7},
		"MAX_RD_ATOMIC":    {func(c *Config, v int) { c.MaxRDAtomic = v }, 1, 255},
	} {
		for _, v := range []int{tt.low, tt.high} {
			var c Config
			tt.set(&c, v)
			assert.NoError(t, c.Validate(), "%s=%d", name, v)
		}
		for _, v := range []int{tt.low - 1, tt.high + 1} {
			var c Config
			tt.set(&c, v)
			if v != 0 { // the default
				assert.ErrorIs(t, c.Validate(), uct.ErrInvalidParam, "%s=%d", name, v)
			}
		}
	}
	for _, tt := range []struct {
		c  Config
		ok bool
	}{
		{Config{SegSize: 8, TxMaxInline: 8}, true},
		{Config{SegSize: 7, TxMaxInline: 7}, false},
		{Config{SegSize: 1 << 20}, true},
		{Config{SegSize: 1<<20 + 1}, false},
		{Config{TxMaxInline: 7}, false},
		{Config{TxMaxInline: 512, SegSize: 512}, true},
		{Config{TxMaxInline: 513, SegSize: 512}, false},
	} {
		assert.Equal(t, tt.ok, tt.c.Validate() == nil, "%v", tt.c)
	}
}

// The limits of the device reduce the configuration; an unknown limit has no effect.
func TestFit(t *testing.T) {
	c, err := Config{}.withDefaults()
	require.NoError(t, err)
	big := verbs.DeviceAttr{MaxQPWR: 1 << 20, MaxSGE: 64, MaxSRQWR: 1 << 20, MaxCQE: 1 << 24, MaxRDAtomic: 99, MaxInitRD: 99, MaxInline: 4096}
	want := c
	want.Moderation = 64 // a quarter of TxDepth
	assert.Equal(t, want, limitToDevice(c, big, 0))
	assert.Equal(t, want, limitToDevice(c, verbs.DeviceAttr{MaxInline: 128}, 0))
	got := limitToDevice(c, verbs.DeviceAttr{MaxQPWR: 100, MaxSGE: 3, MaxSRQWR: 200, MaxCQE: 1000, MaxRDAtomic: 4, MaxInitRD: 6, MaxInline: 60}, 50)
	want = c
	want.TxDepth, want.Moderation, want.TxMaxSGE, want.RxDepth, want.FCWindow = 100, 25, 3, 200, 100
	want.TxCQDepth = 1000 - 200 - 16 - 50
	want.MaxRDAtomic, want.TxMaxInline = 4, 60
	assert.Equal(t, want, got)
	got = limitToDevice(c, verbs.DeviceAttr{MaxRDAtomic: 8, MaxInitRD: 2}, 0)
	assert.Equal(t, 2, got.MaxRDAtomic)
}

// Attr contains the limits of the operations.
func TestAttr(t *testing.T) {
	for _, seg := range []int{200, 4096} {
		s := newScript(t, Config{SegSize: config.MemSize(seg), TxMaxSGE: 4})
		a := s.Attr()
		msg := s.MD().MaxMessage()
		assert.Equal(t, uct.OpLimits{MaxShort: 128, MaxBcopy: seg, MaxZcopy: seg, MaxIOV: 3, MaxHeader: min(seg, 256)}, a.AM)
		assert.Equal(t, uct.OpLimits{MaxShort: 128, MaxBcopy: seg, MaxZcopy: msg, MaxIOV: 4}, a.Put)
		assert.Equal(t, uct.OpLimits{MaxBcopy: seg, MaxZcopy: msg, MaxIOV: 4}, a.Get)
		assert.Equal(t, ibport.DeviceAddrLen, a.DeviceAddrLen)
		assert.Equal(t, rcwire.EPAddrLen, a.EPAddrLen)
		e := s.connected()
		iov := s.pieces(5)
		full := []uct.IOV{{Buf: s.memory.Bytes()[:seg], Mem: s.memory}}
		more := []uct.IOV{{Buf: s.memory.Bytes()[:seg+1], Mem: s.memory}}
		second := func(_ bool, err error) error { return err }
		bcopy := func(n int) error { _, err := e.AMBcopy(31, &fill{n}); return err }
		for name, tt := range map[string]struct{ most, more error }{
			"am short":     {e.AMShort(31, 0, make([]byte, 120)), e.AMShort(0, 0, make([]byte, 121))},
			"am pieces":    {second(e.AMZcopy(31, nil, iov[:3], nil)), second(e.AMZcopy(0, nil, iov[:4], nil))},
			"am header":    {second(e.AMZcopy(0, make([]byte, a.AM.MaxHeader), nil, nil)), second(e.AMZcopy(0, make([]byte, a.AM.MaxHeader+1), nil, nil))},
			"am zcopy":     {second(e.AMZcopy(0, nil, full, nil)), second(e.AMZcopy(0, nil, more, nil))},
			"am both":      {second(e.AMZcopy(0, make([]byte, 8), []uct.IOV{{Buf: s.memory.Bytes()[:seg-8], Mem: s.memory}}, nil)), second(e.AMZcopy(0, make([]byte, 8), []uct.IOV{{Buf: s.memory.Bytes()[:seg-7], Mem: s.memory}}, nil))},
			"put short":    {e.PutShort(make([]byte, 128), 0, 0), e.PutShort(make([]byte, 129), 0, 0)},
			"put bcopy":    {e.PutBcopy(make([]byte, seg), 0, 0), e.PutBcopy(make([]byte, seg+1), 0, 0)},
			"put pieces":   {second(e.PutZcopy(iov[:4], 0, 0, nil)), second(e.PutZcopy(iov, 0, 0, nil))},
			"get bcopy":    {second(e.GetBcopy(make([]byte, seg), 0, 0, nil)), second(e.GetBcopy(make([]byte, seg+1), 0, 0, nil))},
			"get pieces":   {second(e.GetZcopy(iov[:4], 0, 0, nil)), second(e.GetZcopy(iov, 0, 0, nil))},
			"notify bcopy": {e.NotifyBcopy(make([]byte, seg), 0, 0, 0), e.NotifyBcopy(make([]byte, seg+1), 0, 0, 0)},
			"notify":       {second(e.NotifyZcopy(iov[:4], 0, 0, 0, nil)), second(e.NotifyZcopy(iov, 0, 0, 0, nil))},
		} {
			assert.NoError(t, tt.most, name)
			assert.Equal(t, uct.ErrTooLong, tt.more, name)
		}
		require.NoError(t, bcopy(8))
		assert.Equal(t, uct.ErrInvalidParam, e.AMShort(32, 0, nil))
		_, err := e.AMBcopy(32, &fill{1})
		assert.Equal(t, uct.ErrInvalidParam, err)
		assert.Equal(t, uct.ErrInvalidParam, second(e.AMZcopy(32, nil, nil, nil)))
	}
}
