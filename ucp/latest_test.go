package ucp

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/ucp/internal/wire"
)

// TestArrivals_Closed: the cache does not contain a closed connection, and a late message of the connection is dropped.
func TestArrivals_Closed(t *testing.T) {
	p := newPair(t, tlsets.Real("sm", "sm"), Config{})
	w, calls := p.w[1], 0
	w.OnActive(3, func(*ActiveMessage) { calls++ })
	for range 2 { // the first one is charged against the first window
		require.NoError(t, p.finish(p.ep.SendActive(3, nil, []byte("x"), nil)))
	}
	p.until(func() bool { return calls == 2 })
	from := w.messages.latest
	require.Positive(t, from.Room)
	require.Same(t, from, w.active.short.from)
	require.Same(t, from, w.active.short.msgs)
	word := binary.LittleEndian.AppendUint64(nil, w.active.short.word)
	tagged := append((&wire.Head{Word: 9}).Append(nil), "data"...)
	binary.LittleEndian.PutUint64(tagged[wire.WordLen:], from.self)

	require.NoError(t, p.finish(p.ep.Close(CloseFlush)))
	p.until(func() bool { return from.e.state == epClosed })
	assert.Negative(t, from.Room)
	assert.Same(t, unconnected, w.messages.latest)
	assert.Same(t, unconnected, w.active.short.from)
	assert.Same(t, unconnected, w.active.short.msgs)
	assert.Nil(t, w.active.short.From)
	bad := w.BadMessages().Load()
	w.active.short.HandleAM(word, nil)
	(*tagArrivals)(w).HandleAM(tagged, nil)
	assert.Equal(t, bad+2, w.BadMessages().Load())
	assert.Equal(t, 2, calls)
	assert.Zero(t, w.tag.table.Unexpected())
}
