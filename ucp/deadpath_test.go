package ucp_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
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
func deadFirst(t *testing.T, cfg ucp.Config, why error, first faketp.Kind) (*ucppair.Pair, *faketp.Fabric) {
	first.Name, first.Dials = "fdead", true
	second := faketp.LikeTCP()
	second.Latency, second.Dials = 10*faketp.LikeUD().Latency, true
	p, f := ucppair.Fake(t, cfg, first, second)
	f.Dead["fdead"] = why
	return p.Connect(), f
}

// TestDeadPath_OtherDeviceWorks: if the better device cannot reach the peer, all operations use the other one, in both
// directions, and neither side tries the first one for another role.
func TestDeadPath_OtherDeviceWorks(t *testing.T) {
	for name, why := range whyDead {
		t.Run(name, func(t *testing.T) {
			p, f := deadFirst(t, ucp.Config{}, why, faketp.LikeTCP())
			require.NoError(t, p.Finish(p.A.EP.TagSend(1, testenv.Pattern(100, 1), nil)))
			got := make([]byte, 100)
			require.NoError(t, p.Finish(p.B.W.TagRecv(got, 1, exact, nil, nil)))
			testenv.RequireBytes(t, testenv.Pattern(100, 1), got)
			p.Until(func() bool { return p.A.EP.Handshake().Quiet() && peerEP(t, &p.B).Handshake().Quiet() })
			tried := f.Opened["fdead"]

			require.NoError(t, p.Finish(p.A.EP.Put(testenv.Pattern(600, 2), p.A.Key.Addr(), p.A.Key, nil)))
			require.NoError(t, p.Flush())
			testenv.RequireBytes(t, testenv.Pattern(600, 2), p.B.Mem.Bytes()[:600])
			for _, x := range []struct {
				from *ucp.EP
				to   *ucp.Worker
			}{{p.A.EP, p.B.W}, {peerEP(t, &p.B), p.A.W}} {
				const long = 100_000
				sent, err := x.from.TagSend(2, testenv.Pattern(long, 3), nil)
				require.NoError(t, err)
				got := make([]byte, long)
				require.NoError(t, p.Finish(x.to.TagRecv(got, 2, exact, nil, nil)))
				require.NoError(t, p.Finish(sent, nil))
				testenv.RequireBytes(t, testenv.Pattern(long, 3), got)
			}
			assert.Equal(t, tried, f.Opened["fdead"], "endpoints over the dead device")
			assert.Equal(t, "ftcp", kindOf(p.A.EP.Lane(wireup.AM).Iface))
			assert.Zero(t, counters(p.A.W)["worker.failed_eps"]+counters(p.B.W)["worker.failed_eps"])
			require.NoError(t, p.Finish(p.A.EP.Close(ucp.CloseFlush)))
			p.Until(func() bool { return p.A.W.EPs().Len()+p.B.W.EPs().Len() == 0 })
		})
	}
}

// TestDeadPath_None: if no device reaches the peer, the EP fails with the reasons of all devices.
func TestDeadPath_None(t *testing.T) {
	for name, why := range whyDead {
		t.Run(name, func(t *testing.T) {
			p, f := deadFirst(t, ucp.Config{}, why, faketp.LikeTCP())
			f.Dead["ftcp"] = ucs.ErrUnreachable
			err := p.Finish(p.A.EP.TagSend(1, testenv.Pattern(100, 1), nil))
			if err == nil {
				err = p.Flush()
			}
			require.ErrorIs(t, err, ucs.ErrEPFailed)
			require.ErrorIs(t, err, ucs.ErrUnreachable)
			assert.ErrorContains(t, err, "fdead")
			assert.ErrorContains(t, err, "ftcp")
			require.NoError(t, p.Finish(p.A.EP.Close(ucp.CloseFlush)))
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
				p, _ := deadFirst(t, ucp.Config{RndvScheme: scheme}, why, first)
				const long = 100_000
				for k := range 3 {
					sent, err := p.A.EP.TagSend(2, testenv.Pattern(long, k), nil)
					require.NoError(t, err)
					got := make([]byte, long)
					require.NoError(t, p.Finish(p.B.W.TagRecv(got, 2, exact, nil, nil)))
					require.NoError(t, p.Finish(sent, nil))
					testenv.RequireBytes(t, testenv.Pattern(long, k), got)
				}
				require.NoError(t, p.Finish(p.A.EP.Get(make([]byte, 5000), p.A.Key.Addr(), p.A.Key, nil)))
				assert.NoError(t, p.A.EP.Err())
				assert.NoError(t, peerEP(t, &p.B).Err())
			})
		}
	}
}
