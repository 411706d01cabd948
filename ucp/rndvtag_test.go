package ucp

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/ucs"
)

// announceTagged sends a tagged message with rendezvous.
func (p *rndvPair) announceTagged(tag uint64, sync bool) *Request {
	p.t.Helper()
	copy(p.from.Bytes(), pattern(tlsets.LongMessage, int(tag)))
	send := p.a.ep.TagSend
	if sync {
		send = p.a.ep.TagSendSync
	}
	r, err := send(tag, p.from.Bytes(), &OpParams{Mem: p.from})
	require.NoError(p.t, err)
	require.NotNil(p.t, r)
	return r
}

// TestRndvTag: receives are posted before the RTS arrives, and after it.
func TestRndvTag(t *testing.T) {
	eachScheme(t, func(t *testing.T, p *rndvPair) {
		for tag, mem := range []*Mem{p.to, nil} {
			for _, expected := range []bool{true, false} {
				for _, sync := range []bool{false, true} {
					buf, params, info := make([]byte, tlsets.LongMessage), &OpParams{}, &TagInfo{}
					if mem != nil {
						buf, params.Mem = mem.Bytes(), mem
						clear(buf)
					}
					recv := func() *Request {
						r, err := p.b.w.TagRecv(buf, uint64(tag), exact, info, params)
						require.NoError(t, err)
						return r
					}
					var got *Request
					if expected {
						got = recv()
					}
					sent := p.announceTagged(uint64(tag), sync)
					if !expected {
						p.unexpected(1)
						require.False(t, sent.Done())
						got = recv()
					}
					require.NoError(t, p.finish(got, nil))
					require.NoError(t, p.finish(sent, nil))
					requireBytes(t, p.from.Bytes(), buf)
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
			buf, info := p.to.Bytes(), &TagInfo{}
			clear(buf)
			got, err := p.b.w.TagRecv(buf[:n], 3, exact, info, &OpParams{Mem: p.to})
			require.NoError(t, err)
			sent := p.announceTagged(3, false)
			err = p.finish(got, nil)
			require.ErrorIs(t, err, ucs.ErrTruncated)
			require.ErrorContains(t, err, "tag receive")
			require.NoError(t, p.finish(sent, nil))
			requireBytes(t, p.from.Bytes()[:n], buf[:n])
			requireZero(t, buf[n:], "written past the end of the buffer")
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
			p.unexpected(1)
			m, info, ok := p.b.w.TagProbe(0, 0, true)
			require.True(t, ok)
			assert.Equal(t, tlsets.LongMessage, info.Length)
			if k == 2 {
				require.NoError(t, p.finish(m.Recv(p.to.Bytes(), nil, &OpParams{Mem: p.to})))
				requireBytes(t, p.from.Bytes(), p.to.Bytes())
			} else {
				m.Release()
			}
			err := p.finish(sent, nil)
			if sync {
				assert.ErrorIs(t, err, ucs.ErrCanceled)
			} else {
				assert.NoError(t, err)
			}
		}
		require.NoError(t, p.a.ep.Err())
	})
}

// TestRndvTag_SenderGone: when a sender disconnects, its announced messages fail, in the table and after a probe has
// removed them. Messages of others remain.
func TestRndvTag_SenderGone(t *testing.T) {
	eachScheme(t, func(t *testing.T, p *rndvPair) {
		sent := []*Request{p.announceTagged(1, false), p.announceTagged(2, false)}
		p.unexpected(2)
		taken, _, ok := p.b.w.TagProbe(1, exact, true)
		require.True(t, ok)
		p.tagSendWhole(t)
		p.unexpected(2)
		require.NoError(t, p.finish(p.a.ep.Close(CloseForce)))
		p.unexpected(1)
		_, err := taken.Recv(p.to.Bytes(), nil, nil)
		assert.ErrorIs(t, err, ucs.ErrPeerClosed)
		for _, r := range sent {
			assert.ErrorIs(t, p.finish(r, nil), ucs.ErrCanceled)
		}
		var info TagInfo
		require.NoError(t, p.finish(p.b.w.TagRecv(nil, 0, 0, &info, nil)))
		assert.Equal(t, uint64(9), info.Tag)
	})
}

// tagSendWhole sends an empty message, which does not use rendezvous.
func (p *rndvPair) tagSendWhole(t *testing.T) {
	t.Helper()
	require.NoError(t, p.finish(p.a.ep.TagSend(9, nil, nil)))
}
