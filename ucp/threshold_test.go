package ucp_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/internal/proto"
	"github.com/gucx/gucx/ucp/internal/window"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
)

// TestThreshold_ByCost: over shared memory an eager message takes two copies, and a get one. Data in memory of the
// transport uses rendezvous from the length at which it is faster. Other data does not, because it would be sent in the
// same fragments.
func TestThreshold_ByCost(t *testing.T) {
	p := ucppair.Open(t, tlsets.Real("sm", "sm"), ucp.Config{}).Both().Warm()
	from := p.A.EP.AnnouncedFrom(p.A.Mem)
	require.Greater(t, from.From, 8<<10)
	require.Less(t, from.From, ucp.DefaultRndvThresh)
	assert.Equal(t, ucp.DefaultRndvThresh, p.A.EP.AnnouncedFrom(nil).From)
	for _, n := range []int{from.From - 1, from.From} {
		assert.Equal(t, n == from.From, usesRndv(t, p, n, &ucp.OpParams{Mem: p.A.Mem}), "%d bytes", n)
		assert.False(t, usesRndv(t, p, n, nil), "%d bytes that are not registered", n)
	}
	text := p.A.EP.Explain()
	assert.Contains(t, text, "threshold: "+from.Why+"\n")
	assert.Contains(t, text, "threshold: larger ones would delay later messages;\n")
}

// TestThreshold_SlowCopies: if copies between the CPUs are slow, data in memory of the transport uses rendezvous even
// if one call could send it. Other data is sent in the call, without a request.
func TestThreshold_SlowCopies(t *testing.T) {
	p := ucppair.Open(t, tlsets.Real("sm", "sm"), ucp.Config{})
	for _, e := range []*ucppair.End{&p.A, &p.B} {
		e.W.Ifaces()[0].Costs().Costs[uct.AMBcopy].Bandwidth = 2e9
	}
	p.Both().Warm()
	from := p.A.EP.AnnouncedFrom(p.A.Mem).From
	require.Less(t, from, p.A.W.Ifaces()[0].EagerLimit())
	require.GreaterOrEqual(t, from, proto.ShortestAnnounced)
	for _, n := range []int{from - 1, from} {
		assert.Equal(t, n == from, usesRndv(t, p, n, &ucp.OpParams{Mem: p.A.Mem}), "%d bytes", n)
		assert.False(t, usesRndv(t, p, n, nil), "%d bytes that are not registered", n)
	}
}

// TestThreshold_ActiveInPlace: a handler reads an active message of one fragment without a copy, so that it stays eager where
// other messages use rendezvous.
func TestThreshold_ActiveInPlace(t *testing.T) {
	p := ucppair.Open(t, tlsets.Real("sm", "sm"), ucp.Config{})
	p.A.W.Ifaces()[0].Costs().Costs[uct.AMBcopy].Bandwidth = 2e9
	p.Both().Warm()
	eager := p.A.W.Ifaces()[0].EagerLimit()
	require.True(t, usesRndv(t, p, eager, &ucp.OpParams{Mem: p.A.Mem}), "a tagged message")
	got := 0
	p.B.W.OnActive(1, func(m *ucp.ActiveMessage) { got = m.Length })
	for _, n := range []int{eager, tlsets.MemLen} {
		r, err := p.A.EP.SendActive(1, nil, p.A.Mem.Bytes()[:n], &ucp.OpParams{Mem: p.A.Mem})
		require.NoError(t, err)
		assert.Equal(t, n > eager, r != nil && r.UsesRendezvous(), "%d bytes", n)
		require.NoError(t, p.Finish(r, nil))
		p.Until(func() bool { return got == n })
	}
	_, table, found := strings.Cut(p.A.EP.Explain(), "\nactive messages over sm memory, buffers of MemAlloc:\n")
	require.True(t, found)
	_, rndv, _ := strings.Cut(table, fmt.Sprintf("..%d ", eager))
	assert.Regexp(t, `^ *(short|bcopy) .*\n +\d+\.\.inf +rndv `, rndv)
}

