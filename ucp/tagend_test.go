package ucp_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
)

// TestTag_Sync: a synchronous send completes when its message was matched, or dropped. A flush does not wait for that.
func TestTag_Sync(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		p.Connect()
		for _, size := range []int{0, 8, 500, 2016, 2017, 8160, 20_000, 100_000} {
			data, buf := testenv.Pattern(size, size), make([]byte, size)
			recv, err := p.B.W.TagRecv(buf, 7, exact, nil, nil)
			require.NoError(t, err)
			require.NoError(t, p.Finish(p.A.EP.TagSendSync(7, data, nil)))
			require.False(t, p.B.W.Tags().Expects(), "it has completed before its message was matched")
			require.NoError(t, p.Finish(recv, nil))
			testenv.RequireBytes(t, data, buf)

			sent, err := p.A.EP.TagSendSync(8, data, nil)
			require.NoError(t, err)
			waitUnexpected(p, 1)
			require.NoError(t, p.Flush())
			require.False(t, sent.Done())
			require.False(t, sent.Cancel())
			clear(buf)
			require.NoError(t, p.Finish(p.B.W.TagRecv(buf, 8, exact, nil, nil)))
			require.NoError(t, p.Finish(sent, nil))
			testenv.RequireBytes(t, data, buf)
		}
		sent, err := p.A.EP.TagSendSync(9, nil, nil)
		require.NoError(t, err)
		waitUnexpected(p, 1)
		m, _, ok := p.B.W.TagProbe(9, exact, true)
		require.True(t, ok)
		m.Release()
		err = p.Finish(sent, nil)
		require.ErrorIs(t, err, ucs.ErrCanceled)
	})
}

func TestTagProbe(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		p.Connect()
		w := p.B.W
		_, _, ok := w.TagProbe(0, 0, true)
		require.False(t, ok)
		var sent []*ucp.Request
		for i, size := range []int{10, 300} {
			sent = append(sent, tagSend(p, uint64(i), testenv.Pattern(size, i)))
		}
		waitUnexpected(p, 2)
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
		require.NoError(t, p.Finish(w.TagRecv(buf, 0, 0, nil, nil)), "the other one")
		testenv.RequireBytes(t, testenv.Pattern(300, 1), buf)
		_, err := m.Recv(buf[:9], &info, nil)
		require.ErrorIs(t, err, ucs.ErrTruncated)
		testenv.RequireBytes(t, testenv.Pattern(10, 0)[:9], buf[:9])
		require.Zero(t, w.Tags().Unexpected())
		for _, r := range sent {
			require.NoError(t, p.Finish(r, nil))
		}
	})
}

// TestTagProbe_Partial: a message of which a part has arrived can be removed by a probe, received and dropped.
func TestTagProbe_Partial(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		growWindow(p)
		const size = 30_000
		for _, drop := range []bool{false, true} {
			sent := tagSend(p, 4, testenv.Pattern(size, 2))
			var m *ucp.TagMessage
			p.Until(func() (ok bool) {
				m, _, ok = p.B.W.TagProbe(4, exact, true)
				return ok
			})
			require.Equal(t, size, m.Info().Length)
			if drop {
				m.Release()
			} else {
				buf := make([]byte, size)
				require.NoError(t, p.Finish(m.Recv(buf, nil, nil)))
				testenv.RequireBytes(t, testenv.Pattern(size, 2), buf)
			}
			require.NoError(t, p.Finish(sent, nil))
			p.Until(func() bool { return epOfSender(&p.B, p).Messages().Held == 0 })
		}
	})
}

// epOfSender returns the EP of x over which messages of the other end of p arrive.
func epOfSender(x *ucppair.End, p *ucppair.Pair) *ucp.EP {
	for e := range x.W.EPs().All() {
		if e.Messages() != nil && (e != p.A.EP || p.Oneself() && e.Messages().Held > 0) {
			return e
		}
	}
	return p.A.EP
}

func TestTagRecv_Cancel(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		p.Connect()
		var bufs [2][4]byte
		first, err := p.B.W.TagRecv(bufs[0][:], 1, exact, nil, nil)
		require.NoError(t, err)
		second, err := p.B.W.TagRecv(bufs[1][:], 1, exact, nil, nil)
		require.NoError(t, err)
		require.True(t, first.Cancel())
		require.Equal(t, ucs.StatusCanceled, first.Status())
		require.False(t, first.Cancel())
		err = p.Finish(first, nil)
		require.ErrorIs(t, err, ucs.ErrCanceled)
		require.ErrorContains(t, err, "ucp: tag receive 4 bytes: ")
		sent := tagSend(p, 1, []byte("data"))
		require.NoError(t, p.Finish(second, nil))
		require.NoError(t, p.Finish(sent, nil))
		require.Equal(t, "data", string(bufs[1][:]), "the message is not lost")
		require.Zero(t, bufs[0])
	})
}

