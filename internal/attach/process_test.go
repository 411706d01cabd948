package attach

import (
	"context"
	"encoding/hex"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
)

func TestProcess_BothWays(t *testing.T) {
	a, c := newStation(t, nil), startStation(t)

	c.Tell(t, "dial %x", a.gid) // both dials under way at once
	out := a.dial(t, c.gid)
	in := within(t, a.in, "inbound link")
	require.Equal(t, "up", c.Line(t))
	c.Tell(t, "accept")
	require.Equal(t, hex.EncodeToString(a.gid[:]), c.Line(t))

	assert.Equal(t, c.Process.Pid, out.PeerPID)
	assert.Equal(t, c.Process.Pid, in.PeerPID)
	assert.EqualValues(t, 42, in.Seg.Bytes()[0])
	assert.EqualValues(t, 1, drain(t, a.wake))
	maps, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	assert.NotContains(t, string(maps), "/dev/shm/", "memory that is shared has no name")

	require.NoError(t, out.Close())
	c.Tell(t, "down")
	assert.Equal(t, "down", c.Line(t))
	c.End(t)
	within(t, in.Done(), "hang-up at exit")
}

func TestProcess_KillIsDetected(t *testing.T) {
	a, c := newStation(t, nil), startStation(t)
	out := a.dial(t, c.gid)
	c.Tell(t, "dial %x", a.gid)
	require.Equal(t, "up", c.Line(t))
	in := within(t, a.in, "inbound link")
	hook := make(chan struct{})
	in.AfterDown(func() { close(hook) })

	killed := time.Now()
	require.NoError(t, c.Process.Kill())
	within(t, out.Done(), "death of the acceptor")
	within(t, hook, "death of the dialer")
	assert.False(t, in.PeerStays() || out.PeerStays())
	t.Logf("noticed after %v", time.Since(killed))
	assert.Eventually(t, func() bool { return errors.Is(Wake(out.WakeFD), unix.EPIPE) }, watchdog, time.Millisecond,
		"the pipe of a dead peer has no reader")
	out.Arena.Bytes()[testArenaLen-1] = 1
}

// TestProcess_DialTheDead: the kernel knows, so nobody waits for a deadline.
func TestProcess_DialTheDead(t *testing.T) {
	a, c := newStation(t, func(c *Config) { c.HandshakeTimeout = time.Hour }), startStation(t)
	c.Kill(t)
	_, err := a.Dial(context.Background(), c.gid)
	assert.ErrorIs(t, err, ucs.ErrUnreachable)
}

func TestProcess_StoppedAcceptorTimesOut(t *testing.T) {
	a := newStation(t, func(c *Config) { c.HandshakeTimeout = 50 * time.Millisecond })
	c := startStation(t)
	c.Stop(t)
	_, err := a.Dial(context.Background(), c.gid)
	assert.ErrorIs(t, err, ucs.ErrTimedOut)
	c.Continue(t)
	newStation(t, nil).dial(t, c.gid)
}

func TestProcess_SquatterOfAnotherUser(t *testing.T) {
	other := testenv.NeedOtherUser(t)
	a := newStation(t, nil)
	gid := anyGID()
	c := start(t, roleSquatter, socketAddr("", testService, uint32(os.Geteuid()), gid).Name, other)
	require.Equal(t, "ready", c.Line(t))
	_, err := a.Dial(context.Background(), gid)
	assert.ErrorIs(t, err, ErrForeignUser)
}

func TestProcess_PeerOfAnotherUser(t *testing.T) {
	other := testenv.NeedOtherUser(t)
	a := newStation(t, nil)
	c := start(t, roleOtherUser, socketAddr("", testService, uint32(os.Geteuid()), a.gid).Name, other)
	assert.Equal(t, "true", c.Line(t), "hung up on")
	assert.Equal(t, Stats{Foreign: 1}, a.Stats())
}
