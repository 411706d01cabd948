package ucttest

import (
	"bytes"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/uct"
)

var mappedChecks = []check{{
	name: "get/mapped",
	rule: "GetMapped returns true only if it has read the whole range and a get may read that range; it writes only buf, and the EP continues to work",
	any:  uct.CapGet, run: checkMapped,
}}

// mappedAccess is a range for which GetMapped must return false.
type mappedAccess struct {
	what  string
	raddr uint64
	key   uct.RKey
}

func checkMapped(t checkT, p *pair) {
	m := p.AB.EP.Ops().Mapped
	if m == nil {
		t.Skipf("memory of peers is not mapped")
	}
	p.works(t, p.AB, "a new ep") // connects the EP
	buf := make([]byte, 64)
	if !m.GetMapped(buf, p.AB.Raddr, p.AB.Key) {
		t.Skipf("memory of this kind is not mapped")
	}
	p.readsMapped(t, m)
	for _, x := range p.unreadable(t, len(buf)) {
		assert.False(t, m.GetMapped(buf, x.raddr, x.key), x.what)
	}
	p.works(t, p.AB, "the same ep")
}

// readsMapped reads ranges of B's allocated region with GetMapped.
func (p *pair) readsMapped(t checkT, m uct.MappedGetter) {
	t.Helper()
	copy(p.B.Mem.Bytes(), pattern(1, regionLen))
	for _, n := range []int{1, 8, 100, regionLen} {
		buf := make([]byte, n+16)
		scribble(buf)
		require.True(t, m.GetMapped(buf[:n], p.AB.Raddr, p.AB.Key), "%d bytes", n)
		require.True(t, bytes.Equal(pattern(1, n), buf[:n]), "%d bytes", n)
		assert.True(t, untouched(buf[n:]), "%d bytes: wrote behind them", n)
	}
}

// unreadable returns ranges of n bytes that a get must not read.
func (p *pair) unreadable(t checkT, n int) []mappedAccess {
	t.Helper()
	end := p.AB.Raddr + regionLen
	all := []mappedAccess{
		{"a byte before the region", p.AB.Raddr - 1, p.AB.Key},
		{"a byte behind the region", end - uint64(n) + 1, p.AB.Key},
		{"wrapping around", ^uint64(0), p.AB.Key},
	}
	if p.A.MD.Attr().RKeyLen == 0 {
		return all
	}
	hidden := p.memory(t, p.B, 4096, uct.AccessAll&^uct.AccessRemoteRead)
	key := p.unpack(t, p.A, hidden)
	closed := p.memory(t, p.B, 4096, uct.AccessAll)
	stale, raddr := p.unpack(t, p.A, closed), closed.Addr()
	require.NoError(t, closed.Close())
	return append(all,
		mappedAccess{"the key of another region", p.AB.Raddr, key},
		mappedAccess{"without the right", hidden.Addr(), key},
		mappedAccess{"closed memory", raddr, stale})
}
