package ucp

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/tlsets"
)

// TestExplain_Ranges: Explain has the ranges of lengths with their protocols, for all classes of buffers, before and
// after the EP has connected.
func TestExplain_Ranges(t *testing.T) {
	p := newPair(t, tlsets.Real(`\rc`, `\rc`), Config{}).connect()
	before := p.a.ep.Explain()
	p.warm()
	for _, text := range []string{before, p.a.ep.Explain()} {
		for _, want := range []string{
			"put over rc softhca0:1, buffer not registered:\n", "get over rc softhca0:1, buffer in OpParams.Mem:\n",
			"messages over rc softhca0:1, buffers that are not registered:\n", "messages over rc softhca0:1, buffers of MemMap:\n",
			"messages over rc softhca0:1, buffers of MemAlloc:\n",
			" rndv   get_zcopy, the least time, ", " ns, registered for it;\n", " threshold: ", "..inf          is registered for the operation\n",
			" short  up to ", " bcopy  one copy\n", " zcopy  cheaper than a copy\n",
		} {
			assert.Contains(t, text, want)
		}
	}
}

// TestTransfer_SingleZcopy: a zcopy operation of one call is in no list, also if the EP closes right after it, and transfers
// the right data.
func TestTransfer_SingleZcopy(t *testing.T) {
	p := newPair(t, tlsets.Real(`\rc`, `\rc`), Config{}).connect().warm()
	const n = 20000
	mem, err := p.a.ctx.MemAlloc(2 * n)
	require.NoError(t, err)
	want, got := mem.Bytes()[:n], mem.Bytes()[n:]
	copy(want, pattern(n, 1))
	use := &OpParams{Mem: mem}
	r, err := p.a.ep.Put(want, p.b.mem.Addr(), p.a.key, use)
	require.NoError(t, err)
	require.NotNil(t, r)
	assert.Nil(t, p.a.ep.ops.first)
	assert.EqualValues(t, 1, p.a.ep.counts.direct)
	assert.True(t, r.bufferInUse(), "the transport uses the buffer")
	require.NoError(t, p.finish(r, nil))
	require.NoError(t, p.flush())
	requireBytes(t, want, p.b.mem.Bytes()[:n])
	r, err = p.a.ep.Get(got, p.b.mem.Addr(), p.a.key, use)
	require.NoError(t, err)
	require.NotNil(t, r)
	assert.Nil(t, p.a.ep.ops.first)
	require.NoError(t, p.finish(r, nil))
	requireBytes(t, want, got)
	assert.Zero(t, p.a.ep.counts.direct)

	_, err = p.a.ep.Put(make([]byte, n), p.b.mem.Addr(), p.a.key, use)
	assert.ErrorContains(t, err, "not in OpParams.Mem")
	require.NoError(t, mem.Close())
}
