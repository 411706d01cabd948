package ucttest

import (
	"bytes"
	"errors"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/uct"
)

var mapChecks = []check{
	{
		name: "map/memory",
		rule: "Map returns n bytes of the peer's memory at the address; both sides see each other's stores until unmap, and the EP continues to work",
		any:  uct.CapGet, run: checkMap,
	},
	{
		name: "map/refused",
		rule: "Map returns ErrRemoteAccess for a range outside the region, another key, a key without read access, and closed memory; the EP continues to work",
		any:  uct.CapGet, run: checkMapRefused,
	},
	{
		name: "map/closed",
		rule: "mapped bytes remain mapped until unmap, also after the peer has closed the memory and this side the EP",
		any:  uct.CapGet, run: checkMapClosed,
	},
}

// mapper returns the Mapper of the connected EP from A to B. It skips the check if the transport does not map the memory of B.
func (p *pair) mapper(t checkT) uct.Mapper {
	t.Helper()
	m := p.AB.EP.Ops().Map
	if m == nil {
		t.Skipf("the transport does not map memory of peers")
	}
	if _, unmap, err := m.Map(p.AB.Raddr, 1, p.AB.Key); err == nil {
		unmap()
	} else if err != uct.ErrNoResource { // ErrNoResource: the EP is connecting
		require.ErrorIs(t, err, uct.ErrUnsupported, "map over a new ep")
	}
	p.works(t, p.AB, "a new ep") // connects the EP
	_, unmap, err := m.Map(p.AB.Raddr, 1, p.AB.Key)
	if errors.Is(err, uct.ErrUnsupported) {
		t.Skipf("memory of this kind is not mapped")
	}
	require.NoError(t, err, "map a byte")
	unmap()
	return m
}

func checkMap(t checkT, p *pair) {
	m := p.mapper(t)
	theirs := p.B.Mem.Bytes()
	copy(theirs, pattern(1, regionLen))
	whole, unmapWhole, err := m.Map(p.AB.Raddr, regionLen, p.AB.Key)
	require.NoError(t, err, "all of the region")
	for _, r := range []struct{ off, n int }{{0, 1}, {1, 7}, {4095, 2}, {4096, 4096}, {regionLen - 1, 1}, {0, regionLen}} {
		mem, unmap, err := m.Map(p.AB.Raddr+uint64(r.off), r.n, p.AB.Key)
		require.NoError(t, err, "%+v", r)
		require.Len(t, mem, r.n, "%+v", r)
		assert.Equal(t, r.n, cap(mem), "%+v: bytes behind them", r)
		require.True(t, bytes.Equal(theirs[r.off:r.off+r.n], mem), "%+v: the bytes are others", r)
		mem[0]++
		assert.Equal(t, mem[0], theirs[r.off], "%+v: a store of this side", r)
		theirs[r.off+r.n-1]++
		assert.Equal(t, theirs[r.off+r.n-1], mem[r.n-1], "%+v: a store of the peer", r)
		unmap()
	}
	assert.True(t, bytes.Equal(theirs, whole), "after another range was unmapped")
	unmapWhole()
	p.works(t, p.AB, "the same ep")
}

func checkMapRefused(t checkT, p *pair) {
	m := p.mapper(t)
	for _, x := range p.unreadable(t, 64) {
		mem, unmap, err := m.Map(x.raddr, 64, x.key)
		assert.ErrorIs(t, err, uct.ErrRemoteAccess, x.what)
		assert.Nil(t, mem, x.what)
		assert.Nil(t, unmap, x.what)
	}
	p.works(t, p.AB, "the same ep")
}

func checkMapClosed(t checkT, p *pair) {
	p.mapper(t)
	mem := p.memory(t, p.B, 3*4096, uct.AccessAll)
	key := p.unpack(t, p.A, mem)
	l, back := p.connect(t, p.A, p.B)
	p.works(t, l, "another ep")
	m := l.EP.Ops().Map
	got, unmap, err := m.Map(mem.Addr(), 3*4096, key)
	require.NoError(t, err)
	raddr := mem.Addr()
	closeMem(t, mem)
	_, _, err = m.Map(raddr, 3*4096, key)
	assert.ErrorIs(t, err, uct.ErrRemoteAccess, "closed memory")
	reads := func() { assert.LessOrEqual(t, bytes.Count(got, []byte{0}), len(got)) } // reads all bytes: any content, but no SIGSEGV
	reads()
	p.works(t, l, "the same ep")
	p.closeLink(t, l)
	p.closeLink(t, back)
	reads()
	unmap()
}
