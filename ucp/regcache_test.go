package ucp

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/ucp/internal/proto"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
)

// registerLen is a length for which all domains register, if that is configured, needed or faster.
const registerLen = 1 << 20

// cacheCounts returns a counter summed over all caches of a worker.
func (x *end) cacheCounts(name string) (n uint64) {
	for path, v := range counters(x.w) {
		var domain string
		if _, err := fmt.Sscanf(path, "worker/rcache@%s", &domain); err == nil && pathEnds(path, "."+name) {
			n += v
		}
	}
	return n
}

func pathEnds(path, end string) bool { return len(path) > len(end) && path[len(path)-len(end):] == end }

// registersLocal reports whether operations register local buffers; fakes use bcopy for as many bytes.
func (x *end) registersLocal() bool {
	a := x.w.ifaces[0].domain.Attr
	return a.NeedMemH && a.Component != "fake"
}

// registrations returns the number of registrations of a context besides the memory of x.
func (x *end) registrations() int { return x.ctx.memory.Len() - 1 }

// sendTag sends a tagged message from an unregistered buffer to another one.
func (p *pair) sendTag(from, to []byte) {
	p.t.Helper()
	recv, err := p.b.w.TagRecv(to, 7, exact, nil, nil)
	require.NoError(p.t, err)
	r, err := p.a.ep.TagSend(7, from, nil)
	require.NoError(p.t, p.finish(r, err))
	require.NoError(p.t, p.finish(recv, nil))
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
func overRegistering(t *testing.T, cfg Config, f func(t *testing.T, p *pair, s proto.Scheme)) {
	for _, s := range []proto.Scheme{proto.Get, proto.Put} {
		for _, set := range registerSets() {
			set.Name = s.String() + "/" + set.Name
			set.Run(t, func(t *testing.T) {
				cfg.RndvScheme = s.String()
				f(t, newPair(t, set, cfg).connect(), s)
			})
		}
	}
}

// TestRegCache_Hits: buffers of messages are registered once, with the access that the scheme needs, and found in the
// cache when they are used again.
func TestRegCache_Hits(t *testing.T) {
	overRegistering(t, Config{}, func(t *testing.T, p *pair, s proto.Scheme) {
		from, to := make([]byte, registerLen), make([]byte, registerLen)
		for i := range 4 {
			copy(from, pattern(registerLen, i))
			p.sendTag(from, to)
			requireBytes(t, from, to)
		}
		there, here := &p.a, &p.b // there: the side whose memory the other one accesses
		if s == proto.Put {
			there, here = here, there
		}
		assert.EqualValues(t, 1, there.cacheCounts("misses"))
		assert.EqualValues(t, 3, there.cacheCounts("hits"))
		assert.Equal(t, 1, there.registrations())
		if there.registersLocal() {
			assert.EqualValues(t, 1, here.cacheCounts("misses"), "the local buffer of the access")
		} else {
			assert.Zero(t, here.registrations())
		}
	})
}

// TestRegCache_Parts: the cache finds a part of a registration, also for active messages. It does not find the whole
// buffer if a part is registered.
func TestRegCache_Parts(t *testing.T) {
	overRegistering(t, Config{}, func(t *testing.T, p *pair, s proto.Scheme) {
		from, to := pattern(registerLen, 1), make([]byte, registerLen)
		p.sendTag(from, to)
		before := p.a.cacheCounts("misses") + p.b.cacheCounts("misses")
		var recv *Request
		p.b.w.OnActive(1, func(m *ActiveMessage) {
			var err error
			recv, err = m.Recv(to[100:], nil)
			require.NoError(t, err)
		})
		clear(to)
		r, err := p.a.ep.SendActive(1, nil, from[:registerLen-100], nil)
		require.NoError(t, p.finish(r, err))
		require.NoError(t, p.finish(recv, nil))
		requireBytes(t, from[:registerLen-100], to[100:])
		assert.Equal(t, before, p.a.cacheCounts("misses")+p.b.cacheCounts("misses"))
	})
}

// TestRegCache_Limits: the number and the bytes of idle registrations are limited, and MAX_SIZE=0 caches nothing.
func TestRegCache_Limits(t *testing.T) {
	for _, tc := range []struct {
		name  string
		cache RCacheConfig
		most  int // registrations of a
	}{
		{"regions", RCacheConfig{MaxRegions: 2}, 2},
		{"bytes", RCacheConfig{MaxSize: 3*registerLen + 5}, 3},
		{"none", RCacheConfig{MaxSize: config.MemZero}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.most > 2 {
				testenv.SkipShort(t, "another limit of the same cache")
			}
			overRegistering(t, Config{RCache: tc.cache}, func(t *testing.T, p *pair, s proto.Scheme) {
				to := make([]byte, registerLen)
				for i := range 6 {
					p.sendTag(pattern(registerLen, i), to)
					assert.LessOrEqual(t, p.a.registrations(), tc.most)
					assert.LessOrEqual(t, p.b.registrations(), tc.most)
				}
				if s == proto.Get {
					assert.Equal(t, tc.most, p.a.registrations())
					assert.EqualValues(t, 6-tc.most, p.a.cacheCounts("evictions"))
				}
			})
		})
	}
}

