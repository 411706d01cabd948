package ucp_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/ucp"
)

// TestPeerKeys: an EP caches a few keys of messages, and closes them with itself.
func TestPeerKeys(t *testing.T) {
	eachScheme(t, func(t *testing.T, p *rndvPair) {
		if p.A.Ctx.Configuration().RndvScheme == "am" {
			t.Skip("no keys")
		}
		to := memOf(t, &p.B, tlsets.LongMessage)
		move := func(from *ucp.Mem) {
			into := &ucp.OpParams{Mem: to}
			r, err := p.A.EP.SendActive(1, nil, from.Bytes(), &ucp.OpParams{Mem: from})
			require.NoError(t, err)
			m := p.announcement()
			require.NoError(t, p.Finish(m.Recv(to.Bytes(), into)))
			m.Release()
			require.NoError(t, p.Finish(r, nil))
		}
		move(p.from)
		far := p.B.W.EPs() // the EPs of the receiver
		var keys []*ucp.EP
		for e := range far.All() {
			keys = append(keys, e)
		}
		for e := range p.A.W.EPs().All() {
			keys = append(keys, e)
		}
		count := func() (n int) {
			for _, e := range keys {
				n += e.KeyCount()
			}
			return n
		}
		one := count()
		for range 5 {
			move(p.from)
		}
		assert.Equal(t, one, count(), "the same key again")
		for range 2 * ucp.MaxPeerKeys {
			mem, err := p.A.Ctx.MemAlloc(tlsets.LongMessage)
			require.NoError(t, err)
			move(mem)
			require.NoError(t, mem.Close())
		}
		assert.LessOrEqual(t, count(), one+ucp.MaxPeerKeys)
		require.NoError(t, p.Finish(p.A.EP.Close(ucp.CloseFlush)))
		p.A.Key.Close()
		idle(p.Pair)
		assert.Zero(t, count())
	})
}