// TestThreshold_RegisteredAtOnce: registered data that is copied needs no request, and must be in the memory of the caller.
func TestThreshold_RegisteredAtOnce(t *testing.T) {
	p := ucppair.Open(t, tlsets.Real("sm", "sm"), ucp.Config{}).Both().Warm()
	p.B.W.OnActive(1, func(*ucp.ActiveMessage) {})
	mem, eager := p.A.Mem, p.A.W.Ifaces()[0].EagerLimit()
	usesRndv(t, p, 2<<10, &ucp.OpParams{Mem: mem}) // receives credit
	for _, n := range []int{proto.ShortestAnnounced, 2 << 10, min(eager, p.A.EP.AnnouncedFrom(mem).From-1)} {
		params, made := &ucp.OpParams{Mem: mem}, p.A.W.RequestsMade()
		p.A.W.WithoutPool(func() {
			r, err := p.A.EP.TagSend(1, mem.Bytes()[:n], params)
			require.NoError(t, p.Finish(r, err))
			r, err = p.A.EP.SendActive(1, []byte("header"), mem.Bytes()[:n-6], params)
			require.NoError(t, p.Finish(r, err))
		})
		assert.Equal(t, made, p.A.W.RequestsMade(), "%d bytes", n)
		require.NoError(t, p.Finish(p.B.W.TagRecv(make([]byte, n), 1, exact, nil, nil)))
		_, err := p.A.EP.TagSend(1, make([]byte, n), params)
		require.ErrorIs(t, err, ucs.ErrInvalidParam)
		_, err = p.A.EP.SendActive(1, nil, make([]byte, n), params)
		require.ErrorIs(t, err, ucs.ErrInvalidParam)
	}
}

// usesRndv sends n bytes, for which there is credit, and reports whether they used rendezvous.
func usesRndv(t *testing.T, p *ucppair.Pair, n int, params *ucp.OpParams) bool {
	t.Helper()
	for p.A.EP.Messages() == nil || p.A.EP.Messages().Credit < window.Charge(n) { // the first messages make the peer grant more credit
		recv, err := p.B.W.TagRecv(make([]byte, 1), 1, exact, nil, nil)
		require.NoError(t, err)
		send, err := p.A.EP.TagSend(1, []byte{1}, nil)
		require.NoError(t, p.Finish(send, err))
		require.NoError(t, p.Finish(recv, nil))
	}
	copy(p.A.Mem.Bytes(), testenv.Pattern(n, n))
	data := p.A.Mem.Bytes()[:n]
	if params == nil {
		data = testenv.Pattern(n, n)
	}
	send, err := p.A.EP.TagSend(1, data, params)
	require.NoError(t, err)
	announced := send != nil && send.UsesRendezvous()
	recv, err := p.B.W.TagRecv(p.B.Mem.Bytes()[:n], 1, exact, nil, &ucp.OpParams{Mem: p.B.Mem})
	require.NoError(t, p.Finish(recv, err))
	require.NoError(t, p.Finish(send, nil))
	testenv.RequireBytes(t, testenv.Pattern(n, n), p.B.Mem.Bytes()[:n])
	return announced
}

// TestThreshold_Configured: a configured threshold is used for any costs.
func TestThreshold_Configured(t *testing.T) {
	p := ucppair.New(t, tlsets.Real("sm", "sm"), ucp.Config{RndvThresh: config.MemSize(30 << 10)}).Both().Warm()
	assert.Equal(t, 30<<10, p.A.EP.AnnouncedFrom(p.A.Mem).From)
	assert.False(t, usesRndv(t, p, 30<<10-1, &ucp.OpParams{Mem: p.A.Mem}))
	assert.True(t, usesRndv(t, p, 30<<10, &ucp.OpParams{Mem: p.A.Mem}))
	assert.Contains(t, p.A.EP.Explain(), "threshold: RNDV_THRESH=30720\n")
}
