package ucp

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs"
)

const exact = ^uint64(0)

// tagSizes are lengths around the limits of inline messages, bcopy and fragments.
var tagSizes = []int{0, 1, 8, 31, 32, 33, 248, 249, 1000, 2031, 2032, 2033, 8176, 8177, 15000, 40_000}

// tagSend sends a message, which must complete without the peer.
func (p *pair) tagSend(tag uint64, data []byte) *Request {
	p.t.Helper()
	r, err := p.a.ep.TagSend(tag, data, nil)
	require.NoError(p.t, err)
	return r
}

// unexpected waits until b has n unexpected messages, which are complete.
func (p *pair) unexpected(n int) {
	p.t.Helper()
	p.until(func() bool {
		whole := 0
		for m := range p.b.w.tag.table.Messages() {
			if m.Owner.in == nil {
				whole++
			}
		}
		return whole == n
	})
}

// grown connects, and waits until a has all credit of the configuration.
func (p *pair) grown() *pair {
	p.t.Helper()
	p.connect()
	require.NoError(p.t, p.finish(p.a.ep.TagSend(0, nil, nil)))
	require.NoError(p.t, p.finish(p.b.w.TagRecv(nil, 0, exact, nil, nil)))
	p.until(func() bool { return p.a.ep.msgs.Credit > firstWindow })
	return p
}

func TestTag_Sizes(t *testing.T) {
	overEvery(t, func(t *testing.T, p *pair) {
		p.connect()
		for i, size := range tagSizes {
			data, buf := pattern(size, i), make([]byte, size+1)
			for _, expected := range []bool{true, false} {
				clear(buf)
				var sent, recv *Request
				var err error
				info, tag := &TagInfo{}, uint64(i)<<40
				if expected {
					recv, err = p.b.w.TagRecv(buf, tag, exact, info, nil)
					require.NotNil(t, recv)
					sent = p.tagSend(tag, data)
				} else {
					sent = p.tagSend(tag, data)
					p.unexpected(1)
					recv, err = p.b.w.TagRecv(buf, tag, exact, info, nil)
				}
				require.NoError(t, p.finish(recv, err))
				require.NoError(t, p.finish(sent, nil))
				requireBytes(t, data, buf[:size])
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
	overEvery(t, func(t *testing.T, p *pair) {
		p.grown()
		const size = 100_000
		data, buf := pattern(size, 3), make([]byte, size)
		sent := p.tagSend(2, data)
		p.until(func() bool { return p.b.w.tag.table.Unexpected() == 1 })
		var info TagInfo
		require.NoError(t, p.finish(p.b.w.TagRecv(buf, 2, exact, &info, nil)))
		require.NoError(t, p.finish(sent, nil))
		requireBytes(t, data, buf)
		require.Equal(t, size, info.Length)
	})
}

func TestTag_Truncated(t *testing.T) {
	overEvery(t, func(t *testing.T, p *pair) {
		p.connect()
		for _, size := range []int{9, 500, 15000} {
			for _, expected := range []bool{true, false} {
				data, buf, info := pattern(size, 1), make([]byte, 8), &TagInfo{}
				var recv *Request
				var err error
				if expected {
					recv, err = p.b.w.TagRecv(buf[:4], 5, exact, info, nil)
				}
				sent := p.tagSend(5, data)
				if !expected {
					p.unexpected(1)
					recv, err = p.b.w.TagRecv(buf[:4], 5, exact, info, nil)
				}
				err = p.finish(recv, err)
				require.ErrorIs(t, err, ucs.ErrTruncated)
				require.ErrorContains(t, err, "tag receive 4 bytes")
				require.NoError(t, p.finish(sent, nil))
				requireBytes(t, append(data[:4:4], 0, 0, 0, 0), buf)
				require.Equal(t, size, info.Length)
			}
		}
		require.NoError(t, p.a.ep.Err())
	})
}

// TestTag_Masks: a receive matches the earliest message with its tag, and a message the earliest receive.
func TestTag_Masks(t *testing.T) {
	overEvery(t, func(t *testing.T, p *pair) {
		p.connect()
		var sent []*Request
		for i, tag := range []uint64{0x11, 0x21, 0x12, 0x11} {
			sent = append(sent, p.tagSend(tag, []byte{byte(i)}))
		}
		p.unexpected(4)
		for _, tc := range []struct {
			tag, mask uint64
			want      byte
		}{{0x02, 0x0f, 2}, {0x20, 0xf0, 1}, {0x11, exact, 0}, {0, 0, 3}} {
			buf := []byte{9}
			r, err := p.b.w.TagRecv(buf, tc.tag, tc.mask, nil, nil)
			require.Nil(t, r)
			require.NoError(t, err)
			require.Equal(t, tc.want, buf[0])
		}
		bufs, reqs := make([][1]byte, 3), make([]*Request, 3)
		for i, mask := range []uint64{exact, 0x0f, 0} {
			r, err := p.b.w.TagRecv(bufs[i][:], 0x31, mask, nil, nil)
			require.NoError(t, err)
			reqs[i] = r
		}
		for i, tag := range []uint64{0x77, 0x41, 0x31} {
			sent = append(sent, p.tagSend(tag, []byte{byte(i)}))
		}
		for i, want := range []byte{2, 1, 0} {
			require.NoError(t, p.finish(reqs[i], nil))
			require.Equal(t, want, bufs[i][0])
		}
		for _, r := range sent {
			require.NoError(t, p.finish(r, nil))
		}
	})
}

// TestTag_Order: messages of all lengths are received in the order in which they were sent, also if they waited for a
// lane, for the queue or for credit.
func TestTag_Order(t *testing.T) {
	overEvery(t, func(t *testing.T, p *pair) {
		p.connect()
		const n = 48 // less than a window, because all messages of one tag are received before those of the next one
		var sent []*Request
		for i := range n {
			if r := p.tagSend(uint64(i%3), pattern(tagSizes[i*7%len(tagSizes)], i)); r != nil {
				sent = append(sent, r)
			}
			if i%10 == 0 {
				p.step()
			}
		}
		buf := make([]byte, 1<<16)
		for k := range uint64(3) {
			for i := int(k); i < n; i += 3 {
				var info TagInfo
				require.NoError(t, p.finish(p.b.w.TagRecv(buf, k, exact, &info, nil)))
				requireBytes(t, pattern(tagSizes[i*7%len(tagSizes)], i), buf[:info.Length])
			}
		}
		for _, r := range sent {
			require.NoError(t, p.finish(r, nil))
		}
	})
}
