package ucplayer

import (
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/ucp"
)

// notePair returns two sides that are connected over sm, with the exchange of an operation on each.
func notePair(t *testing.T) (near, far *exchange) {
	a, b := connPair(t, layer.Config{Transport: "sm", Device: "memory", Context: t.Context()})
	spec := layer.Spec{Kind: layer.AM, Size: 1 << 10, Window: 127}
	exchangeOf := func(c *Conn) *exchange {
		o, err := c.newOp(spec)
		require.NoError(t, err)
		x := &exchange{}
		x.init(o, spec, newInbox(spec), &layer.Note{})
		return x
	}
	return exchangeOf(a), exchangeOf(b)
}

// connPair returns two connected sides without operations.
func connPair(t *testing.T, cfg layer.Config) (a, b *Conn) { return connPairOf(t, ucp.Config{}, cfg) }

// connPairOf is connPair with a configuration of ucp.
func connPairOf(t *testing.T, of ucp.Config, cfg layer.Config) (a, b *Conn) {
	l := New(of, components)
	cfg.MemLen, cfg.Beside = 1<<10, true
	open := func() *Conn {
		c, err := l.Open(cfg)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, c.Close()) })
		return c.(*Conn)
	}
	a, b = open(), open()
	for c, peer := range map[*Conn]*Conn{a: b, b: a} {
		addr, err := peer.Address()
		require.NoError(t, err)
		require.NoError(t, c.Connect(addr))
	}
	return a, b
}

// TestFlush_ContinuesAfterInterrupt: a put does not complete while the target makes no progress; an interrupt
// does not end its flush.
func TestFlush_ContinuesAfterInterrupt(t *testing.T) {
	i := layer.NewInterrupt(t.Context())
	near, far := connPair(t, layer.Config{Transport: "tcp", Device: "lo", Context: t.Context(), Interrupt: i})
	o, err := near.Op(layer.Spec{Kind: layer.Put, Size: 8, Window: 1})
	require.NoError(t, err)
	copy(near.Local(), "12345678")
	var states []string
	var flushed atomic.Bool
	driven := make(chan struct{})
	i.OnRaise(func() {
		states = append(states, layer.State(o, near))
		if len(states) < 3 {
			i.Raise()
			return
		}
		testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
			far.Progress()
			near.Progress()
			return far.Memory()[0] == '1'
		})
		go func() { // until the flush has returned
			defer close(driven)
			for !flushed.Load() {
				far.Progress()
				runtime.Gosched()
			}
		}()
	})
	require.NoError(t, o.Post())
	i.Raise()
	err = o.Flush()
	flushed.Store(true)
	require.NoError(t, err)
	<-driven
	require.Len(t, states, 3)
	for _, text := range states {
		assert.Contains(t, text, "put 8 bytes")
		assert.Equal(t, 1, strings.Count(text, "endpoints: 1"), "an operation and its Conn are described once")
	}
	assert.Equal(t, "12345678", string(far.Memory()[:8]))
}

// TestExchange_ReceivesRendezvousNoteBeforeNext: the data of a rendezvous note and the next note arrive in one
// call of Progress. The value must be that of the second note. With that of the first, the target of a
// stream would never acknowledge the end, and both sides would wait for each other.
func TestExchange_ReceivesRendezvousNoteBeforeNext(t *testing.T) {
	near, far := notePair(t)
	far.worker.OnActive(idData, func(*ucp.ActiveMessage) {}) // drops rendezvous messages
	useUpCredit(t, near, far)

	told, err := near.SendNote(1)
	require.NoError(t, err)
	require.True(t, told)
	require.NotNil(t, near.noteSend, "the note must wait for credit of the peer")
	progressUntil(t, far, func() bool { return far.noteRecv != nil })
	progressUntil(t, near, func() bool { return near.noteSend.Done() }) // the data is in the ring of far
	told, err = near.SendNote(2)
	require.NoError(t, err)
	require.True(t, told)
	require.Nil(t, near.noteSend, "the second note must be eager")

	progressUntil(t, far, func() bool { return far.noteRecv == nil })
	for range 2 {
		require.NoError(t, far.after(far.worker.Progress()))
	}
	assert.Equal(t, uint64(2), far.note.Value)
	assert.NoError(t, far.note.Err)
}

// useUpCredit connects near to far and sends messages, which far does not receive yet, until near has no
// credit. Most messages are so large that the ring still has room then.
func useUpCredit(t *testing.T, near, far *exchange) {
	send := func(n int) *ucp.Request {
		r, err := near.ep.SendActive(idData, nil, make([]byte, n), nil)
		require.NoError(t, err)
		return r
	}
	first := send(1)
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
		near.worker.Progress()
		far.worker.Progress()
		return first.Done()
	})
	first.Release()
	progressUntil(t, near, func() bool { return near.worker.Progress() == 0 }) // receives the credit of far
	for _, n := range []int{8000, 1} {
		for announced := false; !announced; {
			if r := send(n); r != nil {
				r.Release()
				announced = true
			}
		}
	}
}

// progressUntil makes only one side progress.
func progressUntil(t *testing.T, x *exchange, done func() bool) {
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
		require.NoError(t, x.after(x.worker.Progress()))
		return done()
	})
}

// TestExchange_Written: a sender writes the data of each message, if Spec.Written is set.
func TestExchange_Written(t *testing.T) {
	for _, written := range []bool{false, true} {
		near, far := connPair(t, layer.Config{Transport: "sm", Device: "memory", Context: t.Context()})
		spec := layer.Spec{Kind: layer.AM, Size: 1 << 10, Window: 1, Seed: 7, Thorough: true, Written: written}
		op, err := near.Op(spec)
		require.NoError(t, err)
		part, err := far.Part(spec)
		require.NoError(t, err)
		clear(near.Local()[:spec.Size])
		require.NoError(t, op.Post())
		testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
			_, err := part.Progress()
			require.NoError(t, err)
			require.NoError(t, op.Poll())
			n, err := part.Finish()
			return n == 1 && assert.Equal(t, !written, err != nil)
		})
	}
}
