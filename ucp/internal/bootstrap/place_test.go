package bootstrap

import (
	"io"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
)

// from returns the identity of a tcp dialer.
func from(addr string) Identity {
	return Identity{Network: "tcp", Addr: netip.AddrPortFrom(netip.MustParseAddr(addr), 1)}
}

// request returns a connection without a place.
func (l *listener) request(from Identity) *Request {
	here, there := net.Pipe()
	l.t.Cleanup(func() {
		_ = here.Close()
		_ = there.Close()
	})
	r := newRequest(l.Listener, here, from)
	l.t.Cleanup(r.cancel)
	return r
}

// enterAt calls enter for a connection at a time, and returns the connection; nil if it must wait.
func (l *listener) enterAt(from Identity, at time.Time) *Request {
	r := l.request(from)
	if ok, _ := l.enter(r, at); !ok {
		return nil
	}
	return r
}

func TestIdentity_Source(t *testing.T) {
	source := func(i Identity) source { return i.source() }
	assert.Equal(t, source(from("10.0.0.1")), source(from("::ffff:10.0.0.1")))
	assert.NotEqual(t, source(from("10.0.0.1")), source(from("10.0.0.2")))
	assert.Equal(t, source(from("2001:db8::1")), source(from("2001:db8::ffff:0:1")))
	assert.Equal(t, source(from("fe80::1%lo")), source(from("fe80::2%eth0")))
	assert.NotEqual(t, source(from("2001:db8::1")), source(from("2001:db8:0:1::1")))
	process := Identity{Network: "unix", PID: 1, UID: 2}
	assert.NotEqual(t, source(process), source(Identity{Network: "unix", PID: 2, UID: 2}))
	assert.NotEqual(t, source(process), source(Identity{Network: "unix", PID: 1, UID: 3}))
}

// TestPlace_EvictsSameSource: a source with MaxPerSource connections evicts its own oldest one; others are not affected.
func TestPlace_EvictsSameSource(t *testing.T) {
	l := open(t, "tcp", ":0", Config{MaxHandshakes: 10, MaxPerSource: 2, HelloTimeout: time.Hour})
	start := time.Now()
	other := l.enterAt(from("10.0.0.2"), start)
	first, second := l.enterAt(from("10.0.0.1"), start), l.enterAt(from("10.0.0.1"), start)
	ok, in := l.enter(l.request(from("10.0.0.1")), start.Add(time.Second))
	assert.False(t, ok, "an honest dialer gets its time")
	assert.Equal(t, l.grace()-time.Second, in)
	third := l.enterAt(from("10.0.0.1"), start.Add(l.grace()))
	assert.Equal(t, []*Request{other, second, third}, l.live)
	assert.Error(t, first.ctx.Err())
	assert.EqualValues(t, 1, l.cfg.Stats.evicted.Load())
}

// TestPlace_EvictsLargestSource: if all places are occupied, a connection of the source with the most connections is
// evicted.
func TestPlace_EvictsLargestSource(t *testing.T) {
	l := open(t, "tcp", ":0", Config{MaxHandshakes: 4, MaxPerSource: 4, HelloTimeout: time.Hour})
	start := time.Now()
	oldest := l.enterAt(from("10.0.0.2"), start)
	var flood []*Request
	for range 3 {
		flood = append(flood, l.enterAt(from("10.0.0.1"), start))
	}
	x := l.enterAt(from("10.0.0.3"), start.Add(l.grace()))
	assert.Equal(t, []*Request{oldest, flood[1], flood[2], x}, l.live)
	y := l.enterAt(from("10.0.0.3"), start.Add(l.grace()))
	assert.Equal(t, []*Request{oldest, flood[2], x, y}, l.live)
	z := l.enterAt(from("10.0.0.4"), start.Add(2*l.grace()))
	assert.Equal(t, []*Request{oldest, flood[2], y, z}, l.live)
	last := l.enterAt(from("10.0.0.5"), start.Add(2*l.grace()))
	assert.Equal(t, []*Request{flood[2], y, z, last}, l.live, "all have as many: the oldest goes")
}

// TestPlace_SilentFirst: connections without a HELLO are evicted before those with an ACCEPT. Connections that wait for
// the owner are never evicted.
func TestPlace_SilentFirst(t *testing.T) {
	l := open(t, "tcp", ":0", Config{MaxHandshakes: 3, MaxPerSource: 3, HelloTimeout: time.Hour})
	start := time.Now()
	waits, accepted, silent := l.enterAt(from("10.0.0.1"), start), l.enterAt(from("10.0.0.1"), start), l.enterAt(from("10.0.0.1"), start)
	waits.stage = stageOwner
	l.replied(accepted)
	accepted.staged = start
	later := start.Add(l.grace())
	x := l.enterAt(from("10.0.0.1"), later)
	assert.Equal(t, []*Request{waits, accepted, x}, l.live)
	assert.True(t, silent.evicted)
	x.stage = stageOwner
	y := l.enterAt(from("10.0.0.1"), later)
	assert.Equal(t, []*Request{waits, x, y}, l.live)
	y.stage = stageOwner
	assert.Nil(t, l.enterAt(from("10.0.0.1"), later.Add(time.Hour)), "all wait for the owner")
	assert.Nil(t, l.enterAt(from("10.0.0.2"), later.Add(time.Hour)))
}

