package ucp_test

import (
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
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
		before func(p *ucppair.Pair, e *ucp.EP) (reqs []*ucp.Request)
		atOnce bool
	}{
		{"nothing in the way", func(*ucppair.Pair, *ucp.EP) []*ucp.Request { return nil }, true},
		{"a full lane", func(p *ucppair.Pair, e *ucp.EP) (reqs []*ucp.Request) {
			e.Messages().Credit += 1 << 30 // so that the credit lasts
			for len(reqs) == 0 {
				if r := tagSend(p, 7, testenv.Pattern(8, 7)); r != nil {
					reqs = append(reqs, r)
				}
			}
			return reqs
		}, false},
		{"no credit", func(_ *ucppair.Pair, e *ucp.EP) []*ucp.Request {
			e.Messages().Credit -= e.Messages().Credit + window.Reserve(e.Messages().Most)
			return nil
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := ucppair.New(t, tlsets.Real("sm", "sm"), ucp.Config{}).Connect()
			const n = 40_000
			from, to := memOf(t, &p.A, n), memOf(t, &p.B, n)
			recv, err := p.B.W.TagRecv(to.Bytes(), 1, exact, nil, &ucp.OpParams{Mem: to})
			require.NoError(t, err)
			require.NoError(t, p.Finish(p.A.EP.TagSend(1, from.Bytes(), &ucp.OpParams{Mem: from})))
			require.NoError(t, p.Finish(recv, nil)) // the window has grown, and there are lanes
			e, credit := p.A.EP, p.A.EP.Messages().Credit
			copy(from.Bytes(), testenv.Pattern(n, 3))
			recv, err = p.B.W.TagRecv(to.Bytes(), 1, exact, nil, &ucp.OpParams{Mem: to})
			require.NoError(t, err)
			require.NotNil(t, recv)
			reqs := tc.before(p, e)
			sent, err := e.TagSend(1, from.Bytes(), &ucp.OpParams{Mem: from})
			require.NoError(t, err)
			require.NotNil(t, sent)
			assert.Equal(t, tc.atOnce, sent.PostedInOneCall(), sent.Text())
			if tc.atOnce {
				assert.Equal(t, credit-window.MessageCharge, e.Messages().Credit)
				p.B.W.Progress()
				assert.True(t, recv.Done())
				assert.False(t, sent.Done())
			}
			if e.Messages().Credit < 0 {
				e.Messages().Credit = credit
				e.ReplayMessages()
			}
			require.NoError(t, p.Finish(recv, nil))
			require.NoError(t, p.Finish(sent, nil))
			testenv.RequireBytes(t, testenv.Pattern(n, 3), to.Bytes())
			for _, r := range reqs {
				require.NoError(t, p.Finish(r, nil))
			}
			assert.Nil(t, e.Awaited())
			assert.Zero(t, p.A.W.RemoteRequests().Len())
		})
	}
}
