package ucp_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/roles"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
)

func init() { roles.Register("sleeper", sleeperRole) }

// wakeEnv is the number of seconds that a worker is idle before it is woken; 0 without it.
const wakeEnv = "GUCX_UCP_WAKE"

// wakeCall is the active message that wakes a sleeper. Its data is the time at which it was sent.
const wakeCall = 1

// BenchmarkWake measures the time from the send call to the handler in a process that sleeps in Serve. "eventfd"
// measures the same for a goroutine that reads an eventfd: the part of the kernel and the scheduler.
func BenchmarkWake(b *testing.B) {
	idle, err := strconv.ParseFloat("0"+os.Getenv(wakeEnv), 64)
	require.NoError(b, err)
	pause := time.Duration(idle * float64(time.Second))
	b.Run("eventfd", func(b *testing.B) { wakeReader(b, pause) })
	for _, tls := range []string{"sm", "tcp", `\rc`, "rc_mlx5", "sm,tcp"} {
		b.Run(tls, func(b *testing.B) { wakeWorker(b, tls, pause) })
	}
}

// monotonic returns a clock that processes share, in nanoseconds.
func monotonic() uint64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // there always is
	return uint64(t.Nano())
}

// wakes wakes a sleeper b.N times and reports its times.
func wakes(b *testing.B, c *roles.Child, pause time.Duration, wake func(now uint64)) {
	var took []float64
	for b.Loop() {
		time.Sleep(pause)
		wake(monotonic())
		ns, err := strconv.Atoi(c.Line(b))
		require.NoError(b, err)
		took = append(took, float64(ns)/1000)
	}
	slices.Sort(took)
	b.ReportMetric(took[0], "least-us")
	b.ReportMetric(took[len(took)/2], "median-us")
}

// wakeReader wakes a goroutine of another process that reads an eventfd.
func wakeReader(b *testing.B, pause time.Duration) {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK) // the child inherits it
	require.NoError(b, err)
	defer func() { require.NoError(b, unix.Close(fd)) }()
	c := roles.Start(b, "sleeper", "eventfd", fd)
	require.Equal(b, "here", c.Line(b))
	wakes(b, c, pause, func(now uint64) {
		_, err := unix.Write(fd, binary.NativeEndian.AppendUint64(nil, now))
		require.NoError(b, err)
	})
}

// wakeWorker wakes a worker of another process.
func wakeWorker(b *testing.B, tls string, pause time.Duration) {
	ctx, err := ucppair.OpenContext(tls)
	require.NoError(b, err)
	defer func() { require.NoError(b, ctx.Close()) }()
	w, err := ctx.NewWorker(ucp.WorkerConfig{})
	require.NoError(b, err)
	defer func() { require.NoError(b, w.Close()) }()
	var peer *ucp.EP
	w.OnActive(tlsets.SleeperID, func(m *ucp.ActiveMessage) { peer = m.From })
	c := roles.Start(b, "sleeper", tls, fmt.Sprintf("%x", w.Address()))
	testenv.ProgressWithin(b, testenv.Watchdog, func() bool { w.Progress(); return peer != nil })
	wakes(b, c, pause, func(now uint64) {
		r, err := peer.SendActive(wakeCall, nil, binary.NativeEndian.AppendUint64(nil, now), nil)
		require.NoError(b, err)
		if r != nil {
			require.NoError(b, r.Wait(context.Background()))
		}
		require.NoError(b, peer.FlushWait(context.Background()))
		w.Progress() // sends what the transport has queued
	})
}

// sleeperRole prints the times of its wake-ups. Its arguments are transports and the address of the parent, or
// "eventfd" and a descriptor.
func sleeperRole(c *roles.Side) error {
	if c.Args[0] == "eventfd" {
		return readEvents(c)
	}
	w, ep, err := ucppair.ReachParent(c)
	if err != nil {
		return err
	}
	w.OnActive(wakeCall, func(m *ucp.ActiveMessage) {
		c.Printf("%d", monotonic()-binary.NativeEndian.Uint64(m.Data))
	})
	r, err := ep.SendActive(tlsets.SleeperID, nil, nil, nil)
	if err != nil {
		return err
	}
	if r != nil {
		r.Release()
	}
	return c.UntilParentEnds(w.Serve)
}

// readEvents reads times from an eventfd until the parent has ended.
func readEvents(c *roles.Side) error {
	fd, err := strconv.Atoi(c.Args[1])
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), "eventfd")
	c.Printf("here")
	go func() {
		c.NextLine()
		os.Exit(0) // the parent has ended
	}()
	var word [8]byte
	for {
		if _, err := file.Read(word[:]); err != nil {
			return err
		}
		c.Printf("%d", monotonic()-binary.NativeEndian.Uint64(word[:]))
	}
}