// TestRegCache_Disabled: nothing is registered, and messages use another scheme.
func TestRegCache_Disabled(t *testing.T) {
	overRegistering(t, Config{RCache: RCacheConfig{Enable: config.No}}, func(t *testing.T, p *pair, _ proto.Scheme) {
		from, to := pattern(registerLen, 1), make([]byte, registerLen)
		p.sendTag(from, to)
		requireBytes(t, from, to)
		assert.Zero(t, p.a.registrations()+p.b.registrations())
	})
}

// TestRegCache_CannotRegister: messages of memory that cannot be registered use another scheme.
func TestRegCache_CannotRegister(t *testing.T) {
	for _, scheme := range tlsets.RndvSchemes {
		p, f := fakePair(t, Config{RndvScheme: scheme}, faketp.LikeRC(), faketp.LikeUD())
		p.connect()
		f.NoReg = true
		from, to := pattern(registerLen, 1), make([]byte, registerLen)
		p.sendTag(from, to)
		requireBytes(t, from, to)
		require.NoError(t, p.finish(p.a.ep.Put(from[:memLen], p.b.mem.Addr(), p.a.key, nil)))
		require.NoError(t, p.flush())
		requireBytes(t, from[:memLen], p.b.mem.Bytes())
		f.NoReg = false
	}
}

// TestRegCache_Invalidate: Invalidate removes cached registrations that are not in use. If some are in use, it returns an
// error.
func TestRegCache_Invalidate(t *testing.T) {
	overRegistering(t, Config{}, func(t *testing.T, p *pair, s proto.Scheme) {
		require.NoError(t, p.a.w.Invalidate(make([]byte, 1)), "there is none")
		from, other, to := pattern(registerLen, 1), pattern(registerLen, 2), make([]byte, registerLen)
		p.sendTag(from, to)
		p.sendTag(other, to)
		n := p.a.registrations()
		require.NoError(t, p.a.w.Invalidate(from[5:6]))
		if s == proto.Get || p.a.registersLocal() {
			assert.Equal(t, n-1, p.a.registrations())
		}
		require.NoError(t, p.a.w.Purge())
		require.NoError(t, p.b.w.Purge())
		assert.Zero(t, p.a.registrations()+p.b.registrations())
		if s != proto.Get {
			return
		}
		r, err := p.a.ep.TagSend(7, from, nil) // announced, and not received yet
		require.NoError(t, err)
		require.NotNil(t, r)
		p.until(func() bool { return p.b.w.tag.table.Unexpected() > 0 })
		assert.Equal(t, 1, p.a.registrations())
		assert.Equal(t, ucs.ErrBusy, p.a.w.Invalidate(from))
		require.NoError(t, p.finish(p.b.w.TagRecv(to, 7, exact, nil, nil)))
		require.NoError(t, p.finish(r, nil))
		requireBytes(t, from, to)
		assert.Zero(t, p.a.registrations(), "deregistered after its last use")
		require.NoError(t, p.a.w.Invalidate(from))
	})
}

