package ucp

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs"
)

// TestTag_Sync: a synchronous send completes when its message was matched, or dropped. A flush does not wait for that.
func TestTag_Sync(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.connect()
		for _, size := range []int{0, 8, 500, 2016, 2017, 8160, 20_000, 100_000} {
			data, buf := pattern(size, size), make([]byte, size)
			recv, err := p.b.w.TagRecv(buf, 7, exact, nil, nil)
			require.NoError(t, err)
			require.NoError(t, p.finish(p.a.ep.TagSendSync(7, data, nil)))
			require.False(t, p.b.w.tag.table.Expects(), "it has completed before its message was matched")
			require.NoError(t, p.finish(recv, nil))
			requireBytes(t, data, buf)

			sent, err := p.a.ep.TagSendSync(8, data, nil)
			require.NoError(t, err)
			p.unexpected(1)
			require.NoError(t, p.flush())
			require.False(t, sent.Done())
			require.False(t, sent.Cancel())
			clear(buf)
			require.NoError(t, p.finish(p.b.w.TagRecv(buf, 8, exact, nil, nil)))
			require.NoError(t, p.finish(sent, nil))
			requireBytes(t, data, buf)
		}
		sent, err := p.a.ep.TagSendSync(9, nil, nil)
		require.NoError(t, err)
		p.unexpected(1)
		m, _, ok := p.b.w.TagProbe(9, exact, true)
		require.True(t, ok)
		m.Release()
		err = p.finish(sent, nil)
		require.ErrorIs(t, err, ucs.ErrCanceled)
	})
}

func TestTagProbe(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.connect()
		w := p.b.w
		_, _, ok := w.TagProbe(0, 0, true)
		require.False(t, ok)
		var sent []*Request
		for i, size := range []int{10, 300} {
			sent = append(sent, p.tagSend(uint64(i), pattern(size, i)))
		}
		p.unexpected(2)
		m, info, ok := w.TagProbe(1, exact, false)
		require.True(t, ok)
		require.Nil(t, m)
		require.Equal(t, 300, info.Length)
		require.Equal(t, uint64(1), info.Tag)
		m, info, ok = w.TagProbe(0, 0, true)
		require.True(t, ok)
		require.Equal(t, 10, info.Length)
		require.Equal(t, info, m.Info())

		buf := make([]byte, 300)
		require.NoError(t, p.finish(w.TagRecv(buf, 0, 0, nil, nil)), "the other one")
		requireBytes(t, pattern(300, 1), buf)
		_, err := m.Recv(buf[:9], &info, nil)
		require.ErrorIs(t, err, ucs.ErrTruncated)
		requireBytes(t, pattern(10, 0)[:9], buf[:9])
		require.Zero(t, w.tag.table.Unexpected())
		for _, r := range sent {
			require.NoError(t, p.finish(r, nil))
		}
	})
}

// TestTagProbe_Partial: a message of which a part has arrived can be removed by a probe, received and dropped.
func TestTagProbe_Partial(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.grown()
		const size = 30_000
		for _, drop := range []bool{false, true} {
			sent := p.tagSend(4, pattern(size, 2))
			var m *TagMessage
			p.until(func() (ok bool) {
				m, _, ok = p.b.w.TagProbe(4, exact, true)
				return ok
			})
			require.Equal(t, size, m.Info().Length)
			if drop {
				m.Release()
			} else {
				buf := make([]byte, size)
				require.NoError(t, p.finish(m.Recv(buf, nil, nil)))
				requireBytes(t, pattern(size, 2), buf)
			}
			require.NoError(t, p.finish(sent, nil))
			p.until(func() bool { return p.b.from(p).msgs.Held == 0 })
		}
	})
}

// from returns the EP of x over which messages of the other end of p arrive.
func (x *end) from(p *pair) *EP {
	for e := range x.w.eps.All() {
		if e.msgs != nil && (e != p.a.ep || p.oneself() && e.msgs.Held > 0) {
			return e
		}
	}
	return p.a.ep
}

