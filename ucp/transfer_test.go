package ucp_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
)

// TestExplain_Ranges: Explain has the ranges of lengths with their protocols, for all classes of buffers, before and
// after the EP has connected.
func TestExplain_Ranges(t *testing.T) {
	p := ucppair.New(t, tlsets.Real(`\rc`, `\rc`), ucp.Config{}).Connect()
	before := p.A.EP.Explain()
	p.Warm()
	for _, text := range []string{before, p.A.EP.Explain()} {
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
	p := ucppair.New(t, tlsets.Real(`\rc`, `\rc`), ucp.Config{}).Connect().Warm()
	const n = 20000
	mem, err := p.A.Ctx.MemAlloc(2 * n)
	require.NoError(t, err)
	want, got := mem.Bytes()[:n], mem.Bytes()[n:]
	copy(want, testenv.Pattern(n, 1))
	use := &ucp.OpParams{Mem: mem}
	r, err := p.A.EP.Put(want, p.B.Mem.Addr(), p.A.Key, use)
	require.NoError(t, err)
	require.NotNil(t, r)
	assert.Nil(t, p.A.EP.Operations())
	assert.EqualValues(t, 1, p.A.EP.Direct())
	assert.True(t, r.BufferInUse(), "the transport uses the buffer")
	require.NoError(t, p.Finish(r, nil))
	require.NoError(t, p.Flush())
	testenv.RequireBytes(t, want, p.B.Mem.Bytes()[:n])
	r, err = p.A.EP.Get(got, p.B.Mem.Addr(), p.A.Key, use)
	require.NoError(t, err)
	require.NotNil(t, r)
	assert.Nil(t, p.A.EP.Operations())
	require.NoError(t, p.Finish(r, nil))
	testenv.RequireBytes(t, want, got)
	assert.Zero(t, p.A.EP.Direct())

	_, err = p.A.EP.Put(make([]byte, n), p.B.Mem.Addr(), p.A.Key, use)
	assert.ErrorContains(t, err, "not in OpParams.Mem")
	require.NoError(t, mem.Close())
}
