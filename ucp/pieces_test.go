package ucp

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/tlsets"
)

// TestList_AnotherDomain: a list that waits for the next lane is registered with the domain of that lane, and
// deregistered from the first one.
func TestList_AnotherDomain(t *testing.T) {
	p := newPair(t, tlsets.HCAs("rc, two devices", 2, `\rc`), Config{RndvScheme: "put_zcopy"})
	require.NoError(t, p.finish(p.ep.Put([]byte{1}, p.key.Addr(), p.key, nil)))
	w := p.w[0]
	before := w.ctx.memory.Len()
	var list [][]byte
	for range 7 {
		list = append(list, make([]byte, tlsets.LongMessage))
	}
	const listLen = 7 * tlsets.LongMessage
	r, d := w.newRequest(p.ep, &putDataStage), Buffers(list)
	r.pieces = p.ep.pieces(&d.buffer, listLen, &putList)
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
	require.Equal(t, before, w.ctx.memory.Len())
}