// TestTagRecvWait_GivenUp: a canceled blocking receive is removed completely.
func TestTagRecvWait_GivenUp(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		p.Connect()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		buf := make([]byte, 4)
		_, err := p.B.W.TagRecvWait(ctx, buf, 1, exact, nil)
		require.ErrorIs(t, err, context.Canceled)
		sent := tagSend(p, 1, []byte("data"))
		waitUnexpected(p, 1)
		info, err := p.B.W.TagRecvWait(ctx, buf[:2], 1, exact, nil)
		require.ErrorIs(t, err, ucs.ErrTruncated)
		require.Equal(t, 4, info.Length)
		require.NoError(t, p.Finish(sent, nil))
	})
}

// TestTagRecvWait_GivenUpHalfway: if a message was arriving when its receive was canceled, the rest is not written to
// the buffer.
func TestTagRecvWait_GivenUpHalfway(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		growWindow(p)
		const size = 30_000
		sent := tagSend(p, 1, testenv.Pattern(size, 1))
		p.Until(func() bool { return p.B.W.Tags().Unexpected() == 1 })
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		buf := make([]byte, size)
		_, err := p.B.W.TagRecvWait(ctx, buf, 1, exact, nil)
		clear(buf)
		if err != nil { // not all of it has arrived
			require.ErrorIs(t, err, context.Canceled)
		}
		require.NoError(t, p.Finish(sent, nil))
		require.NoError(t, p.Finish(p.A.EP.TagSend(2, nil, nil)))
		waitUnexpected(p, 1)
		testenv.RequireZero(t, buf, "written after the return")
		require.NoError(t, p.Finish(p.B.W.TagRecv(nil, 2, exact, nil, nil)))
	})
}

// TestTag_WorkerCloses: receives fail when their worker closes.
func TestTag_WorkerCloses(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		p.Connect()
		var reqs []*ucp.Request
		for i := range 3 {
			r, err := p.B.W.TagRecv(make([]byte, 8), uint64(i), exact, nil, nil)
			require.NoError(t, err)
			reqs = append(reqs, r)
		}
		require.NoError(t, p.B.W.Close())
		for _, r := range reqs {
			require.Equal(t, ucs.StatusCanceled, r.Status())
			r.Release()
		}
		_, err := p.B.W.TagRecv(nil, 1, exact, nil, nil)
		require.ErrorIs(t, err, ucs.ErrClosed)
	})
}

// TestTag_SenderCloses: complete messages remain, partial ones fail with the reason, and posted receives remain posted.
func TestTag_SenderCloses(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		if p.Oneself() {
			t.Skip("the sender's worker is the receiver's")
		}
		growWindow(p)
		const size = 200_000
		whole := tagSend(p, 1, []byte("whole"))
		waitUnexpected(p, 1)
		require.NoError(t, p.Finish(whole, nil))
		into, err := p.B.W.TagRecv(make([]byte, size), 2, exact, nil, nil)
		require.NoError(t, err)
		other, err := p.B.W.TagRecv(make([]byte, 8), 4, exact, nil, nil)
		require.NoError(t, err)
		parts := []*ucp.Request{tagSend(p, 2, testenv.Pattern(size, 2))}
		sender := epOfSender(&p.B, p)
		p.Until(func() bool { return sender.Messages().Inbound() != nil || into.Done() })
		closing, err := p.A.EP.Close(ucp.CloseForce)
		require.NoError(t, err)
		require.NoError(t, p.Finish(closing, nil))
		for _, r := range parts {
			_ = p.Finish(r, nil) // canceled, or posted completely
		}
		p.Until(into.Done)
		if err := p.Finish(into, nil); err != nil {
			assert.ErrorIs(t, err, ucs.ErrPeerClosed)
			assert.ErrorContains(t, err, "tag receive 200000 bytes")
		}
		buf := make([]byte, 5)
		require.NoError(t, p.Finish(p.B.W.TagRecv(buf, 1, exact, nil, nil)))
		require.Equal(t, "whole", string(buf))
		require.False(t, other.Done())
		require.True(t, other.Cancel())
		other.Release()
	})
}