// TestEvicted: an evicted dialer gets a REJECT with CodeTooMany, before or after an ACCEPT.
func TestEvicted(t *testing.T) {
	overAll(t, func(t *testing.T, network, address string) {
		l := open(t, network, address, Config{MaxHandshakes: 1, HelloTimeout: time.Hour})
		silent := l.raw(sampleHello().append(nil)[:headerLen])
		require.Eventually(t, func() bool { return l.occupied() == 1 }, time.Minute, time.Millisecond)
		l.age()
		result := l.dial(t.Context())
		got, _ := io.ReadAll(silent)
		assert.Equal(t, rejection(CodeTooMany, nil), got)
		r := l.next(1)[0]
		r.Accept(sampleAnswer())
		d := <-result
		require.NoError(t, d.err)
		l.age()

		result = l.dial(t.Context())
		err := d.conn.Wait()
		require.ErrorIs(t, err, ErrTryAgain)
		assert.ErrorIs(t, err, ucs.ErrRejected)
		require.NoError(t, d.conn.Close())
		news := l.next(2)
		assert.True(t, slices.Contains(news, r))
		assert.True(t, r.Gone(), "the owner knows")
		for _, other := range news {
			if other != r {
				other.Reject(CodeRejected, nil)
			}
		}
		assert.ErrorIs(t, (<-result).err, ucs.ErrRejected)
		assert.EqualValues(t, 2, l.cfg.Stats.evicted.Load())
	})
}

// age makes all connections old enough for eviction.
func (l *listener) age() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.live {
		r.staged = r.staged.Add(-l.grace())
	}
	l.notifyFreed()
}

// TestFlood: a dialer is served while many connections send nothing, or nothing after their HELLO.
func TestFlood(t *testing.T) {
	const places, flood = 32, 200
	for name, hello := range map[string][]byte{"silent": nil, "accepted": sampleHello().append(nil)} {
		t.Run(name, func(t *testing.T) {
			overAll(t, func(t *testing.T, network, address string) {
				l := open(t, network, address, Config{MaxHandshakes: places, HelloTimeout: time.Second})
				stop := make(chan struct{})
				ended := make(chan struct{})
				var honest *Request
				go func() {
					defer close(ended)
					for {
						for _, r := range l.inbox.Take() {
							switch {
							case r.Gone():
								r.Drop()
							case string(r.Hello.Private) == "honest":
								honest = r
								r.Accept(sampleAnswer())
								r.Connected()
							default:
								r.Accept(sampleAnswer())
							}
						}
						select {
						case <-l.news:
						case <-stop:
							return
						}
					}
				}()
				for range flood {
					l.raw(hello)
				}
				h := sampleHello()
				h.Private = []byte("honest")
				served := func() bool { // a dialer that was not scheduled for long is evicted and tries again
					conn, err := dialAndExchange(t.Context(), network, l.Addr().String(), h, &DialConfig{})
					if err != nil {
						return false
					}
					err = conn.Wait()
					require.NoError(t, conn.Close())
					return err == nil
				}
				testenv.ProgressWithin(t, testenv.Watchdog, served)
				close(stop)
				<-ended
				assert.NotNil(t, honest)
				testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
					return l.cfg.Stats.evicted.Load()+l.cfg.Stats.silent.Load() > 0
				})
			})
		})
	}
}

// TestPlace_Migrated: a request that was moved to another worker, which does not reply, can be evicted.
func TestPlace_Migrated(t *testing.T) {
	l := open(t, "tcp", ":0", Config{MaxHandshakes: 1, HelloTimeout: time.Hour})
	other := NewInbox(func() {})
	start := time.Now()
	r := l.enterAt(from("10.0.0.1"), start)
	require.NotNil(t, r)
	r.stage = stageOwner
	require.Nil(t, l.enterAt(from("10.0.0.2"), start.Add(time.Hour)))
	require.NoError(t, r.Migrate(other))
	require.Nil(t, l.enterAt(from("10.0.0.2"), start))
	require.NotNil(t, l.enterAt(from("10.0.0.2"), time.Now().Add(time.Hour)))
	assert.True(t, r.wasEvicted())
	other.Close()
	require.ErrorIs(t, l.request(from("10.0.0.3")).Migrate(other), ucs.ErrClosed)
}
