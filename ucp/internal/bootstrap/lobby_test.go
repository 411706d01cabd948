package bootstrap

import (
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/preface"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
)

const knownID = 7

// delivered has the data connections that a listener has delivered for knownID.
type delivered struct {
	mu    sync.Mutex
	conns []*DataConn
}

func (d *delivered) deliver(id uint64, c *DataConn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if id == knownID {
		d.conns = append(d.conns, c)
	}
	return id == knownID
}

// next waits for the first n connections.
func (d *delivered) next(t testing.TB, n int) (conns []*DataConn) {
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		conns = d.conns
		return len(conns) >= n
	})
	return conns
}

// TestData_Taken: after Take, the caller can read all bytes after the preface, and closing the listener does not close the
// connection.
func TestData_Taken(t *testing.T) {
	d := new(delivered)
	l := open(t, "tcp", ":0", Config{Deliver: d.deliver})
	conn := l.raw(append(preface.Append(nil, knownID), "behind"...))
	c := d.next(t, 1)[0]
	assert.False(t, c.Ended())
	fd, from, err := c.Take()
	require.NoError(t, err)
	defer unix.Close(fd)
	assert.Equal(t, "127.0.0.1", from.String())
	l.idle()
	require.NoError(t, l.Close())
	b := make([]byte, 16)
	n, err := unix.Read(fd, b)
	require.NoError(t, err)
	assert.Equal(t, "behind", string(b[:n]))
	_, err = unix.Write(fd, []byte("back"))
	require.NoError(t, err)
	n, err = conn.Read(b)
	require.NoError(t, err)
	assert.Equal(t, "back", string(b[:n]))
}

// TestData_ListenerCloses: Drop, or closing the listener, closes a data connection that was not taken.
func TestData_ListenerCloses(t *testing.T) {
	d := new(delivered)
	l := open(t, "tcp", ":0", Config{Deliver: d.deliver})
	conn := l.raw(preface.Append(nil, knownID))
	d.next(t, 1)[0].Drop()
	_, err := conn.Read(make([]byte, 1))
	assert.ErrorIs(t, err, io.EOF)
	conn = l.raw(preface.Append(nil, knownID))
	c := d.next(t, 2)[1]
	require.NoError(t, l.Close())
	_, err = conn.Read(make([]byte, 1))
	assert.ErrorIs(t, err, io.EOF)
	assert.True(t, c.Ended())
	_, _, err = c.Take()
	assert.ErrorIs(t, err, ucs.ErrClosed)
}

// TestData_Hostile: a data connection is closed if its preface is malformed, incomplete, has an unknown id, or arrives over
// a unix socket, or if no data connection is expected.
func TestData_Hostile(t *testing.T) {
	good := preface.Append(nil, knownID)
	for name, tc := range map[string]struct {
		first  []byte
		silent uint64 // 0 if the connection counts as malformed
	}{
		"another version": {edit(good, 4, 9), 0},
		"no id":           {preface.Append(nil, 0), 0},
		"another id":      {preface.Append(nil, knownID+1), 0},
		"incomplete":      {good[:preface.Len-1], 1},
		"magic":           {good[:preface.MagicLen], 1},
		"a byte":          {good[:1], 1},
	} {
		t.Run(name, func(t *testing.T) {
			d, timeout := new(delivered), time.Hour
			if tc.silent > 0 {
				timeout = time.Millisecond
			}
			l := open(t, "tcp", ":0", Config{Deliver: d.deliver, HelloTimeout: timeout})
			got, _ := io.ReadAll(l.raw(tc.first)) // fails with a reset if the listener has not read everything
			assert.Empty(t, got)
			l.counted("silent", tc.silent, l.cfg.Stats.silent.Load)
			l.counted("malformed", 1-tc.silent, l.cfg.Stats.malformed.Load)
			l.idle()
			assert.Empty(t, d.conns)
		})
	}
	t.Run("unix", func(t *testing.T) {
		d := new(delivered)
		l := open(t, "unix", abstractName(), Config{Deliver: d.deliver})
		_, _ = io.ReadAll(l.raw(good))
		l.counted("malformed", 1, l.cfg.Stats.malformed.Load)
		assert.Empty(t, d.conns)
	})
	t.Run("nobody", func(t *testing.T) {
		l := open(t, "tcp", ":0", Config{})
		_, _ = io.ReadAll(l.raw(good))
		l.counted("malformed", 1, l.cfg.Stats.malformed.Load)
	})
}

