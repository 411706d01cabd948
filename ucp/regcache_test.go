package ucp_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/internal/proto"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
)

// registerLen is a length for which all domains register, if that is configured, needed or faster.
const registerLen = 1 << 20

// cacheCounts returns a counter summed over all caches of a worker.
func cacheCounts(x *ucppair.End, name string) (n uint64) {
	for path, v := range counters(x.W) {
		var domain string
		if _, err := fmt.Sscanf(path, "worker/rcache@%s", &domain); err == nil && pathEnds(path, "."+name) {
			n += v
		}
	}
	return n
}

func pathEnds(path, end string) bool { return len(path) > len(end) && path[len(path)-len(end):] == end }

// registersLocal reports whether operations register local buffers; fakes use bcopy for as many bytes.
func registersLocal(x *ucppair.End) bool {
	a := x.W.Ifaces()[0].Domain().Attr
	return a.NeedMemH && a.Component != "fake"
}

// registrations returns the number of registrations of a context besides the memory of x.
func registrations(x *ucppair.End) int { return x.Ctx.Memory().Len() - 1 }

// sendTag sends a tagged message from an unregistered buffer to another one.
func sendTag(p *ucppair.Pair, from, to []byte) {
	p.T.Helper()
	recv, err := p.B.W.TagRecv(to, 7, exact, nil, nil)
	require.NoError(p.T, err)
	r, err := p.A.EP.TagSend(7, from, nil)
	require.NoError(p.T, p.Finish(r, err))
	require.NoError(p.T, p.Finish(recv, nil))
}

// registerSets are transports that need registered memory, and others.
func registerSets() []tlsets.Set {
	direct := tlsets.Real("rc_mlx5", "rc_mlx5")
	direct.Like = "rc"
	return []tlsets.Set{
		faketp.Set("like rc+ud", faketp.LikeRC(), faketp.LikeUD()), tlsets.Real("rc", `\rc`), direct, tlsets.Real("sm", "sm"), tlsets.Real("tcp", "tcp"),
	}
}

// overRegistering runs a test over registerSets with the schemes that access remote memory.
func overRegistering(t *testing.T, cfg ucp.Config, f func(t *testing.T, p *ucppair.Pair, s proto.Scheme)) {
	for _, s := range []proto.Scheme{proto.Get, proto.Put} {
		for _, set := range registerSets() {
			set.Name = s.String() + "/" + set.Name
			set.Run(t, func(t *testing.T) {
				cfg.RndvScheme = s.String()
				f(t, ucppair.New(t, set, cfg).Connect(), s)
			})
		}
	}
}

// TestRegCache_Hits: buffers of messages are registered once, with the access that the scheme needs, and found in the
// cache when they are used again.
func TestRegCache_Hits(t *testing.T) {
	overRegistering(t, ucp.Config{}, func(t *testing.T, p *ucppair.Pair, s proto.Scheme) {
		from, to := make([]byte, registerLen), make([]byte, registerLen)
		for i := range 4 {
			copy(from, testenv.Pattern(registerLen, i))
			sendTag(p, from, to)
			testenv.RequireBytes(t, from, to)
		}
		there, here := &p.A, &p.B // there: the side whose memory the other one accesses
		if s == proto.Put {
			there, here = here, there
		}
		assert.EqualValues(t, 1, cacheCounts(there, "misses"))
		assert.EqualValues(t, 3, cacheCounts(there, "hits"))
		assert.Equal(t, 1, registrations(there))
		if registersLocal(there) {
			assert.EqualValues(t, 1, cacheCounts(here, "misses"), "the local buffer of the access")
		} else {
			assert.Zero(t, registrations(here))
		}
	})
}

// TestRegCache_Parts: the cache finds a part of a registration, also for active messages. It does not find the whole
// buffer if a part is registered.
func TestRegCache_Parts(t *testing.T) {
	overRegistering(t, ucp.Config{}, func(t *testing.T, p *ucppair.Pair, s proto.Scheme) {
		from, to := testenv.Pattern(registerLen, 1), make([]byte, registerLen)
		sendTag(p, from, to)
		before := cacheCounts(&p.A, "misses") + cacheCounts(&p.B, "misses")
		var recv *ucp.Request
		p.B.W.OnActive(1, func(m *ucp.ActiveMessage) {
			var err error
			recv, err = m.Recv(to[100:], nil)
			require.NoError(t, err)
		})
		clear(to)
		r, err := p.A.EP.SendActive(1, nil, from[:registerLen-100], nil)
		require.NoError(t, p.Finish(r, err))
		require.NoError(t, p.Finish(recv, nil))
		testenv.RequireBytes(t, from[:registerLen-100], to[100:])
		assert.Equal(t, before, cacheCounts(&p.A, "misses")+cacheCounts(&p.B, "misses"))
	})
}

