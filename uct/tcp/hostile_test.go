package tcp

import (
	"encoding/binary"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// TestAccept_PausesWithoutDescriptors: an iface of a process without free descriptors serves its
// connections without busy polling, and accepts again when there are descriptors.
func TestAccept_PausesWithoutDescriptors(t *testing.T) {
	cfg := Config{UserTimeout: time.Second}
	a, b := newEnd(t, cfg), newEnd(t, cfg)
	ep := a.to(b)
	send(t, ep, 1, 64, a, b)
	flush(t, ep, a, b)
	waiting := client(t, b)

	testenv.WithoutDescriptors(t, func() {
		until(t, func() bool { return b.it.acceptPaused }, b)
		looks, events := 0, 0
		for ; looks < 1000; looks++ {
			if b.it.poll.Readable() {
				events++
			}
		}
		assert.Less(t, events, looks, "the accept queue is not reported again and again")
		send(t, ep, 2, 64, a, b)
		flush(t, ep, a, b)
		assert.Len(t, b.got, 2)
		assert.Len(t, b.it.unproven.all, 1, "the connection of a")
	})

	p := newRawPeer(t)
	p.say(t, waiting, b, p.good(b))
	h, err := readAnswer(t, waiting, b)
	require.NoError(t, err)
	assert.Equal(t, codeOK, h.code)
	assert.Zero(t, b.it.acceptPause)
	require.NoError(t, waiting.Close())
	b.to(a)
	until(t, func() bool { return b.it.poll.TickInterval() == 0 }, a, b) // nothing wakes an idle process
}

// TestAccept_LastDescriptor: an iface that has used the last descriptor of the process for a connection does not evict
// that connection, or another one, while no peer waits.
func TestAccept_LastDescriptor(t *testing.T) {
	e, p := newEnd(t, Config{}), newRawPeer(t)
	conn := client(t, e)
	testenv.WithDescriptors(t, 1, func() {
		p.say(t, conn, e, p.good(e))
		h, err := readAnswer(t, conn, e)
		require.NoError(t, err)
		assert.Equal(t, codeOK, h.code)
		_, err = unix.Dup(0)
		require.ErrorIs(t, err, unix.EMFILE)
	})
	assert.Zero(t, e.it.limits.evicted.Load())
	assert.Zero(t, e.it.limits.refused.Load())
	assert.False(t, e.it.acceptPaused)
}

// TestAccept_DoublesPause: the pauses become longer while there are no descriptors.
func TestAccept_DoublesPause(t *testing.T) {
	e := newEnd(t, Config{})
	client(t, e)
	testenv.WithoutDescriptors(t, func() {
		until(t, func() bool { return e.it.acceptPaused }, e)
		assert.Equal(t, deadlineTick, e.it.acceptPause)
		for pause := deadlineTick; pause < maxAcceptPause; {
			e.it.resumeAccept(e.it.acceptAt.Add(-time.Nanosecond))
			require.True(t, e.it.acceptPaused, "resumed before its time")
			e.it.resumeAccept(e.it.acceptAt)
			until(t, func() bool { return e.it.acceptPaused }, e)
			pause = min(2*pause, maxAcceptPause)
			assert.Equal(t, pause, e.it.acceptPause)
			assert.LessOrEqual(t, e.it.nextTick(), pause)
		}
		assert.Equal(t, maxAcceptPause, e.it.nextTick())
	})
}

// TestNewEP_NoMemoryWithoutDescriptors: if the route lookup fails because the process has no
// descriptors, the error is not ErrUnreachable.
func TestNewEP_NoMemoryWithoutDescriptors(t *testing.T) {
	a, b := newEnd(t, Config{}), newEnd(t, Config{})
	to := uct.EPParams{DeviceAddr: b.it.DeviceAddr(nil), IfaceAddr: b.it.IfaceAddr(nil)}
	var err error
	testenv.WithoutDescriptors(t, func() { _, err = a.it.NewEP(to) })
	assert.ErrorIs(t, err, uct.ErrNoMemory)
	assert.ErrorIs(t, err, unix.EMFILE)
	assert.NotErrorIs(t, err, uct.ErrUnreachable)
	flush(t, a.to(b), a, b)
}

// TestConnection_FailsAlone: a peer that resets, half-closes or sends garbage after a valid HELLO
// fails only its own connection, with a reason.
func TestConnection_FailsAlone(t *testing.T) {
	frame := func(kind, id uint8, n uint32) []byte {
		b := binary.LittleEndian.AppendUint32(nil, n)
		return append(b, kind, id, 0, 0)
	}
	for _, tc := range []struct {
		name string
		end  func(*net.TCPConn) error
		want string
	}{
		{"reset", func(c *net.TCPConn) error { _ = c.SetLinger(0); return c.Close() }, "reset"},
		{"half close", (*net.TCPConn).CloseWrite, errNoBye.Error()},
		{"half a frame", func(c *net.TCPConn) error { _, _ = c.Write(frame(frameAM, 1, 100)[:5]); return c.CloseWrite() }, errNoBye.Error()},
		{"unknown frame", func(c *net.TCPConn) error { _, err := c.Write(frame(200, 0, 0)); return err }, errMalformed.Error()},
		{"after the last frame", func(c *net.TCPConn) error {
			_, err := c.Write(append(frame(frameBye, 0, 0), frame(frameBye, 0, 0)...))
			return err
		}, errAfterBye.Error()},
		{"huge message", func(c *net.TCPConn) error { _, err := c.Write(frame(frameAM, 1, 0xffffffff)); return err }, errMalformed.Error()},
		{"huge put", func(c *net.TCPConn) error { _, err := c.Write(frame(framePut, 0, 0xffffffff)); return err }, errMalformed.Error()},
		{"reply without request", func(c *net.TCPConn) error { _, err := c.Write(frame(frameDone, 0, 0)); return err }, errUnexpectedReply.Error()},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, b := newEnd(t, Config{}), newEnd(t, Config{})
			ep := a.to(b)
			send(t, ep, 1, 64, a, b)
			flush(t, ep, a, b)
			conn := client(t, b)
			p := newRawPeer(t)
			p.say(t, conn, b, p.good(b))
			answer, err := readAnswer(t, conn, b)
			require.NoError(t, err)
			require.Equal(t, codeOK, answer.code)
			back := b.name(&p.Public)

			require.NoError(t, tc.end(conn.(*net.TCPConn)))
			until(t, func() bool { return len(b.errs) == 1 }, b)
			assert.ErrorIs(t, b.errs[0], ucs.ErrConnReset)
			assert.ErrorContains(t, b.errs[0], tc.want)
			assert.Same(t, back, b.failed[0])
			send(t, ep, 2, 64, a, b)
			flush(t, ep, a, b)
			assert.Len(t, b.got, 2)
			assert.Len(t, b.errs, 1)
		})
	}
}

