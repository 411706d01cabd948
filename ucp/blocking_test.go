package ucp_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// blockingForm is a blocking call of an operation.
type blockingForm struct {
	name string
	do   func(ctx context.Context) error
}

// blockingForms are blocking calls of a. b has receives for the messages. The last call closes the EP.
func blockingForms(p *ucppair.Pair) []blockingForm {
	ep, key, addr, buf := p.A.EP, p.A.Key, p.B.Mem.Addr(), make([]byte, 64)
	word := func(_ uint64, err error) error { return err }
	length := func(_ int, err error) error { return err }
	return []blockingForm{
		{"put", func(ctx context.Context) error { return ep.PutWait(ctx, buf, addr, key, nil) }},
		{"get", func(ctx context.Context) error { return ep.GetWait(ctx, buf, addr, key, nil) }},
		{"atomic fetch", func(ctx context.Context) error {
			return word(ep.AtomicFetchWait(ctx, uct.AtomicAdd, 8, 1, addr, key))
		}},
		{"compare and swap", func(ctx context.Context) error { return word(ep.AtomicCSwapWait(ctx, 8, 1, 2, addr, key)) }},
		{"put and notify", func(ctx context.Context) error { return ep.PutNotifyWait(ctx, buf, addr, key, 1, nil) }},
		{"stream send", func(ctx context.Context) error { return length(ep.StreamSendWait(ctx, buf[:1])) }},
		{"tag send", func(ctx context.Context) error { return ep.TagSendWait(ctx, 1, buf[:1], nil) }},
		{"synchronous tag send", func(ctx context.Context) error { return ep.TagSendSyncWait(ctx, 2, buf[:1], nil) }},
		{"flush of the worker", p.A.W.FlushWait},
		{"close", func(ctx context.Context) error { return ep.CloseWait(ctx, ucp.CloseFlush) }},
	}
}

// TestBlocking_LocksBeforePost: a blocking call locks the worker before it posts. Another goroutine that closes the
// worker during the call waits until the call returns.
func TestBlocking_LocksBeforePost(t *testing.T) {
	p, f := ucppair.Fake(t, ucp.Config{}, faketp.LikeSM())
	p.Connect().Warm()
	var recvs []*ucp.Request
	for range 3 {
		r, err := p.B.W.TagRecv(make([]byte, 64), 0, 0, nil, nil)
		require.NoError(t, err)
		recvs = append(recvs, r)
	}
	require.NoError(t, p.Finish(p.A.EP.TagSend(1, nil, nil)))
	idle(p)
	t.Cleanup(func() {
		for _, r := range recvs {
			r.Release()
		}
	})
	serveB(p)
	posts := 0
	f.IfaceOf(0, 0).Posting = func() {
		posts++
		assert.True(t, p.A.W.Engine().Turn.Taken())
	}
	for _, form := range blockingForms(p) {
		before := posts
		require.NoError(t, form.do(t.Context()), form.name)
		assert.Greater(t, posts, before, form.name)
	}
}

// TestBlocking_ClosedAnytime: while the owner of a worker makes blocking calls only, another goroutine may close the
// worker at any time.
func TestBlocking_ClosedAnytime(t *testing.T) {
	for range testenv.Rounds(50, 1000) {
		p, _ := ucppair.Fake(t, ucp.Config{}, faketp.LikeSM())
		p.Connect().Warm()
		serveB(p)
		forms := blockingForms(p)
		forms[len(forms)-1] = blockingForm{"tag receive", func(ctx context.Context) error {
			_, err := p.A.W.TagRecvWait(ctx, make([]byte, 1), 1, exact, nil)
			return err
		}}
		var calls atomic.Int64
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for k := 0; ; k++ {
				form, ctx := forms[k%len(forms)], t.Context()
				if form.name == "tag receive" || form.name == "synchronous tag send" { // the peer neither receives nor sends
					ctx = overCtx()
				}
				err := form.do(ctx)
				calls.Add(1)
				if errors.Is(err, ucs.ErrClosed) {
					return
				}
				assert.True(t, err == nil || errors.Is(err, context.Canceled), "%s: %v", form.name, err)
			}
		}()
		for n := rand.Int64N(40); calls.Load() < n; {
			runtime.Gosched()
		}
		require.NoError(t, p.A.W.Close())
		<-ended
	}
}
