package ucp_test

import (
	"context"
	"encoding/hex"
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

func init() { roles.Register("streamer", streamerRole) }

// streamByte returns the byte of a streamer at an offset.
func streamByte(off int) byte { return byte(off*7 + off>>8) }

// streamerRole is a peer that sends without end, in pieces of all lengths. Its arguments are transports and the address
// of the worker that reads, which has an EP to it before.
func streamerRole(c *roles.Side) error {
	w, ep, err := ucppair.ReachParent(c)
	if err != nil {
		return err
	}
	c.Printf("%x", w.Address())
	if !c.NextLine() {
		return nil
	}
	lengths, off := rand.New(rand.NewPCG(1, 1)), 0
	return c.UntilParentEnds(func(ctx context.Context) error {
		b := make([]byte, 1+lengths.IntN(1<<lengths.IntN(17)))
		for i := range b {
			b[i] = streamByte(off + i)
		}
		off += len(b)
		_, err := ep.StreamSendWait(ctx, b)
		return err
	})
}

// TestStream_SenderKilled: the bytes that were received from a killed peer are those that it has sent, up to some
// offset. Then each receive fails with the reason.
func TestStream_SenderKilled(t *testing.T) {
	for _, tls := range []string{"sm", `\rc`, "tcp"} {
		t.Run(tls, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(3, 3))
			for range testenv.Rounds(1, 100) {
				killStreamer(t, tls, 1+rng.IntN(1<<20), rng)
			}
		})
	}
}

// killStreamer reads from a child, kills it after about n bytes, and reads on.
func killStreamer(t *testing.T, tls string, n int, rng *rand.Rand) {
	ctx, err := ucppair.OpenContext(tls)
	require.NoError(t, err)
	defer func() { require.NoError(t, ctx.Close()) }()
	w, err := ctx.NewWorker(ucp.WorkerConfig{})
	require.NoError(t, err)
	defer func() { require.Zero(t, ucp.RequestsInUse(w), "requests that never came back") }()
	defer func() { require.NoError(t, w.Close()) }()

	c := roles.Start(t, "streamer", tls, fmt.Sprintf("%x", w.Address()))
	addr, err := hex.DecodeString(c.Line(t))
	require.NoError(t, err)
	ep, err := w.NewEP(addr, ucp.EPConfig{})
	require.NoError(t, err)
	c.Send(t, "go")

	within, cancel := context.WithTimeout(t.Context(), testenv.Watchdog)
	defer cancel()
	buf, off, killed := make([]byte, 40000), 0, false
	for err == nil {
		if off >= n && !killed {
			c.Kill(t)
			killed = true
		}
		var k int
		k, err = ep.StreamRecvWait(within, buf[:1+rng.IntN(len(buf))])
		for i := range k {
			if want := streamByte(off + i); buf[i] != want { // without a call for each byte, which is slow
				require.Failf(t, "wrong byte", "%#x at %d, want %#x", buf[i], off+i, want)
			}
		}
		off += k
	}
	require.True(t, killed, err)
	require.ErrorIs(t, err, ucs.ErrConnReset)
	require.ErrorIs(t, ep.Err(), ucs.ErrConnReset)
	require.Nil(t, ep.StreamData())
	require.NoError(t, ep.CloseWait(within, ucp.CloseFlush))
}
