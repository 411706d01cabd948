package udcore

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/race"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/internal/dgram"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// TestLoss_NoReceiveBuffer: datagrams without a receive buffer are lost, and all messages arrive in
// order for any window.
func TestLoss_NoReceiveBuffer(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		for _, window := range []int{1, 2, 16, 200} {
			md := over.newMD(t)
			a := newSide(t, md, Config{Window: window})
			b := newSide(t, md, Config{RxDepth: 4})
			ab := a.epTo(b)
			const total = 250 // more than a window
			sent, rounds := uint64(0), 0
			until(t, func() bool {
				for sent < total && ab.AMShort(0, sent, nil) == nil {
					sent++
				}
				rounds++
				if rounds%4 == 0 { // the receiver is slow
					b.it.Progress()
				}
				return len(b.got) == total
			}, a)
			assert.Equal(t, upTo(total), b.got)
			until(t, func() bool { return ab.c.proto.Unacked() == 0 }, a, b)
			assert.Equal(t, a.it.core.cfg.TxBuffers, a.it.core.pool.Free())
			assert.Zero(t, a.it.core.active.Len())
			assert.Empty(t, a.errs)
		}
	})
}

func TestAcks_TravelWithMessages(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b := over.pair(t, Config{}, Config{})
		ab, ba := a.epTo(b), b.epTo(a)
		require.NoError(t, b.it.SetAMHandler(1, uct.AMHandlerFunc(func([]byte, uct.Desc) bool {
			ba.send(t, 0)
			return false
		})))
		ab.send(t, 0)
		arrive(t, func() bool { return len(b.got) == 1 && ab.c.proto.Unacked() == 0 }, a, b)
		sentByB := b.it.core.pi
		for i := range 50 {
			require.NoError(t, ab.AMShort(1, 0, nil))
			arrive(t, func() bool { return len(a.got) > i }, a, b)
		}
		assert.EqualValues(t, 50, b.it.core.pi-sentByB, "replies, and no other acknowledgements")
	})
}

func TestFlush(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b := over.pair(t, Config{}, Config{})
		ab, idle := a.epTo(b), a.epTo(b)
		pending, err := ab.Flush(nil)
		require.NoError(t, err)
		assert.False(t, pending)
		var st []uct.Status
		c := func() *uct.Completion {
			return &uct.Completion{Count: 1, Func: func(c *uct.Completion) { st = append(st, c.Status) }}
		}
		for i := range uint64(3) {
			ab.send(t, i)
		}
		for _, flush := range []struct {
			of      string
			f       func(*uct.Completion) (bool, error)
			pending bool
		}{{"ep", ab.Flush, true}, {"iface", a.it.Flush, true}, {"idle ep", idle.Flush, false}} {
			pending, err := flush.f(c())
			require.NoError(t, err, flush.of)
			assert.Equal(t, flush.pending, pending, flush.of)
			assert.Empty(t, st, flush.of)
		}
		progressUntilIdle(a)
		assert.Empty(t, st, "no Progress of the peer yet")
		until(t, func() bool { return len(st) == 2 }, a, b)
		assert.Equal(t, []uct.Status{ucs.StatusOK, ucs.StatusOK}, st)
		assert.Equal(t, upTo(3), b.got)
		assert.NoError(t, ab.Fence())
		assert.NoError(t, a.it.Fence())
	})
}

// TestFlush_AtMostTxBuffers: an iface can have TxBuffers flushes in flight. A further one returns
// ErrNoResource until another has completed.
func TestFlush_AtMostTxBuffers(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		const depth = 8
		md := over.newMD(t)
		a, b, c := newSide(t, md, Config{TxBuffers: depth}), newSide(t, md, Config{}), newSide(t, md, Config{})
		ab, ac := a.epTo(b), a.epTo(c)
		ab.send(t, 1)
		ac.send(t, 1)
		done := 0
		flush := func(f func(*uct.Completion) (bool, error)) error {
			pending, err := f(&uct.Completion{Count: 1, Func: func(*uct.Completion) { done++ }})
			assert.Equal(t, err == nil, pending)
			return err
		}
		for range depth - 2 {
			require.NoError(t, flush(ab.Flush))
		}
		require.NoError(t, flush(a.it.Flush), "the last two, one for each connection")
		assert.Equal(t, uct.ErrNoResource, flush(ab.Flush))
		assert.Equal(t, uct.ErrNoResource, flush(a.it.Flush))
		until(t, func() bool { return done == depth-1 }, a, b, c)

		ab.send(t, 2)
		ac.send(t, 2)
		for range depth - 1 {
			require.NoError(t, flush(ab.Flush))
		}
		assert.Equal(t, uct.ErrNoResource, flush(a.it.Flush), "two are needed, and one is free")
		require.NoError(t, flush(ac.Flush))
		until(t, func() bool { return done == 2*depth-1 }, a, b, c)
	})
}

