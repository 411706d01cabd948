package ucp_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/roles"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
)

func init() { roles.Register("tagger", taggerRole) }

// taggerRole is a peer that sends messages of all lengths without end. Its arguments are transports and the address of
// the worker that receives.
func taggerRole(c *roles.Side) error {
	_, ep, err := ucppair.ReachParent(c)
	if err != nil {
		return err
	}
	lengths, i := rand.New(rand.NewPCG(1, 1)), -1
	return c.UntilParentEnds(func(ctx context.Context) error {
		i++
		return ep.TagSendWait(ctx, 1, testenv.Pattern(lengths.IntN(1<<lengths.IntN(17)), i), nil)
	})
}

// TestTag_SenderKilled: the messages received from a killed peer are those that it has sent, in order. A receive that
// had matched a message fails with the reason, others remain posted.
func TestTag_SenderKilled(t *testing.T) {
	for _, tls := range []string{"sm", `\rc`, "tcp"} {
		t.Run(tls, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(4, 4))
			for range testenv.Rounds(1, 100) {
				killTagger(t, tls, 1+rng.IntN(200))
			}
		})
	}
}

// killTagger receives messages of a child and kills it after about n messages.
func killTagger(t *testing.T, tls string, n int) {
	const longest, posted = 1 << 16, 8
	ctx, err := ucppair.OpenContext(tls)
	require.NoError(t, err)
	defer func() { require.NoError(t, ctx.Close()) }()
	w, err := ctx.NewWorker(ucp.WorkerConfig{})
	require.NoError(t, err)
	defer func() { require.Zero(t, ucp.RequestsInUse(w), "requests that never came back") }()
	defer func() { require.NoError(t, w.Close()) }()

	type receive struct {
		buf  []byte
		info ucp.TagInfo
		req  *ucp.Request
	}
	var queue []*receive
	post := func() {
		r := &receive{buf: make([]byte, longest)}
		r.req, err = w.TagRecv(r.buf, 1, exact, &r.info, nil)
		require.NoError(t, err)
		queue = append(queue, r)
	}
	lengths, seen := rand.New(rand.NewPCG(1, 1)), 0
	check := func(r *receive, err error) {
		size := lengths.IntN(1 << lengths.IntN(17))
		if err == nil {
			require.Equal(t, size, r.info.Length, "message %d", seen)
			testenv.RequireBytes(t, testenv.Pattern(size, seen), r.buf[:size])
			testenv.RequireZero(t, r.buf[size:], "beyond the message")
		} else {
			require.ErrorIs(t, err, ucs.ErrConnReset)
		}
		seen++
	}
	for range posted {
		post()
	}
	never, err := w.TagRecv(nil, 2, exact, nil, nil)
	require.NoError(t, err)

	c := roles.Start(t, "tagger", tls, fmt.Sprintf("%x", w.Address()))
	within, cancel := context.WithTimeout(t.Context(), testenv.Watchdog)
	defer cancel()
	for seen < n {
		r := queue[0]
		queue = queue[1:]
		if r.req != nil {
			require.NoError(t, r.req.Wait(within))
		}
		check(r, nil)
		post()
	}
	c.Kill(t)
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
		w.Progress()
		return w.EPs().Len() == 0
	})
	for _, r := range queue {
		switch {
		case r.req == nil:
			check(r, nil)
		case r.req.Done():
			check(r, r.req.Take())
		default:
			require.True(t, r.req.Cancel(), "the receive is not matched")
			r.req.Release()
			testenv.RequireZero(t, r.buf, "written without a message")
		}
	}
	require.False(t, never.Done())
	require.True(t, never.Cancel())
	never.Release()
}
