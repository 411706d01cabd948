package ucp

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// whyDead are the reasons why a transport cannot connect.
var whyDead = map[string]error{
	"refused":   ucs.ErrUnreachable,
	"swallowed": ucs.ErrTimedOut,
	"rejected":  ucs.ErrRejected,
	"no memory": ucs.ErrNoMemory,
}

// deadFirst is a pair with two devices of one class. The better one cannot reach the peer, for a given reason.
func deadFirst(t *testing.T, cfg Config, why error, first faketp.Kind) (*pair, *faketp.Fabric) {
	first.Name, first.Dials = "fdead", true
	second := faketp.LikeTCP()
	second.Latency, second.Dials = 10*faketp.LikeUD().Latency, true
	p, f := fakePair(t, cfg, first, second)
	f.Dead["fdead"] = why
	return p.connect(), f
}

// TestDeadPath_OtherDeviceWorks: if the better device cannot reach the peer, all operations use the other one, in both
// directions, and neither side tries the first one for another role.
func TestDeadPath_OtherDeviceWorks(t *testing.T) {
	for name, why := range whyDead {
		t.Run(name, func(t *testing.T) {
			p, f := deadFirst(t, Config{}, why, faketp.LikeTCP())
			require.NoError(t, p.finish(p.a.ep.TagSend(1, pattern(100, 1), nil)))
			got := make([]byte, 100)
			require.NoError(t, p.finish(p.b.w.TagRecv(got, 1, exact, nil, nil)))
			requireBytes(t, pattern(100, 1), got)
			p.until(func() bool { return p.a.ep.link.conn.Quiet() && p.b.peerEP(t).link.conn.Quiet() })
			tried := f.Opened["fdead"]

			require.NoError(t, p.finish(p.a.ep.Put(pattern(600, 2), p.a.key.Addr(), p.a.key, nil)))
			require.NoError(t, p.flush())
			requireBytes(t, pattern(600, 2), p.b.mem.Bytes()[:600])
			for _, x := range []struct {
				from *EP
				to   *Worker
			}{{p.a.ep, p.b.w}, {p.b.peerEP(t), p.a.w}} {
				const long = 100_000
				sent, err := x.from.TagSend(2, pattern(long, 3), nil)
				require.NoError(t, err)
				got := make([]byte, long)
				require.NoError(t, p.finish(x.to.TagRecv(got, 2, exact, nil, nil)))
				require.NoError(t, p.finish(sent, nil))
				requireBytes(t, pattern(long, 3), got)
			}
			assert.Equal(t, tried, f.Opened["fdead"], "endpoints over the dead device")
			assert.Equal(t, "ftcp", p.a.ep.lane(wireup.AM).Iface.kind())
			assert.Zero(t, counters(p.a.w)["worker.failed_eps"]+counters(p.b.w)["worker.failed_eps"])
			require.NoError(t, p.finish(p.a.ep.Close(CloseFlush)))
			p.until(func() bool { return p.a.w.eps.Len()+p.b.w.eps.Len() == 0 })
		})
	}
}

// TestDeadPath_None: if no device reaches the peer, the EP fails with the reasons of all devices.
func TestDeadPath_None(t *testing.T) {
	for name, why := range whyDead {
		t.Run(name, func(t *testing.T) {
			p, f := deadFirst(t, Config{}, why, faketp.LikeTCP())
			f.Dead["ftcp"] = ucs.ErrUnreachable
			err := p.finish(p.a.ep.TagSend(1, pattern(100, 1), nil))
			if err == nil {
				err = p.flush()
			}
			require.ErrorIs(t, err, ucs.ErrEPFailed)
			require.ErrorIs(t, err, ucs.ErrUnreachable)
			assert.ErrorContains(t, err, "fdead")
			assert.ErrorContains(t, err, "ftcp")
			require.NoError(t, p.finish(p.a.ep.Close(CloseFlush)))
		})
	}
}

// TestDeadPath_Fetches: the receiver of a message moves the data over a device that carries no messages, and that the
// sender has not tried. The device cannot reach the sender, so what waits for its lane moves to the next device.
func TestDeadPath_Fetches(t *testing.T) {
	for _, scheme := range []string{"get_zcopy", "put_zcopy", "am", "auto"} {
		for name, why := range whyDead {
			t.Run(scheme+"/"+name, func(t *testing.T) {
				first := faketp.LikeTCP()
				first.Caps &^= uct.CapAMBcopy
				p, _ := deadFirst(t, Config{RndvScheme: scheme}, why, first)
				const long = 100_000
				for k := range 3 {
					sent, err := p.a.ep.TagSend(2, pattern(long, k), nil)
					require.NoError(t, err)
					got := make([]byte, long)
					require.NoError(t, p.finish(p.b.w.TagRecv(got, 2, exact, nil, nil)))
					require.NoError(t, p.finish(sent, nil))
					requireBytes(t, pattern(long, k), got)
				}
				require.NoError(t, p.finish(p.a.ep.Get(make([]byte, 5000), p.a.key.Addr(), p.a.key, nil)))
				assert.NoError(t, p.a.ep.Err())
				assert.NoError(t, p.b.peerEP(t).Err())
			})
		}
	}
}
