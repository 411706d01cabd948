package connectx_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/mlx5/fakekernel"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/uverbs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// TestStorm has several goroutines that make objects of one context, move data, wait for events, and destroy the objects,
// while calls of the kernel fail at random. Data are right, errors are the kernel's, and nothing is left behind.
func TestStorm(t *testing.T) {
	const goroutines = 4
	var failing atomic.Bool
	k := newKernel(fakekernel.Config{Before: func(fakekernel.Call) error {
		if failing.Load() && rand.IntN(40) == 0 {
			return []unix.Errno{unix.ENOMEM, unix.EBUSY, unix.EIO, unix.EINVAL, unix.EAGAIN}[rand.IntN(5)]
		}
		return nil
	}})
	ctx, err := deviceOf(t, k).Open()
	require.NoError(t, err)
	gid, err := ctx.QueryGID(1, 0)
	require.NoError(t, err)
	failing.Store(true)
	var wg sync.WaitGroup
	var done, failed atomic.Int64
	for g := range goroutines {
		wg.Go(func() {
			for i := range testenv.Rounds(100, 2000) {
				b := &builder{}
				b.transfer(ctx, gid, byte(g*50+i))
				if b.err == nil {
					done.Add(1)
				} else {
					failed.Add(1)
					var call *uverbs.Error
					assert.ErrorAs(t, b.err, &call)
				}
				b.closeUntilDone(t)
			}
		})
	}
	wg.Wait()
	failing.Store(false)
	require.NoError(t, ctx.Close())
	assert.Empty(t, k.Live())
	assert.NotZero(t, done.Load())
	assert.NotZero(t, failed.Load())
	t.Logf("%d transfers, %d that met a failing call", done.Load(), failed.Load())
}

// closeUntilDone closes what was made, the last first; what fails again and again.
func (b *builder) closeUntilDone(t *testing.T) {
	for i := len(b.closers) - 1; i >= 0; i-- {
		err := b.closers[i]()
		for range 50 {
			if err == nil {
				break
			}
			var call *uverbs.Error
			assert.ErrorAs(t, err, &call)
			err = b.closers[i]()
		}
		assert.NoError(t, err)
	}
}

// transferLen is the length of a transfer in bytes.
const transferLen = 3000

// transfer writes a pattern from one QP to another, waits for the event of the completion, and compares.
func (b *builder) transfer(ctx *verbs.Context, gid verbs.GID, seed byte) {
	pd := add(b, func() (*verbs.PD, error) { return ctx.AllocPD() })
	mem := make([]byte, 2*transferLen)
	for i := range transferLen {
		mem[i] = seed + byte(i)*3
	}
	mr := add(b, func() (*verbs.MR, error) { return pd.RegMR(mem, allRights) })
	ch := add(b, func() (*verbs.CompChannel, error) { return ctx.CreateCompChannel() })
	cq := add(b, func() (*verbs.CQ, error) { return ctx.CreateCQ(verbs.CQInitAttr{Depth: 10, Channel: ch}) })
	newQP := func() (*verbs.QP, error) {
		return pd.CreateQP(verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq, Cap: verbs.QPCap{MaxSendWR: 4, MaxSendSGE: 1}})
	}
	from, to := add(b, newQP), add(b, newQP)
	path := verbs.AHAttr{DGID: gid, Global: true, Port: 1, HopLimit: 64}
	b.do(func() error { return connect(to, path, from.Number()) })
	b.do(func() error { return connect(from, path, to.Number()) })
	b.do(func() error { return cq.Arm(false) })
	addr := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem))))
	b.do(func() error {
		_, err := from.PostSend([]verbs.SendWR{{ID: 5, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled,
			SGList: []verbs.SGE{{Addr: addr, Length: transferLen, LKey: mr.LKey()}}, RemoteAddr: addr + transferLen, RKey: mr.RKey()}})
		return err
	})
	b.do(func() error { return awaitEvent(ch, cq) })
	b.do(func() error {
		var wc [2]verbs.WC
		if n := cq.Poll(wc[:]); n != 1 || wc[0].ID != 5 || wc[0].Status != verbs.WCSuccess {
			return fmt.Errorf("%d completions: %+v", n, wc)
		}
		if !bytes.Equal(mem[:transferLen], mem[transferLen:]) {
			return errors.New("the data are wrong")
		}
		return nil
	})
}

