package ucp_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
)

// tagSizes are lengths around the limits of inline messages, bcopy and fragments.
var tagSizes = []int{0, 1, 8, 31, 32, 33, 248, 249, 1000, 2031, 2032, 2033, 8176, 8177, 15000, 40_000}

// tagSend sends a message, which must complete without the peer.
func tagSend(p *ucppair.Pair, tag uint64, data []byte) *ucp.Request {
	p.T.Helper()
	r, err := p.A.EP.TagSend(tag, data, nil)
	require.NoError(p.T, err)
	return r
}

// waitUnexpected waits until b has n unexpected messages, which are complete.
func waitUnexpected(p *ucppair.Pair, n int) {
	p.T.Helper()
	p.Until(func() bool {
		whole := 0
		for m := range p.B.W.Tags().Messages() {
			if !m.Owner.Incomplete() {
				whole++
			}
		}
		return whole == n
	})
}

// growWindow connects, and waits until a has all credit of the configuration.
func growWindow(p *ucppair.Pair) *ucppair.Pair {
	p.T.Helper()
	p.Connect()
	require.NoError(p.T, p.Finish(p.A.EP.TagSend(0, nil, nil)))
	require.NoError(p.T, p.Finish(p.B.W.TagRecv(nil, 0, exact, nil, nil)))
	p.Until(func() bool { return p.A.EP.Messages().Credit > ucp.FirstWindow })
	return p
}

func TestTag_Sizes(t *testing.T) {
	overEvery(t, func(t *testing.T, p *ucppair.Pair) {
		p.Connect()
		for i, size := range tagSizes {
			data, buf := testenv.Pattern(size, i), make([]byte, size+1)
			for _, expected := range []bool{true, false} {
				clear(buf)
				var sent, recv *ucp.Request
				var err error
				info, tag := &ucp.TagInfo{}, uint64(i)<<40
				if expected {
					recv, err = p.B.W.TagRecv(buf, tag, exact, info, nil)
					require.NotNil(t, recv)
					sent = tagSend(p, tag, data)
				} else {
					sent = tagSend(p, tag, data)
					waitUnexpected(p, 1)
					recv, err = p.B.W.TagRecv(buf, tag, exact, info, nil)
				}
				require.NoError(t, p.Finish(recv, err))
				require.NoError(t, p.Finish(sent, nil))
				testenv.RequireBytes(t, data, buf[:size])
				require.Zero(t, buf[size])
				require.Equal(t, tag, info.Tag)
				require.Equal(t, size, info.Length)
				require.NotNil(t, info.From)
			}
		}
	})
}

// TestTag_Partial: a receive is posted when a part of its message has arrived.
func TestTag_Partial(t *testing.T) {
	overEvery(t, func(t *testing.T, p *ucppair.Pair) {
		growWindow(p)
		const size = 100_000
		data, buf := testenv.Pattern(size, 3), make([]byte, size)
		sent := tagSend(p, 2, data)
		p.Until(func() bool { return p.B.W.Tags().Unexpected() == 1 })
		var info ucp.TagInfo
		require.NoError(t, p.Finish(p.B.W.TagRecv(buf, 2, exact, &info, nil)))
		require.NoError(t, p.Finish(sent, nil))
		testenv.RequireBytes(t, data, buf)
		require.Equal(t, size, info.Length)
	})
}

func TestTag_Truncated(t *testing.T) {
	overEvery(t, func(t *testing.T, p *ucppair.Pair) {
		p.Connect()
		for _, size := range []int{9, 500, 15000} {
			for _, expected := range []bool{true, false} {
				data, buf, info := testenv.Pattern(size, 1), make([]byte, 8), &ucp.TagInfo{}
				var recv *ucp.Request
				var err error
				if expected {
					recv, err = p.B.W.TagRecv(buf[:4], 5, exact, info, nil)
				}
				sent := tagSend(p, 5, data)
				if !expected {
					waitUnexpected(p, 1)
					recv, err = p.B.W.TagRecv(buf[:4], 5, exact, info, nil)
				}
				err = p.Finish(recv, err)
				require.ErrorIs(t, err, ucs.ErrTruncated)
				require.ErrorContains(t, err, "tag receive 4 bytes")
				require.NoError(t, p.Finish(sent, nil))
				testenv.RequireBytes(t, append(data[:4:4], 0, 0, 0, 0), buf)
				require.Equal(t, size, info.Length)
			}
		}
		require.NoError(t, p.A.EP.Err())
	})
}

// TestTag_Masks: a receive matches the earliest message with its tag, and a message the earliest receive.
func TestTag_Masks(t *testing.T) {
	overEvery(t, func(t *testing.T, p *ucppair.Pair) {
		p.Connect()
		var sent []*ucp.Request
		for i, tag := range []uint64{0x11, 0x21, 0x12, 0x11} {
			sent = append(sent, tagSend(p, tag, []byte{byte(i)}))
		}
		waitUnexpected(p, 4)
		for _, tc := range []struct {
			tag, mask uint64
			want      byte
		}{{0x02, 0x0f, 2}, {0x20, 0xf0, 1}, {0x11, exact, 0}, {0, 0, 3}} {
			buf := []byte{9}
			r, err := p.B.W.TagRecv(buf, tc.tag, tc.mask, nil, nil)
			require.Nil(t, r)
			require.NoError(t, err)
			require.Equal(t, tc.want, buf[0])
		}
		bufs, reqs := make([][1]byte, 3), make([]*ucp.Request, 3)
		for i, mask := range []uint64{exact, 0x0f, 0} {
			r, err := p.B.W.TagRecv(bufs[i][:], 0x31, mask, nil, nil)
			require.NoError(t, err)
			reqs[i] = r
		}
		for i, tag := range []uint64{0x77, 0x41, 0x31} {
			sent = append(sent, tagSend(p, tag, []byte{byte(i)}))
		}
		for i, want := range []byte{2, 1, 0} {
			require.NoError(t, p.Finish(reqs[i], nil))
			require.Equal(t, want, bufs[i][0])
		}
		for _, r := range sent {
			require.NoError(t, p.Finish(r, nil))
		}
	})
}

// TestTag_Order: messages of all lengths are received in the order in which they were sent, also if they waited for a
// lane, for the queue or for credit.
func TestTag_Order(t *testing.T) {
	overEvery(t, func(t *testing.T, p *ucppair.Pair) {
		p.Connect()
		const n = 48 // less than a window, because all messages of one tag are received before those of the next one
		var sent []*ucp.Request
		for i := range n {
			if r := tagSend(p, uint64(i%3), testenv.Pattern(tagSizes[i*7%len(tagSizes)], i)); r != nil {
				sent = append(sent, r)
			}
			if i%10 == 0 {
				p.Step()
			}
		}
		buf := make([]byte, 1<<16)
		for k := range uint64(3) {
			for i := int(k); i < n; i += 3 {
				var info ucp.TagInfo
				require.NoError(t, p.Finish(p.B.W.TagRecv(buf, k, exact, &info, nil)))
				testenv.RequireBytes(t, testenv.Pattern(tagSizes[i*7%len(tagSizes)], i), buf[:info.Length])
			}
		}
		for _, r := range sent {
			require.NoError(t, p.Finish(r, nil))
		}
	})
}
