package ucp_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
)

// announceTagged sends a tagged message with rendezvous.
func (p *rndvPair) announceTagged(tag uint64, sync bool) *ucp.Request {
	p.T.Helper()
	copy(p.from.Bytes(), testenv.Pattern(tlsets.LongMessage, int(tag)))
	send := p.A.EP.TagSend
	if sync {
		send = p.A.EP.TagSendSync
	}
	r, err := send(tag, p.from.Bytes(), &ucp.OpParams{Mem: p.from})
	require.NoError(p.T, err)
	require.NotNil(p.T, r)
	return r
}

// TestRndvTag: receives are posted before the RTS arrives, and after it.
func TestRndvTag(t *testing.T) {
	eachScheme(t, func(t *testing.T, p *rndvPair) {
		for tag, mem := range []*ucp.Mem{p.to, nil} {
			for _, expected := range []bool{true, false} {
				for _, sync := range []bool{false, true} {
					buf, params, info := make([]byte, tlsets.LongMessage), &ucp.OpParams{}, &ucp.TagInfo{}
					if mem != nil {
						buf, params.Mem = mem.Bytes(), mem
						clear(buf)
					}
					recv := func() *ucp.Request {
						r, err := p.B.W.TagRecv(buf, uint64(tag), exact, info, params)
						require.NoError(t, err)
						return r
					}
					var got *ucp.Request
					if expected {
						got = recv()
					}
					sent := p.announceTagged(uint64(tag), sync)
					if !expected {
						waitUnexpected(p.Pair, 1)
						require.False(t, sent.Done())
						got = recv()
					}
					require.NoError(t, p.Finish(got, nil))
					require.NoError(t, p.Finish(sent, nil))
					testenv.RequireBytes(t, p.from.Bytes(), buf)
					assert.Equal(t, uint64(tag), info.Tag)
					assert.Equal(t, tlsets.LongMessage, info.Length)
				}
			}
		}
	})
}

// TestRndvTag_Truncated: info has the length, and the buffer the first bytes.
func TestRndvTag_Truncated(t *testing.T) {
	eachScheme(t, func(t *testing.T, p *rndvPair) {
		for _, n := range []int{0, 40_000} {
			buf, info := p.to.Bytes(), &ucp.TagInfo{}
			clear(buf)
			got, err := p.B.W.TagRecv(buf[:n], 3, exact, info, &ucp.OpParams{Mem: p.to})
			require.NoError(t, err)
			sent := p.announceTagged(3, false)
			err = p.Finish(got, nil)
			require.ErrorIs(t, err, ucs.ErrTruncated)
			require.ErrorContains(t, err, "tag receive")
			require.NoError(t, p.Finish(sent, nil))
			testenv.RequireBytes(t, p.from.Bytes()[:n], buf[:n])
			testenv.RequireZero(t, buf[n:], "written past the end of the buffer")
			assert.Equal(t, tlsets.LongMessage, info.Length)
		}
	})
}

// TestRndvTag_Probed: a probe finds an announced message, and removes it to receive or to drop it. If it is dropped,
// the send completes.
func TestRndvTag_Probed(t *testing.T) {
	eachScheme(t, func(t *testing.T, p *rndvPair) {
		for k, sync := range []bool{false, true, false} {
			sent := p.announceTagged(uint64(k), sync)
			waitUnexpected(p.Pair, 1)
			m, info, ok := p.B.W.TagProbe(0, 0, true)
			require.True(t, ok)
			assert.Equal(t, tlsets.LongMessage, info.Length)
			if k == 2 {
				require.NoError(t, p.Finish(m.Recv(p.to.Bytes(), nil, &ucp.OpParams{Mem: p.to})))
				testenv.RequireBytes(t, p.from.Bytes(), p.to.Bytes())
			} else {
				m.Release()
			}
			err := p.Finish(sent, nil)
			if sync {
				assert.ErrorIs(t, err, ucs.ErrCanceled)
			} else {
				assert.NoError(t, err)
			}
		}
		require.NoError(t, p.A.EP.Err())
	})
}

// TestRndvTag_SenderGone: when a sender disconnects, its announced messages fail, in the table and after a probe has
// removed them. Messages of others remain.
func TestRndvTag_SenderGone(t *testing.T) {
	eachScheme(t, func(t *testing.T, p *rndvPair) {
		sent := []*ucp.Request{p.announceTagged(1, false), p.announceTagged(2, false)}
		waitUnexpected(p.Pair, 2)
		taken, _, ok := p.B.W.TagProbe(1, exact, true)
		require.True(t, ok)
		p.tagSendWhole(t)
		waitUnexpected(p.Pair, 2)
		require.NoError(t, p.Finish(p.A.EP.Close(ucp.CloseForce)))
		waitUnexpected(p.Pair, 1)
		_, err := taken.Recv(p.to.Bytes(), nil, nil)
		assert.ErrorIs(t, err, ucs.ErrPeerClosed)
		for _, r := range sent {
			assert.ErrorIs(t, p.Finish(r, nil), ucs.ErrCanceled)
		}
		var info ucp.TagInfo
		require.NoError(t, p.Finish(p.B.W.TagRecv(nil, 0, 0, &info, nil)))
		assert.Equal(t, uint64(9), info.Tag)
	})
}

// tagSendWhole sends an empty message, which does not use rendezvous.
func (p *rndvPair) tagSendWhole(t *testing.T) {
	t.Helper()
	require.NoError(t, p.Finish(p.A.EP.TagSend(9, nil, nil)))
}