// TestRegCache_FailedOperation: after an operation has failed, its key gives the peer no access.
func TestRegCache_FailedOperation(t *testing.T) {
	overRegistering(t, Config{}, func(t *testing.T, p *pair, s proto.Scheme) {
		from, to := pattern(registerLen, 1), make([]byte, registerLen)
		p.sendTag(from[:1], to[:1])
		r, err := p.a.ep.TagSend(7, from, nil)
		require.NoError(t, err)
		require.NotNil(t, r)
		p.until(func() bool { return p.b.w.tag.table.Unexpected() > 0 })
		if s == proto.Put {
			recv, err := p.b.w.TagRecv(to, 7, exact, nil, nil)
			require.NoError(t, err)
			require.NotNil(t, recv)
			assert.Equal(t, 1, p.b.registrations())
			defer func() {
				p.until(recv.Done)
				assert.Error(t, recv.take())
				assert.Zero(t, p.b.registrations())
			}()
		} else {
			assert.Equal(t, 1, p.a.registrations())
		}
		require.NoError(t, p.finish(p.a.ep.Close(CloseForce)))
		p.until(r.Done)
		assert.Error(t, r.take())
		assert.Zero(t, p.a.registrations())
	})
}

// TestRegCache_PeerAccess: a worker closes while a peer accesses memory that an operation has registered. The context
// closes after the access.
func TestRegCache_PeerAccess(t *testing.T) {
	f := faketp.New(faketp.LikeSM())
	ctx, err := NewContext(Config{RndvScheme: "get_zcopy"}, f)
	require.NoError(t, err)
	w, err := ctx.NewWorker(WorkerConfig{})
	require.NoError(t, err)
	l, err := w.registerCached(ctx.memory.Domains[0], make([]byte, 8), uct.AccessRemoteRead)
	require.NoError(t, err)
	l.release()
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
			p := newPair(t, set, Config{}).connect().warm()
			mem := p.b.memOf(t, registerLen)
			key, err := p.a.ep.Unpack(mem.Pack())
			require.NoError(t, err)
			defer key.Close()
			from, to := pattern(registerLen, 1), make([]byte, registerLen)
			move := func() {
				r, err := p.a.ep.Put(from, mem.Addr(), key, nil)
				p.end(r, err)
				p.end(p.a.ep.Flush())
				r, err = p.a.ep.Get(to, mem.Addr(), key, nil)
				p.end(r, err)
			}
			move()
			requireBytes(t, from, to)
			if p.a.registersLocal() {
				assert.Equal(t, 2, p.a.registrations(), "one for each access")
				testenv.NoAllocs(t, "put and get", move)
			} else {
				assert.Zero(t, p.a.registrations())
			}
		})
	}
}

// end waits for an operation that must succeed, without allocating.
func (p *pair) end(r *Request, err error) {
	if err != nil {
		panic(err)
	}
	for r != nil && !r.Done() {
		p.step()
	}
	if r != nil && r.take() != nil {
		panic("it has failed")
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
			p := newPair(t, tc.set, Config{}).connect()
			for _, e := range []*end{&p.a, &p.b} {
				e.w.ifaces[0].costs().RegReach = tc.reach
			}
			from, to := pattern(registerLen, 1), make([]byte, registerLen)
			p.sendTag(from, to)
			requireBytes(t, from, to)
			assert.Equal(t, tc.leased, p.a.registrations())
		})
	}
}