func TestTagRecv_Cancel(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.connect()
		var bufs [2][4]byte
		first, err := p.b.w.TagRecv(bufs[0][:], 1, exact, nil, nil)
		require.NoError(t, err)
		second, err := p.b.w.TagRecv(bufs[1][:], 1, exact, nil, nil)
		require.NoError(t, err)
		require.True(t, first.Cancel())
		require.Equal(t, ucs.StatusCanceled, first.Status())
		require.False(t, first.Cancel())
		err = p.finish(first, nil)
		require.ErrorIs(t, err, ucs.ErrCanceled)
		require.ErrorContains(t, err, "ucp: tag receive 4 bytes: ")
		sent := p.tagSend(1, []byte("data"))
		require.NoError(t, p.finish(second, nil))
		require.NoError(t, p.finish(sent, nil))
		require.Equal(t, "data", string(bufs[1][:]), "the message is not lost")
		require.Zero(t, bufs[0])
	})
}

// TestTagRecvWait_GivenUp: a canceled blocking receive is removed completely.
func TestTagRecvWait_GivenUp(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.connect()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		buf := make([]byte, 4)
		_, err := p.b.w.TagRecvWait(ctx, buf, 1, exact, nil)
		require.ErrorIs(t, err, context.Canceled)
		sent := p.tagSend(1, []byte("data"))
		p.unexpected(1)
		info, err := p.b.w.TagRecvWait(ctx, buf[:2], 1, exact, nil)
		require.ErrorIs(t, err, ucs.ErrTruncated)
		require.Equal(t, 4, info.Length)
		require.NoError(t, p.finish(sent, nil))
	})
}

// TestTagRecvWait_GivenUpHalfway: if a message was arriving when its receive was canceled, the rest is not written to
// the buffer.
func TestTagRecvWait_GivenUpHalfway(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.grown()
		const size = 30_000
		sent := p.tagSend(1, pattern(size, 1))
		p.until(func() bool { return p.b.w.tag.table.Unexpected() == 1 })
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		buf := make([]byte, size)
		_, err := p.b.w.TagRecvWait(ctx, buf, 1, exact, nil)
		clear(buf)
		if err != nil { // not all of it has arrived
			require.ErrorIs(t, err, context.Canceled)
		}
		require.NoError(t, p.finish(sent, nil))
		require.NoError(t, p.finish(p.a.ep.TagSend(2, nil, nil)))
		p.unexpected(1)
		requireZero(t, buf, "written after the return")
		require.NoError(t, p.finish(p.b.w.TagRecv(nil, 2, exact, nil, nil)))
	})
}

// TestTag_WorkerCloses: receives fail when their worker closes.
func TestTag_WorkerCloses(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.connect()
		var reqs []*Request
		for i := range 3 {
			r, err := p.b.w.TagRecv(make([]byte, 8), uint64(i), exact, nil, nil)
			require.NoError(t, err)
			reqs = append(reqs, r)
		}
		require.NoError(t, p.b.w.Close())
		for _, r := range reqs {
			require.Equal(t, ucs.StatusCanceled, r.Status())
			r.Release()
		}
		_, err := p.b.w.TagRecv(nil, 1, exact, nil, nil)
		require.ErrorIs(t, err, ucs.ErrClosed)
	})
}

// TestTag_SenderCloses: complete messages remain, partial ones fail with the reason, and posted receives remain posted.
func TestTag_SenderCloses(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		if p.oneself() {
			t.Skip("the sender's worker is the receiver's")
		}
		p.grown()
		const size = 200_000
		whole := p.tagSend(1, []byte("whole"))
		p.unexpected(1)
		require.NoError(t, p.finish(whole, nil))
		into, err := p.b.w.TagRecv(make([]byte, size), 2, exact, nil, nil)
		require.NoError(t, err)
		other, err := p.b.w.TagRecv(make([]byte, 8), 4, exact, nil, nil)
		require.NoError(t, err)
		parts := []*Request{p.tagSend(2, pattern(size, 2))}
		sender := p.b.from(p)
		p.until(func() bool { return sender.msgs.inbound != nil || into.Done() })
		closing, err := p.a.ep.Close(CloseForce)
		require.NoError(t, err)
		require.NoError(t, p.finish(closing, nil))
		for _, r := range parts {
			_ = p.finish(r, nil) // canceled, or posted completely
		}
		p.until(into.Done)
		if err := p.finish(into, nil); err != nil {
			assert.ErrorIs(t, err, ucs.ErrPeerClosed)
			assert.ErrorContains(t, err, "tag receive 200000 bytes")
		}
		buf := make([]byte, 5)
		require.NoError(t, p.finish(p.b.w.TagRecv(buf, 1, exact, nil, nil)))
		require.Equal(t, "whole", string(buf))
		require.False(t, other.Done())
		require.True(t, other.Cancel())
		other.Release()
	})
}
