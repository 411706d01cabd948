package ucprpc

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	uatomic "go.uber.org/atomic"

	"github.com/gucx/gucx/ucp"
)

// attacker is a peer that sends hand-made active messages to a server.
type attacker struct {
	t       *testing.T
	w       *ucp.Worker
	ep      *ucp.EP
	gone    uatomic.Bool
	replies int
}

func newAttacker(t *testing.T, c *ucp.Context, s *Server) *attacker {
	t.Helper()
	w, err := c.NewWorker(ucp.WorkerConfig{})
	require.NoError(t, err)
	a := &attacker{t: t, w: w}
	t.Cleanup(func() { _ = w.Close() }) // the error is that of the failed connection
	w.OnActive(amID, func(*ucp.ActiveMessage) { a.replies++ })
	p, err := w.Dial(t.Context(), "unix", s.Addr().String(), ucp.DialConfig{Private: []byte(hello), EP: ucp.EPConfig{
		OnError: func(*ucp.EP, error) { a.gone.Store(true) },
	}})
	require.NoError(t, err)
	a.ep = p.EP
	return a
}

// send sends a message and makes no progress.
func (a *attacker) send(header, data []byte) error {
	r, err := a.ep.SendActive(amID, header, data, nil)
	r.Release()
	return err
}

// push sends messages that a transport has joined but not sent, without progress.
func (a *attacker) push() { _ = a.w.Until(a.t.Context(), func() bool { return true }) }

func (a *attacker) until(done func() bool) {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), hang)
	defer cancel()
	require.NoError(a.t, a.w.Until(ctx, done))
}

func packed(h header, name string) []byte {
	b := make([]byte, headerLen+len(name))
	h.pack(b, name)
	return b
}

// TestHostile_MalformedMessages: a peer that sends invalid messages is disconnected and counted, and others are served.
func TestHostile_MalformedMessages(t *testing.T) {
	overAll(t, func(t *testing.T, tls string) {
		s, cl := newPair(t, tls, testServer())
		wrongName := packed(header{kind: kindCall}, "echo")
		wrongName[1] = 200
		messages := map[string][]byte{
			"nothing":          {},
			"short":            make([]byte, headerLen-1),
			"zeros":            make([]byte, headerLen),
			"unknown kind":     packed(header{kind: kindDrain + 1}, ""),
			"a reply to none":  packed(header{kind: kindReply, id: callID{index: 1 << 30}}, ""),
			"a reply too":      packed(header{kind: kindReply, id: callID{index: 7}}, ""),
			"a name too long":  wrongName,
			"a cancel by name": packed(header{kind: kindCancel}, "echo"),
		}
		c := newContext(t, tls)
		for name, m := range messages {
			a := newAttacker(t, c, s)
			require.NoError(t, a.send(m, nil), name)
			a.until(a.gone.Load)
		}
		got, err := cl.Call(t.Context(), methodEcho, []byte("x"), nil)
		require.NoError(t, err)
		require.Equal(t, "x", string(got))
		assert.EqualValues(t, len(messages), s.loops[0].stats[violations].Load())
		assert.EqualValues(t, 1, s.loops[0].connected.Load())
	})
}

// TestHostile_Flood: requests beyond the limits of a peer are rejected, and other peers are served.
func TestHostile_Flood(t *testing.T) {
	overAll(t, func(t *testing.T, tls string) {
		cfg := testServer()
		cfg.Limits = Limits{PeerCalls: 10, PeerBytes: 1000, MaxRequest: 100_000}
		s, cl := newPair(t, tls, cfg)
		a := newAttacker(t, newContext(t, tls), s)
		for i := range 100 {
			require.NoError(t, a.send(packed(header{kind: kindCall, id: callID{uint32(i), 1}}, "wait"), nil))
		}
		a.until(func() bool { return a.replies == 90 })
		stats := &s.loops[0].stats
		assert.EqualValues(t, 90, stats[CodeBusy].Load())
		require.NoError(t, a.send(packed(header{kind: kindOneWay}, "echo"), nil)) // dropped
		a.until(func() bool { return stats[CodeBusy].Load() == 91 })
		_, err := cl.Call(t.Context(), methodEcho, nil, nil)
		require.NoError(t, err)

		for i := range 10 { // below the limits again
			require.NoError(t, a.send(packed(header{kind: kindCancel, id: callID{uint32(i), 1}}, ""), nil))
		}
		a.until(func() bool { return a.replies == 100 })

		b := newAttacker(t, newContext(t, tls), s)
		require.NoError(t, b.send(packed(header{kind: kindCall}, "wait"), make([]byte, 900)))
		require.NoError(t, b.send(packed(header{kind: kindCall}, "wait"), make([]byte, 101)))
		require.NoError(t, b.send(packed(header{kind: kindCall}, "wait"), make([]byte, 100_001)))
		b.until(func() bool { return b.replies == 2 })
		assert.EqualValues(t, 92, stats[CodeBusy].Load())
		assert.EqualValues(t, 1, stats[CodeTooLong].Load())
	})
}