// TestRegCache_Limits: the number and the bytes of idle registrations are limited, and MAX_SIZE=0 caches nothing.
func TestRegCache_Limits(t *testing.T) {
	for _, tc := range []struct {
		name  string
		cache ucp.RCacheConfig
		most  int // registrations of a
	}{
		{"regions", ucp.RCacheConfig{MaxRegions: 2}, 2},
		{"bytes", ucp.RCacheConfig{MaxSize: 3*registerLen + 5}, 3},
		{"none", ucp.RCacheConfig{MaxSize: config.MemZero}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.most > 2 {
				testenv.SkipShort(t, "another limit of the same cache")
			}
			overRegistering(t, ucp.Config{RCache: tc.cache}, func(t *testing.T, p *ucppair.Pair, s proto.Scheme) {
				to := make([]byte, registerLen)
				for i := range 6 {
					sendTag(p, testenv.Pattern(registerLen, i), to)
					assert.LessOrEqual(t, registrations(&p.A), tc.most)
					assert.LessOrEqual(t, registrations(&p.B), tc.most)
				}
				if s == proto.Get {
					assert.Equal(t, tc.most, registrations(&p.A))
					assert.EqualValues(t, 6-tc.most, cacheCounts(&p.A, "evictions"))
				}
			})
		})
	}
}

// TestRegCache_Disabled: nothing is registered, and messages use another scheme.
func TestRegCache_Disabled(t *testing.T) {
	overRegistering(t, ucp.Config{RCache: ucp.RCacheConfig{Enable: config.No}}, func(t *testing.T, p *ucppair.Pair, _ proto.Scheme) {
		from, to := testenv.Pattern(registerLen, 1), make([]byte, registerLen)
		sendTag(p, from, to)
		testenv.RequireBytes(t, from, to)
		assert.Zero(t, registrations(&p.A)+registrations(&p.B))
	})
}

// TestRegCache_CannotRegister: messages of memory that cannot be registered use another scheme.
func TestRegCache_CannotRegister(t *testing.T) {
	for _, scheme := range tlsets.RndvSchemes {
		p, f := ucppair.Fake(t, ucp.Config{RndvScheme: scheme}, faketp.LikeRC(), faketp.LikeUD())
		p.Connect()
		f.NoReg = true
		from, to := testenv.Pattern(registerLen, 1), make([]byte, registerLen)
		sendTag(p, from, to)
		testenv.RequireBytes(t, from, to)
		require.NoError(t, p.Finish(p.A.EP.Put(from[:tlsets.MemLen], p.B.Mem.Addr(), p.A.Key, nil)))
		require.NoError(t, p.Flush())
		testenv.RequireBytes(t, from[:tlsets.MemLen], p.B.Mem.Bytes())
		f.NoReg = false
	}
}

// TestRegCache_Invalidate: Invalidate removes cached registrations that are not in use. If some are in use, it returns an
// error.
func TestRegCache_Invalidate(t *testing.T) {
	overRegistering(t, ucp.Config{}, func(t *testing.T, p *ucppair.Pair, s proto.Scheme) {
		require.NoError(t, p.A.W.Invalidate(make([]byte, 1)), "there is none")
		from, other, to := testenv.Pattern(registerLen, 1), testenv.Pattern(registerLen, 2), make([]byte, registerLen)
		sendTag(p, from, to)
		sendTag(p, other, to)
		n := registrations(&p.A)
		require.NoError(t, p.A.W.Invalidate(from[5:6]))
		if s == proto.Get || registersLocal(&p.A) {
			assert.Equal(t, n-1, registrations(&p.A))
		}
		require.NoError(t, p.A.W.Purge())
		require.NoError(t, p.B.W.Purge())
		assert.Zero(t, registrations(&p.A)+registrations(&p.B))
		if s != proto.Get {
			return
		}
		r, err := p.A.EP.TagSend(7, from, nil) // announced, and not received yet
		require.NoError(t, err)
		require.NotNil(t, r)
		p.Until(func() bool { return p.B.W.Tags().Unexpected() > 0 })
		assert.Equal(t, 1, registrations(&p.A))
		assert.Equal(t, ucs.ErrBusy, p.A.W.Invalidate(from))
		require.NoError(t, p.Finish(p.B.W.TagRecv(to, 7, exact, nil, nil)))
		require.NoError(t, p.Finish(r, nil))
		testenv.RequireBytes(t, from, to)
		assert.Zero(t, registrations(&p.A), "deregistered after its last use")
		require.NoError(t, p.A.W.Invalidate(from))
	})
}

