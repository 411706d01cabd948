package udcore

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/internal/ibtest"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// TestUnreachable_FailsTheConnectionsToThePort: if the device reports a port without a process,
// connections to it fail at once: those that are being made with ErrUnreachable, and open ones with
// ErrConnReset.
func TestUnreachable_FailsTheConnectionsToThePort(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		md := over.newMD(t)
		a, b, c := newSide(t, md, Config{}), newSide(t, md, Config{}), newSide(t, md, Config{})
		connected := a.epTo(b)
		connected.send(t, 0)
		until(t, func() bool { return len(b.got) == 1 && connected.c.proto.Unacked() == 0 }, a, b)
		connecting := a.epTo(c)
		connecting.send(t, 0)

		core := a.it.core
		here := core.port.Addr.GID
		elsewhere := here
		elsewhere[15]++
		core.AsyncEvent(verbs.AsyncEvent{Type: verbs.EventUnreachable, QP: core.qp, GID: elsewhere})
		core.AsyncEvent(verbs.AsyncEvent{Type: verbs.EventUnreachable, QP: b.it.core.qp, GID: here})
		a.it.Progress()
		require.Empty(t, a.errs, "another port, another QP")

		told := make(chan bool)
		go func() { // like the goroutine of the MD
			defer close(told)
			core.AsyncEvent(verbs.AsyncEvent{Type: verbs.EventUnreachable, QP: core.qp, GID: here})
		}()
		<-told
		until(t, func() bool { return len(a.errs) == 2 }, a)
		assert.ErrorIs(t, connecting.AMShort(0, 0, nil), ucs.ErrUnreachable)
		assert.ErrorIs(t, connected.AMShort(0, 0, nil), ucs.ErrConnReset)
		assert.Zero(t, core.conns.Len())
	})
}

// newVisitor opens a side on its own device, which leave closes. Others reach it over shm.
func newVisitor(t *testing.T, over poster) *side {
	t.Helper()
	md, err := ibtest.OpenMD(softhca.FabricShm, over.Transport)
	require.NoError(t, err)
	s := &side{t: t, md: md.(*ib.MD)}
	s.open(Config{})
	s.keepTime()
	return s
}

// newServer opens a side that visitors can reach.
func newServer(t *testing.T, over poster) *side {
	t.Helper()
	s := newSide(t, ibtest.NewMD(t, softhca.FabricShm, over.Transport), Config{})
	s.keepTime()
	return s
}

// keepTime makes the iface use the real clock, because links connect in real time.
func (s *side) keepTime() {
	start := time.Now()
	s.it.core.now = func() time.Duration { return time.Since(start) }
}

// leave closes the device, with or without a FIN on each connection.
func (s *side) leave(fin bool) {
	s.t.Helper()
	if !fin {
		for c := range s.it.core.conns.All() {
			s.it.core.drop(c, ucs.StatusCanceled)
		}
	}
	require.NoError(s.t, s.it.Close())
	require.NoError(s.t, s.md.Close())
}

// within calls Progress of sides until cond is true.
func within(t *testing.T, cond func() bool, sides ...*side) {
	t.Helper()
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
		for _, s := range sides {
			s.it.Progress()
		}
		runtime.Gosched()
		return cond()
	})
}

// TestUnreachable_RemovesConnectionsOfPeers: connections that a dead peer has made are removed,
// even if this side sends nothing.
func TestUnreachable_RemovesConnectionsOfPeers(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		server := newServer(t, over)
		core := server.it.core
		for i := range testenv.Rounds(8, 200) {
			v := newVisitor(t, over)
			v.epTo(server).send(t, 0)
			within(t, func() bool { return len(server.got) == i+1 }, server, v)
			v.leave(i%2 == 0)
		}
		within(t, func() bool { return core.conns.Len() == 0 }, server)
		assert.Empty(t, core.peers)
		r, ok := server.md.Context().Resources()
		require.True(t, ok)
		assert.Zero(t, r.AHs)
		assert.Empty(t, server.errs, "no EP was there")
	})
}

// TestUnreachable_FailsAnIdleEP: an EP fails after the death of its peer without a post, with the
// right status.
func TestUnreachable_FailsAnIdleEP(t *testing.T) {
	for name, c := range map[string]struct {
		fin  bool
		want error
	}{"in order": {true, ucs.ErrPeerClosed}, "without a word": {false, ucs.ErrConnReset}} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, over poster) {
				server, v := newServer(t, over), newVisitor(t, over)
				ep := server.epTo(v)
				ep.send(t, 0)
				within(t, func() bool { return len(v.got) == 1 && ep.c.proto.Unacked() == 0 }, server, v)
				v.leave(c.fin)
				within(t, func() bool { return len(server.errs) > 0 }, server)
				assert.ErrorIs(t, server.errs[0], c.want)
				assert.Empty(t, server.it.core.peers)
			})
		})
	}
}