// TestSocketOptions_Keepalive: both sides have the keepalive options, also with TLS, for which
// package net changes them.
func TestSocketOptions_Keepalive(t *testing.T) {
	times := Config{KeepIdle: 7 * time.Second, KeepInterval: 3 * time.Second, UserTimeout: 11 * time.Second}
	secure := trusting(testenv.NewAuthority(t))
	secure.KeepIdle, secure.KeepInterval, secure.UserTimeout = times.KeepIdle, times.KeepInterval, times.UserTimeout
	for name, cfg := range map[string]Config{"plain": times, "TLS": secure} {
		t.Run(name, func(t *testing.T) {
			a, b := newEnd(t, cfg), newEnd(t, cfg)
			ep := a.to(b)
			send(t, ep, 1, 64, a, b)
			flush(t, ep, a, b)
			for _, c := range []*conn{ep.conn, b.it.table[a.it.addr.key]} {
				for _, o := range []struct{ level, name, value int }{
					{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
					{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
					{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 7},
					{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 3},
					{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 1},
				} {
					got, err := c.option(o.level, o.name)
					require.NoError(t, err)
					assert.Equal(t, o.value, got, "option %d of level %d", o.name, o.level)
				}
			}
		})
	}
}

// option returns an option of the TCP socket.
func (c *conn) option(level, name int) (value int, err error) {
	err = c.onSocket(func(fd int) (err error) {
		value, err = unix.GetsockoptInt(fd, level, name)
		return err
	})
	return value, err
}