// TestRegCache_FailedOperation: after an operation has failed, its key gives the peer no access.
func TestRegCache_FailedOperation(t *testing.T) {
	overRegistering(t, ucp.Config{}, func(t *testing.T, p *ucppair.Pair, s proto.Scheme) {
		from, to := testenv.Pattern(registerLen, 1), make([]byte, registerLen)
		sendTag(p, from[:1], to[:1])
		r, err := p.A.EP.TagSend(7, from, nil)
		require.NoError(t, err)
		require.NotNil(t, r)
		p.Until(func() bool { return p.B.W.Tags().Unexpected() > 0 })
		if s == proto.Put {
			recv, err := p.B.W.TagRecv(to, 7, exact, nil, nil)
			require.NoError(t, err)
			require.NotNil(t, recv)
			assert.Equal(t, 1, registrations(&p.B))
			defer func() {
				p.Until(recv.Done)
				assert.Error(t, recv.Take())
				assert.Zero(t, registrations(&p.B))
			}()
		} else {
			assert.Equal(t, 1, registrations(&p.A))
		}
		require.NoError(t, p.Finish(p.A.EP.Close(ucp.CloseForce)))
		p.Until(r.Done)
		assert.Error(t, r.Take())
		assert.Zero(t, registrations(&p.A))
	})
}

// TestRegCache_PeerAccess: a worker closes while a peer accesses memory that an operation has registered. The context
// closes after the access.
func TestRegCache_PeerAccess(t *testing.T) {
	f := faketp.New(faketp.LikeSM())
	ctx, err := ucp.NewContext(ucp.Config{RndvScheme: "get_zcopy"}, f)
	require.NoError(t, err)
	w, err := ctx.NewWorker(ucp.WorkerConfig{})
	require.NoError(t, err)
	release, err := w.RegisterCached(ctx.Memory().Domains[0], make([]byte, 8), uct.AccessRemoteRead)
	require.NoError(t, err)
	release()
	f.Inside = []int{42}
	require.NoError(t, w.Close())
	var inUse *ucs.InUseError
	require.ErrorAs(t, ctx.Close(), &inUse)
	f.Inside = nil
	require.NoError(t, ctx.Close())
}

// TestRegCache_PutGet: large puts and gets register their buffers if the transport needs it, and do not allocate if the
// cache has them.
func TestRegCache_PutGet(t *testing.T) {
	for _, set := range registerSets()[1:] {
		t.Run(set.Name, func(t *testing.T) {
			p := ucppair.New(t, set, ucp.Config{}).Connect().Warm()
			mem := memOf(t, &p.B, registerLen)
			key, err := p.A.EP.Unpack(mem.Pack())
			require.NoError(t, err)
			defer key.Close()
			from, to := testenv.Pattern(registerLen, 1), make([]byte, registerLen)
			move := func() {
				r, err := p.A.EP.Put(from, mem.Addr(), key, nil)
				p.MustFinish(r, err)
				p.MustFinish(p.A.EP.Flush())
				r, err = p.A.EP.Get(to, mem.Addr(), key, nil)
				p.MustFinish(r, err)
			}
			move()
			testenv.RequireBytes(t, from, to)
			if registersLocal(&p.A) {
				assert.Equal(t, 2, registrations(&p.A), "one for each access")
				testenv.NoAllocs(t, "put and get", move)
			} else {
				assert.Zero(t, registrations(&p.A))
			}
		})
	}
}

// TestRegCache_ByCost: by default memory is registered if the transport needs it, and over sm if the kernel copies faster
// than two copies by CPUs.
func TestRegCache_ByCost(t *testing.T) {
	slow, fast := uct.Cost{Send: 1100, Bandwidth: 17e9}, uct.Cost{Send: 100, Bandwidth: 100e9}
	for _, tc := range []struct {
		name   string
		set    tlsets.Set
		reach  uct.Cost
		leased int
	}{{"rc", tlsets.Real("rc", `\rc`), uct.Cost{}, 1}, {"slow kernel", tlsets.Real("sm", "sm"), slow, 0}, {"fast kernel", tlsets.Real("sm", "sm"), fast, 1}} {
		t.Run(tc.name, func(t *testing.T) {
			p := ucppair.New(t, tc.set, ucp.Config{}).Connect()
			for _, e := range []*ucppair.End{&p.A, &p.B} {
				e.W.Ifaces()[0].Costs().RegReach = tc.reach
			}
			from, to := testenv.Pattern(registerLen, 1), make([]byte, registerLen)
			sendTag(p, from, to)
			testenv.RequireBytes(t, from, to)
			assert.Equal(t, tc.leased, registrations(&p.A))
		})
	}
}
