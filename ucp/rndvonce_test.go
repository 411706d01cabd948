package ucp

import (
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/ucp/internal/window"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRndv_AtOnce: a message is announced in the send call, and got in the call that receives the RTS, and neither is
// in a list of operations. If the lane is full, or there is no credit for the RTS, the messages wait, and arrive in
// order.
func TestRndv_AtOnce(t *testing.T) {
	for _, tc := range []struct {
		name   string
		before func(p *pair, e *EP) (reqs []*Request)
		atOnce bool
	}{
		{"nothing in the way", func(*pair, *EP) []*Request { return nil }, true},
		{"a full lane", func(p *pair, e *EP) (reqs []*Request) {
			e.msgs.Credit += 1 << 30 // so that the credit lasts
			for len(reqs) == 0 {
				if r := p.tagSend(7, pattern(8, 7)); r != nil {
					reqs = append(reqs, r)
				}
			}
			return reqs
		}, false},
		{"no credit", func(_ *pair, e *EP) []*Request {
			e.msgs.Credit -= e.msgs.Credit + window.Reserve(e.msgs.Most)
			return nil
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newPair(t, tlsets.Real("sm", "sm"), Config{}).connect()
			const n = 40_000
			from, to := p.a.memOf(t, n), p.b.memOf(t, n)
			recv, err := p.b.w.TagRecv(to.Bytes(), 1, exact, nil, &OpParams{Mem: to})
			require.NoError(t, err)
			require.NoError(t, p.finish(p.a.ep.TagSend(1, from.Bytes(), &OpParams{Mem: from})))
			require.NoError(t, p.finish(recv, nil)) // the window has grown, and there are lanes
			e, credit := p.a.ep, p.a.ep.msgs.Credit
			copy(from.Bytes(), pattern(n, 3))
			recv, err = p.b.w.TagRecv(to.Bytes(), 1, exact, nil, &OpParams{Mem: to})
			require.NoError(t, err)
			require.NotNil(t, recv)
			reqs := tc.before(p, e)
			sent, err := e.TagSend(1, from.Bytes(), &OpParams{Mem: from})
			require.NoError(t, err)
			require.NotNil(t, sent)
			assert.Equal(t, tc.atOnce, sent.flags == reqPosted|placeAwaited, "flags %#x", sent.flags)
			if tc.atOnce {
				assert.Equal(t, credit-messageCharge, e.msgs.Credit)
				p.b.w.Progress()
				assert.True(t, recv.Done())
				assert.False(t, sent.Done())
			}
			if e.msgs.Credit < 0 {
				e.msgs.Credit = credit
				e.replayMessages()
			}
			require.NoError(t, p.finish(recv, nil))
			require.NoError(t, p.finish(sent, nil))
			requireBytes(t, pattern(n, 3), to.Bytes())
			for _, r := range reqs {
				require.NoError(t, p.finish(r, nil))
			}
			assert.False(t, e.awaited.first != nil)
			assert.Zero(t, p.a.w.pool.remote.Len())
		})
	}
}