// awaitEvent sleeps until a channel has an event, which is of cq.
func awaitEvent(ch *verbs.CompChannel, cq *verbs.CQ) error {
	fds := []unix.PollFd{{Fd: int32(ch.FD()), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, int(testenv.Watchdog.Milliseconds()))
		if err == unix.EINTR {
			continue
		}
		if n != 1 || err != nil {
			return fmt.Errorf("no event: %w", err)
		}
		break
	}
	if !ch.Pending() {
		return errors.New("an event that is not pending")
	}
	if got := ch.TryGet(); got != cq {
		return errors.New("an event of another CQ")
	}
	if ch.Pending() || ch.TryGet() != nil {
		return errors.New("an event twice")
	}
	return nil
}

// A CQ armed for solicited completions raises an event for a solicited completion only.
func TestChannel_Solicited(t *testing.T) {
	ctx, err := deviceOf(t, newKernel(fakekernel.Config{})).Open()
	require.NoError(t, err)
	defer func() { require.NoError(t, ctx.Close()) }()
	gid, err := ctx.QueryGID(1, 0)
	require.NoError(t, err)
	b := &builder{}
	pd := add(b, func() (*verbs.PD, error) { return ctx.AllocPD() })
	ch := add(b, func() (*verbs.CompChannel, error) { return ctx.CreateCompChannel() })
	cq := add(b, func() (*verbs.CQ, error) { return ctx.CreateCQ(verbs.CQInitAttr{Depth: 10, Channel: ch}) })
	newQP := func() (*verbs.QP, error) {
		return pd.CreateQP(verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq, Cap: verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4}})
	}
	from, to := add(b, newQP), add(b, newQP)
	path := verbs.AHAttr{DGID: gid, Global: true, Port: 1, HopLimit: 64}
	b.do(func() error { return connect(to, path, from.Number()) })
	b.do(func() error { return connect(from, path, to.Number()) })
	require.NoError(t, b.err)
	require.NoError(t, cq.Arm(true))
	var wc [4]verbs.WC
	for _, flags := range []verbs.SendFlags{0, verbs.SendSolicited} {
		_, err = to.PostRecv([]verbs.RecvWR{{ID: 1}})
		require.NoError(t, err)
		assert.False(t, ch.Pending())
		_, err = from.PostSend([]verbs.SendWR{{Opcode: verbs.OpSend, Flags: flags}})
		require.NoError(t, err)
		testenv.ProgressWithin(t, testenv.Watchdog, func() bool { return cq.Poll(wc[:]) == 1 })
	}
	require.NoError(t, awaitEvent(ch, cq))
	assert.Empty(t, b.closeAll(t))
}

// When the device is removed, an event says so, and each call fails.
func TestTrouble_Removed(t *testing.T) {
	var removed atomic.Bool
	k := newKernel(fakekernel.Config{Before: func(c fakekernel.Call) error {
		if removed.Load() && c.Op != "close" && c.Op != "unmap" {
			return unix.EIO
		}
		return nil
	}})
	ctx, err := deviceOf(t, k).Open()
	require.NoError(t, err)
	k.Remove()
	removed.Store(true)
	ev, err := ctx.NextAsyncEvent()
	require.NoError(t, err)
	assert.Equal(t, verbs.EventDeviceFatal, ev.Type)
	_, err = ctx.AllocPD()
	assert.ErrorIs(t, err, unix.EIO)
	assert.ErrorContains(t, err, "the device was removed")
	removed.Store(false)
	assert.NoError(t, ctx.Close())
	assert.Empty(t, k.Live())
}