// TestHostile_ReceivesNoReplies: requests of a peer that does not receive its replies reach its limits. Other peers are
// not affected.
func TestHostile_ReceivesNoReplies(t *testing.T) {
	overAll(t, func(t *testing.T, tls string) {
		cfg := testServer()
		cfg.Limits = Limits{PeerCalls: 20}
		s, cl := newPair(t, tls, cfg)
		a := newAttacker(t, newContext(t, tls), s)
		stats, peers := &s.loops[0].stats, &s.loops[0].connected
		large := make([]byte, 4000)
		for i := 0; peers.Load() == 2 && i < 100_000; i++ {
			if a.send(packed(header{kind: kindCall, id: callID{uint32(i), 1}}, "echo"), large) != nil {
				break
			}
			if i%64 == 0 {
				_, err := cl.Call(t.Context(), methodEcho, large, nil)
				require.NoError(t, err)
			}
			if i%1000 == 0 && stats[CodeBusy].Load() > 0 {
				break
			}
		}
		in := -1
		s.loops[0].runOnLoop(func() { in = s.loops[0].inFlight })
		assert.LessOrEqual(t, in, 20)
		_, err := cl.Call(t.Context(), methodEcho, large, nil)
		require.NoError(t, err)
	})
}

// TestHostile_RTSWithoutData: large requests of a peer that sends no data count against its limits only, until the peer
// is gone.
func TestHostile_RTSWithoutData(t *testing.T) {
	s, cl := newPair(t, "tcp", testServer())
	a := newAttacker(t, newContext(t, "tcp"), s)
	for i := range 8 {
		require.NoError(t, a.send(packed(header{kind: kindCall, id: callID{uint32(i), 1}}, "echo"), make([]byte, 1<<20)))
	}
	inFlight := func() (n int) {
		s.loops[0].runOnLoop(func() { n = s.loops[0].inFlight })
		return n
	}
	a.push()
	eventually(t, func() bool { return inFlight() == 8 })
	_, err := cl.Call(t.Context(), methodEcho, nil, nil)
	require.NoError(t, err)
	_ = a.w.Close()
	eventually(t, func() bool { return inFlight() == 0 && s.loops[0].connected.Load() == 1 })
}

// TestHostile_CancelsWithoutData: a peer sends the RTS of a large request, cancels the request, and sends no data while
// a handler receives it. The worker serves other peers, and disconnects this one after revokeLimit.
func TestHostile_CancelsWithoutData(t *testing.T) {
	s, cl := newPair(t, "tcp", testServer())
	l := s.loops[0]
	count := func(counted func(s *slot) bool) (n int) {
		l.runOnLoop(func() {
			for _, s := range l.slots {
				if s.active && counted(s) {
					n++
				}
			}
		})
		return n
	}
	all, abandoned := func(*slot) bool { return true }, func(s *slot) bool { return s.abandoned }
	attack := func(before int) *attacker {
		a := newAttacker(t, newContext(t, "tcp"), s)
		id := callID{1, 1}
		require.NoError(t, a.send(packed(header{kind: kindCall, id: id}, "large"), make([]byte, 1<<20)))
		a.push()
		eventually(t, func() bool { return count(all) == before+1 })
		require.NoError(t, a.send(packed(header{kind: kindCancel, id: id}, ""), nil))
		a.push()
		return a
	}
	l.runOnLoop(func() { l.revokeLimit = 100 * hang })
	a := attack(0)
	eventually(t, func() bool { return count(abandoned) == 1 })
	_, err := cl.Call(t.Context(), methodEcho, nil, nil)
	require.NoError(t, err)
	require.Equal(t, 1, count(abandoned))

	l.runOnLoop(func() { l.revokeLimit = time.Millisecond })
	b := attack(1)
	eventually(t, func() bool { return count(all) == 1 })
	require.EqualValues(t, 2, s.loops[0].connected.Load())
	b.until(b.gone.Load)
	_ = a.w.Close()
	eventually(t, func() bool { return count(all) == 0 })
}

// TestHostile_LateReply: the reply to an abandoned call is counted and has no effect.
func TestHostile_LateReply(t *testing.T) {
	started, release := make(chan struct{}), make(chan struct{})
	var cfg ServerConfig
	cfg.Handlers.Handle(methodWait, HandlerConfig{}, func(c *Call) error {
		close(started)
		<-release
		c.Reply = append(c.Reply, "late"...)
		return nil
	})
	cfg.Handlers.Handle(methodInline, HandlerConfig{Inline: true}, echo)
	_, cl := newPair(t, "sm", cfg)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-started
		cancel()
	}()
	_, err := cl.Call(ctx, methodWait, nil, nil)
	require.ErrorIs(t, err, context.Canceled)
	close(release)
	l := cl.links[0].state.Load().p.l
	eventually(t, func() bool {
		got, err := cl.Call(t.Context(), methodInline, []byte("x"), nil)
		require.NoError(t, err)
		require.Equal(t, "x", string(got))
		return l.stats[lateReplies].Load() == 1
	})
}

// FuzzHeader: a header is rejected, or packs to the same bytes.
func FuzzHeader(f *testing.F) {
	f.Add(packed(header{kind: kindCall, number: 7, id: callID{1, 2}, timeout: 3}, "name"))
	f.Add(packed(header{kind: kindReply}, ""))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		var h header
		name, ok := h.unpack(b)
		if ok {
			assert.Equal(t, b, packed(h, string(name)))
		}
	})
}

// TestHeader_Bytes: the bytes on the wire.
func TestHeader_Bytes(t *testing.T) {
	want := []byte{1, 2, 0x34, 0x12, 8, 7, 6, 5, 4, 3, 2, 1, 0x40, 0x42, 0x0f, 0, 'a', 'b'}
	h := header{kind: kindCall, number: 0x1234, id: callID{0x05060708, 0x01020304}, timeout: timeoutField(time.Second)}
	assert.Equal(t, want, packed(h, "ab"))
	assert.EqualValues(t, 1, timeoutField(-time.Second))
	assert.EqualValues(t, 0, timeoutField(3*time.Hour))
}
