package ucp

import (
	"context"
	"encoding/binary"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// headed is a protocol for this test: messages with a tag and a 64-bit header.
type headed struct {
	w       *Worker
	channel *channel
	arrived func(tag, header uint64, data []byte)
}

// amHeaded is an id that the protocols of NewWorker do not use.
const amHeaded = wire.AMUnknown

func newHeaded() *headed {
	return &headed{channel: newChannel("headed send", &messageClass, channel{eagerID: amHeaded})}
}

// row returns the functions that the worker calls.
func (h *headed) row() *protocol {
	return &protocol{
		init:     func(w *Worker) { h.w = w },
		handlers: func(*Worker) []handler { return []handler{{amHeaded, uct.AMHandlerFunc(h.handle)}} },
	}
}

func (h *headed) send(e *EP, tag, header uint64, data []byte) (*Request, error) {
	r, err := e.newSend(h.channel, tag, data, nil)
	if err != nil {
		return nil, err
	}
	r.msg.header = binary.LittleEndian.AppendUint64(nil, header)
	return r.start()
}

func (h *headed) handle(data []byte, _ uct.Desc) bool {
	var head wire.Head
	rest, ok := head.Unpack(data)
	if !ok || len(rest) < 8 {
		h.w.BadMessages().Inc()
		return false
	}
	if e := h.w.accept(head.EP, len(rest)); e != nil {
		h.arrived(head.Word, binary.LittleEndian.Uint64(rest), rest[8:])
		e.msgs.received(len(rest))
	}
	return false
}

// TestProtocol_AddedByTest: a new protocol needs a row in the list of a worker and an id. Its messages have the credit, the
// order and the end of all others.
func TestProtocol_AddedByTest(t *testing.T) {
	ctx, err := NewContext(Config{Costs: CostsDeclared}, faketp.New(faketp.LikeRC(), faketp.LikeUD()))
	require.NoError(t, err)
	h := newHeaded()
	w, err := ctx.newWorker(WorkerConfig{}, append(slices.Clone(protocols), h.row()))
	require.NoError(t, err)
	e, err := w.NewEP(w.Address(), EPConfig{})
	require.NoError(t, err)

	const n = 300
	arrived := uint64(0)
	h.arrived = func(tag, header uint64, data []byte) {
		assert.EqualValues(t, 7, tag)
		assert.Equal(t, 1<<63+arrived, header)
		assert.Equal(t, "data", string(data))
		arrived++
	}
	for i := range uint64(n) {
		r, err := h.send(e, 7, 1<<63+i, []byte("data"))
		require.NoError(t, err)
		r.Release()
	}
	require.NoError(t, w.Until(t.Context(), func() bool { return arrived == n }))

	r, err := e.Close(CloseFlush)
	require.NoError(t, err)
	require.NoError(t, r.Wait(t.Context()))
	assert.Zero(t, RequestsInUse(w))
	require.NoError(t, w.Close())
	require.NoError(t, ctx.Close())
}

// TestClose_LastStep: the blocking call of the owner returns, and the context can be closed, only after protocols have freed what
// they have registered.
func TestClose_LastStep(t *testing.T) {
	c, err := NewContext(Config{}, faketp.New(faketp.LikeSM()))
	require.NoError(t, err)
	served, freed := make(chan error, 1), false
	row := &protocol{freed: func(*Worker) error {
		freed = true
		assert.ErrorIs(t, c.Close(), ucs.ErrBusy)
		for range 1000 { // without the order, Serve usually returns meanwhile
			runtime.Gosched()
		}
		assert.Empty(t, served)
		return nil
	}}
	w, err := c.newWorker(WorkerConfig{}, append(slices.Clone(protocols), row))
	require.NoError(t, err)
	go func() { served <- w.Serve(context.Background()) }()
	testenv.ProgressWithin(t, testenv.Watchdog, w.engine.Turn.Taken)
	require.NoError(t, w.Close())
	require.ErrorIs(t, <-served, ucs.ErrClosed)
	assert.True(t, freed)
	require.NoError(t, c.Close())
}