// TestData_NotBlockedByDialers: a data connection is delivered while all places are occupied and dialers wait. The
// dialers get places in order.
func TestData_NotBlockedByDialers(t *testing.T) {
	d := new(delivered)
	l := open(t, "tcp", ":0", Config{Deliver: d.deliver, MaxHandshakes: 1, HelloTimeout: time.Hour})
	first := l.dial(t.Context())
	r := l.next(1)[0] // is not evicted, because it waits for the owner
	const dialers = 5
	var results []<-chan dialed
	for i := range dialers {
		results = append(results, l.dial(t.Context()))
		testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return len(l.waiting) == i+1
		})
	}
	conn := l.raw(preface.Append(nil, knownID))
	fd, _, err := d.next(t, 1)[0].Take()
	require.NoError(t, err)
	require.NoError(t, unix.Close(fd))
	_, err = conn.Read(make([]byte, 1))
	assert.ErrorIs(t, err, io.EOF)
	for _, result := range append([]<-chan dialed{first}, results...) {
		r.Reject(CodeRejected, nil)
		assert.ErrorIs(t, (<-result).err, ucs.ErrRejected)
		if result != results[dialers-1] {
			r = l.next(1)[0]
		}
	}
}

// TestLobby: a source with half of the lobby evicts its own oldest connection; another source evicts one of
// the source with the most connections. Connections that have sent nothing are evicted first, and dialers that wait for a
// place are never evicted.
func TestLobby(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := unattended(t, Config{HelloTimeout: time.Hour})
		l.lobby.most = 4
		enter := func(addr string) (*Request, bool) {
			r := l.request(from(addr))
			return r, l.enterLobby(r, time.Now())
		}
		a, _ := enter("10.0.0.1")
		b, ok := enter("10.0.0.1")
		require.True(t, ok)
		_, ok = enter("10.0.0.1")
		assert.False(t, ok, "an honest one gets its time")
		a.stage = stageData
		time.Sleep(l.grace())
		c, ok := enter("10.0.0.1")
		require.True(t, ok)
		assert.True(t, b.evicted)
		d, _ := enter("10.0.0.2")
		e, ok := enter("10.0.0.3")
		require.True(t, ok)
		assert.Equal(t, []*Request{a, c, d, e}, l.lobby.in)
		time.Sleep(l.grace())
		c.stage = stagePlace
		f, ok := enter("10.0.0.4")
		require.True(t, ok)
		assert.True(t, a.evicted)
		assert.Equal(t, []*Request{c, d, e, f}, l.lobby.in)
		c.remove()
		assert.Equal(t, map[source]int{d.source: 1, e.source: 1, f.source: 1}, l.lobby.count)

		for _, r := range l.lobby.in {
			r.stage = stagePlace
		}
		enter("10.0.0.2")
		time.Sleep(l.grace())
		_, ok = enter("10.0.0.5")
		assert.True(t, ok, "in place of the silent one")
		l.lobby.in[3].stage = stagePlace
		_, ok = enter("10.0.0.6")
		assert.False(t, ok, "all wait for a place")
	})
}

// TestAdmit_LobbyFull: a connection without room in the lobby gets a REJECT with CodeTooMany.
func TestAdmit_LobbyFull(t *testing.T) {
	l := open(t, "tcp", ":0", Config{HelloTimeout: time.Hour})
	l.mu.Lock()
	l.lobby.most = 1
	l.mu.Unlock()
	l.raw(nil)
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.lobby.in) == 1
	})
	got, _ := io.ReadAll(l.raw(nil))
	assert.Equal(t, rejection(CodeTooMany, nil), got)
	l.counted("evicted", 1, l.cfg.Stats.evicted.Load)
}

// FuzzFirst: the first bytes of a connection belong to a dialer, whose handshake reads all of them, or to
// a data connection with an id, or the connection is closed.
func FuzzFirst(f *testing.F) {
	f.Add(preface.Append(nil, knownID))
	f.Add(preface.Append(nil, knownID+1))
	f.Add(sampleHello().append(nil))
	f.Add([]byte("\x16\x03\x01"))
	f.Add([]byte("GXDC"))
	f.Fuzz(func(t *testing.T, b []byte) {
		d := new(delivered)
		l := unattended(t, Config{Deliver: d.deliver, HelloTimeout: time.Hour})
		here, there := net.Pipe()
		r := newRequest(l.Listener, here, from("10.0.0.1"))
		go func() {
			_, _ = there.Write(b)
			_ = there.Close()
		}()
		if len(b) >= preface.Len && preface.IsMagic([preface.MagicLen]byte(b)) {
			r.cancel() // instead of Take
		}
		dialer := r.readFirst()
		if !dialer {
			_ = here.Close()
			assert.True(t, len(b) < preface.MagicLen || preface.IsMagic([preface.MagicLen]byte(b)))
			return
		}
		got, _ := io.ReadAll(r.secret)
		assert.Equal(t, string(b), string(got))
		assert.Empty(t, d.conns)
		_ = here.Close()
	})
}