func TestZcopy_CloseDetaches(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b := over.pair(t, Config{}, Config{})
		mem, err := a.md.Alloc(4096, uct.AccessLocalWrite)
		require.NoError(t, err)
		ab := a.epTo(b)
		for i := range mem.Bytes() {
			mem.Bytes()[i] = 0x5a
		}
		var got []byte
		require.NoError(t, b.it.SetAMHandler(2, uct.AMHandlerFunc(func(d []byte, _ uct.Desc) bool {
			got = append(got, d...)
			return false
		})))
		var st []uct.Status
		c := &uct.Completion{Count: 1, Func: func(c *uct.Completion) { st = append(st, c.Status) }}
		iov := []uct.IOV{{Buf: mem.Bytes()[:100], Mem: mem}, {}, {Buf: mem.Bytes()[200:300], Mem: mem}}
		pending, err := ab.AMZcopy(2, []byte("head"), iov, c)
		require.NoError(t, err)
		require.True(t, pending)
		require.NoError(t, ab.Close())
		assert.Equal(t, []uct.Status{ucs.StatusCanceled}, st, "not even sent: the memory is free at once")
		clear(mem.Bytes())
		require.NoError(t, mem.Close())
		until(t, func() bool { return len(got) == 204 }, a, b)
		assert.Equal(t, "head", string(got[:4]))
		for _, x := range got[4:] {
			require.Equal(t, byte(0x5a), x, "the packet had its own copy")
		}
	})
}

// TestZcopy_CompletionOpensAnEP: if a completion in Close makes a new EP to the same peer, its
// posts are independent of the closed EP.
func TestZcopy_CompletionOpensAnEP(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b := over.pair(t, Config{}, Config{})
		mem := a.alloc()
		iov := []uct.IOV{{Buf: mem.Bytes()[:64], Mem: mem}}
		hdr := func(i uint64) []byte { return binary.LittleEndian.AppendUint64(nil, i) }
		ab := a.epTo(b)
		var st []uct.Status
		note := func(c *uct.Completion) { st = append(st, c.Status) }
		var again *EP
		_, err := ab.AMZcopy(0, hdr(0), iov, &uct.Completion{Count: 1, Func: func(c *uct.Completion) {
			note(c)
			again = a.epTo(b)
			_, err := again.AMZcopy(0, hdr(1), iov, &uct.Completion{Count: 1, Func: note})
			require.NoError(t, err)
			_, err = again.Flush(&uct.Completion{Count: 1, Func: note})
			require.NoError(t, err)
		}})
		require.NoError(t, err)
		require.NoError(t, ab.Close())
		until(t, func() bool { return len(st) == 3 && len(b.got) == 2 }, a, b)
		assert.Equal(t, []uct.Status{ucs.StatusCanceled, ucs.StatusOK, ucs.StatusOK}, st)
		assert.ElementsMatch(t, upTo(2), b.got)
		assert.Empty(t, a.errs)
	})
}

func TestZcopy_CompletesWhenAcknowledged(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b := over.pair(t, Config{}, Config{})
		mem := a.alloc()
		ab := a.epTo(b)
		done := 0
		for range 20 {
			c := &uct.Completion{Count: 1, Func: func(c *uct.Completion) { assert.Zero(t, c.Status); done++ }}
			_, err := ab.AMZcopy(0, nil, []uct.IOV{{Buf: mem.Bytes()[:64], Mem: mem}}, c)
			require.NoError(t, err)
		}
		progressUntilIdle(a)
		assert.Zero(t, done)
		until(t, func() bool { return done == 20 }, a, b)
		assert.Len(t, b.got, 20)
		foreign, err := over.newMD(t).Alloc(64, uct.AccessLocalWrite)
		require.NoError(t, err)
		_, err = ab.AMZcopy(0, nil, []uct.IOV{{Buf: foreign.Bytes(), Mem: foreign}}, nil)
		assert.ErrorIs(t, err, uct.ErrInvalidParam)
		require.NoError(t, foreign.Close())
	})
}

