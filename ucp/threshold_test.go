package ucp

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/ucp/internal/proto"
	"github.com/gucx/gucx/ucp/internal/region"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
)

// TestThreshold_ByCost: over shared memory an eager message takes two copies, and a get one. Data in memory of the
// transport uses rendezvous from the length at which it is faster. Other data does not, because it would be sent in the
// same fragments.
func TestThreshold_ByCost(t *testing.T) {
	p := openPair(t, tlsets.Real("sm", "sm"), Config{}).both().warm()
	from := p.a.ep.announcedFrom((*region.Mem)(p.a.mem))
	require.Greater(t, from.From, 8<<10)
	require.Less(t, from.From, defaultRndvThresh)
	assert.Equal(t, defaultRndvThresh, p.a.ep.announcedFrom(nil).From)
	for _, n := range []int{from.From - 1, from.From} {
		assert.Equal(t, n == from.From, p.announces(t, n, &OpParams{Mem: p.a.mem}), "%d bytes", n)
		assert.False(t, p.announces(t, n, nil), "%d bytes that are not registered", n)
	}
	text := p.a.ep.Explain()
	assert.Contains(t, text, "threshold: "+from.Why+"\n")
	assert.Contains(t, text, "threshold: larger ones would delay later messages;\n")
}

// TestThreshold_SlowCopies: if copies between the CPUs are slow, data in memory of the transport uses rendezvous even
// if one call could send it. Other data is sent in the call, without a request.
func TestThreshold_SlowCopies(t *testing.T) {
	p := openPair(t, tlsets.Real("sm", "sm"), Config{})
	for _, e := range []*end{&p.a, &p.b} {
		e.w.ifaces[0].costs().Costs[uct.AMBcopy].Bandwidth = 2e9
	}
	p.both().warm()
	from := p.a.ep.announcedFrom((*region.Mem)(p.a.mem)).From
	require.Less(t, from, p.a.w.ifaces[0].sends().eager)
	require.GreaterOrEqual(t, from, proto.ShortestAnnounced)
	for _, n := range []int{from - 1, from} {
		assert.Equal(t, n == from, p.announces(t, n, &OpParams{Mem: p.a.mem}), "%d bytes", n)
		assert.False(t, p.announces(t, n, nil), "%d bytes that are not registered", n)
	}
}

// announces sends n bytes, for which there is credit, and reports whether they used rendezvous.
func (p *pair) announces(t *testing.T, n int, params *OpParams) bool {
	t.Helper()
	for p.a.ep.msgs == nil || p.a.ep.msgs.Credit < charge(n) { // the first messages make the peer grant more credit
		recv, err := p.b.w.TagRecv(make([]byte, 1), 1, exact, nil, nil)
		require.NoError(t, err)
		send, err := p.a.ep.TagSend(1, []byte{1}, nil)
		require.NoError(t, p.finish(send, err))
		require.NoError(t, p.finish(recv, nil))
	}
	copy(p.a.mem.Bytes(), pattern(n, n))
	data := p.a.mem.Bytes()[:n]
	if params == nil {
		data = pattern(n, n)
	}
	send, err := p.a.ep.TagSend(1, data, params)
	require.NoError(t, err)
	announced := send != nil && send.stage.announces
	recv, err := p.b.w.TagRecv(p.b.mem.Bytes()[:n], 1, exact, nil, &OpParams{Mem: p.b.mem})
	require.NoError(t, p.finish(recv, err))
	require.NoError(t, p.finish(send, nil))
	requireBytes(t, pattern(n, n), p.b.mem.Bytes()[:n])
	return announced
}

// TestThreshold_Configured: a configured threshold is used for any costs.
func TestThreshold_Configured(t *testing.T) {
	p := newPair(t, tlsets.Real("sm", "sm"), Config{RndvThresh: config.MemSize(30 << 10)}).both().warm()
	assert.Equal(t, 30<<10, p.a.ep.announcedFrom((*region.Mem)(p.a.mem)).From)
	assert.False(t, p.announces(t, 30<<10-1, &OpParams{Mem: p.a.mem}))
	assert.True(t, p.announces(t, 30<<10, &OpParams{Mem: p.a.mem}))
	assert.Contains(t, p.a.ep.Explain(), "threshold: RNDV_THRESH=30720\n")
}