// TestZcopy_CompletionPostsDuringRetransmission: an acknowledgement completes operations whose
// packets are being retransmitted. A message that one of the completions posts follows all of them.
func TestZcopy_CompletionPostsDuringRetransmission(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		const count = 12 // below the first window, and above its half
		a, b := over.pair(t, Config{}, Config{})
		mem := a.alloc()
		ab := a.epTo(b)
		ab.send(t, 0)
		arrive(t, func() bool { return len(b.got) == 1 && ab.c.proto.Unacked() == 0 }, a, b)

		next := uint64(count + 1)
		post := func(*uct.Completion) {
			ab.send(t, next)
			next++
		}
		for i := range uint64(count) {
			hdr := binary.LittleEndian.AppendUint64(nil, i+1)
			_, err := ab.AMZcopy(0, hdr, []uct.IOV{{Buf: mem.Bytes()[:64], Mem: mem}}, &uct.Completion{Count: 1, Func: post})
			require.NoError(t, err)
		}
		resends := a.it.core.resends.Load()
		until(t, func() bool { return a.it.core.resends.Load() > resends }, a)
		arrive(t, a.it.core.drained, a)
		require.NotNil(t, ab.c.unsent, "not all have been sent again")
		until(t, func() bool { return len(b.got) > 2*count }, b, a)
		until(t, func() bool { return ab.c.proto.Unacked() == 0 }, b, a)
		assert.Equal(t, upTo(2*count+1), b.got)
		assert.Equal(t, a.it.core.cfg.TxBuffers, a.it.core.pool.Free())
	})
}

// raw sends a datagram without the protocol, like an untrusted peer.
func (s *side) raw(t testing.TB, to *side, b []byte) {
	t.Helper()
	p, err := s.it.core.findPeer(peerKey{to.it.core.port.Addr, to.it.core.qp.Number()})
	require.NoError(t, err)
	until(t, s.it.core.hasSlot, s)
	wr := verbs.SendWR{
		Opcode: verbs.OpSend, Flags: verbs.SendInline | verbs.SendSignaled, Inline: b,
		AH: p.ah, RemoteQPN: p.key.qpn, RemoteQKey: queueKey,
	}
	s.it.core.wr[0] = wr
	s.it.core.post()
}

func TestReceive_UntrustedPeers(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		md := over.newMD(t)
		a, b, evil := newSide(t, md, Config{}), newSide(t, md, Config{}), newSide(t, md, Config{})
		ab := a.epTo(b)
		ab.send(t, 0)
		until(t, func() bool { return len(b.got) == 1 && ab.c.proto.Unacked() == 0 }, a, b)
		victim := ab.c.proto.Remote()
		head := func(h dgram.Header) []byte {
			b := make([]byte, dgram.HeaderLen)
			h.Put(b)
			return b
		}
		lie := dgram.Creq{Iface: a.it.core.ifaceAddr(), Device: a.it.core.port.Addr, ID: 5, Number: 0}
		for name, d := range map[string][]byte{
			"empty":                          {},
			"short":                          {1, 2, 3},
			"message for another":            head(dgram.Header{Dest: victim, AM: true, PSN: 1}),
			"ack for another":                head(dgram.Header{Dest: victim, ID: dgram.CtlAck, Ack: 7}),
			"fin for another":                head(dgram.Header{Dest: victim, ID: dgram.CtlFin}),
			"nobody":                         head(dgram.Header{Dest: dgram.MaxID, AM: true}),
			"request in the name of another": lie.Append(head(dgram.Header{ID: dgram.CtlCreq})),
			"request without body":           head(dgram.Header{ID: dgram.CtlCreq}),
			"reply that nobody asked for":    dgram.AppendCrep(head(dgram.Header{Dest: victim, ID: dgram.CtlCrep}), 9),
		} {
			before := b.it.core.strays.Load()
			evil.raw(t, b, d)
			until(t, func() bool { return b.it.core.strays.Load() == before+1 }, b, evil)
			assert.Len(t, b.got, 1, name)
		}
		ab.send(t, 1)
		until(t, func() bool { return len(b.got) == 2 }, a, b)
		assert.Empty(t, a.errs)
		assert.Empty(t, b.errs)
	})
}

func FuzzReceive(f *testing.F) {
	md := poster{Posters[0]}.newMD(f)
	a, b := newSide(f, md, Config{}), newSide(f, md, Config{MaxConns: 8})
	ab := a.epTo(b)
	ab.send(f, 0)
	until(f, func() bool { return len(b.got) == 1 && ab.c.proto.Unacked() == 0 }, a, b)
	h := dgram.Header{Dest: ab.c.proto.Remote(), AM: true, PSN: 1}
	d := make([]byte, 8)
	h.Put(d)
	f.Add(append(d, "01234567"...))
	f.Add(dgram.Creq{Iface: a.it.core.ifaceAddr(), Device: a.it.core.port.Addr, ID: 5, Number: 1}.Append([]byte{0, 0, 0, 3, 0, 0, 0, 0}))
	require.NoError(f, b.it.SetAMHandler(0, uct.AMHandlerFunc(func([]byte, uct.Desc) bool { return false })))
	f.Fuzz(func(t *testing.T, d []byte) {
		if len(d) > 64 {
			return
		}
		a.raw(t, b, d)
		progressUntilIdle(a, b)
	})
}

func TestWaker_TimerAndMessages(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b := over.pair(t, Config{RTO: time.Millisecond, MaxRTO: time.Millisecond}, Config{})
		arm(t, b)
		assert.False(t, b.it.EventPending())
		assert.False(t, testenv.Readable(t, b.it.EventFD(), 0))
		ab := a.epTo(b)
		ab.send(t, 0)
		until(t, b.it.EventPending, a)
		assert.True(t, testenv.Readable(t, b.it.EventFD(), 0))

		arm(t, a) // there is no reply to its request yet
		assert.True(t, testenv.Readable(t, a.it.EventFD(), testenv.Watchdog), "retransmission timeout")
		until(t, func() bool { return len(b.got) == 1 }, a, b)
		until(t, func() bool { return ab.c.proto.Unacked() == 0 }, a, b)
		arrive(t, func() bool { // no timer after the replies to all transmissions have arrived
			arm(t, a)
			return !testenv.Readable(t, a.it.EventFD(), 0)
		}, a)
	})
}

// TestArm_SendsAcks: Arm sends the due acknowledgements, because peers wait for them.
func TestArm_SendsAcks(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b := over.pair(t, Config{}, Config{})
		ab := a.epTo(b)
		ab.send(t, 0)
		arrive(t, func() bool { return len(b.got) == 1 }, a, b)
		arm(t, b)
		arrive(t, func() bool { return ab.c.proto.Unacked() == 0 }, a)
	})
}

func TestAllocs(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		if race.Enabled {
			t.Skip("the race detector allocates")
		}
		a, b := over.pair(t, Config{}, Config{})
		mem := a.alloc()
		require.NoError(t, b.it.SetAMHandler(0, uct.AMHandlerFunc(func([]byte, uct.Desc) bool { return false })))
		ab := a.epTo(b)
		buf, pack := make([]byte, 8), &fill{0, 300}
		iov := []uct.IOV{{Buf: mem.Bytes()[:512], Mem: mem}}
		c := &uct.Completion{Func: func(*uct.Completion) {}}
		for name, f := range map[string]func() error{
			"short": func() error { return ab.AMShort(0, 1, buf) },
			"bcopy": func() error { _, err := ab.AMBcopy(0, pack); return err },
			"zcopy": func() error { _, err := ab.AMZcopy(0, buf, iov, c); return err },
			"flush": func() error { _, err := ab.Flush(c); return err },
		} {
			run := func() {
				c.Count = 1
				if err := f(); err != nil && err != uct.ErrNoResource {
					t.Error(name, err)
				}
				for range 4 {
					a.it.Progress()
					b.it.Progress()
				}
			}
			run()
			assert.Zero(t, testing.AllocsPerRun(300, run), name)
		}
	})
}

func TestConfig_RejectsInvalid(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		md := over.newMD(t)
		for name, c := range map[string]any{
			"window":     Config{Window: dgram.MaxWindow + 1},
			"inline":     Config{TxMaxInline: 8},
			"rx":         Config{RxDepth: 1},
			"timers":     Config{RTO: time.Second, MaxRTO: time.Millisecond},
			"type":       &struct{}{},
			"connection": Config{MaxConns: 1 << 20},
		} {
			_, err := md.OpenIface(uct.IfaceParams{Transport: over.Name(), Device: "dev:1", Config: c})
			assert.ErrorIs(t, err, uct.ErrInvalidParam, name)
		}
	})
}
