package ucp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/roles"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
)

func init() { roles.Register("storm", stormRole) }

const (
	stormClients = 4
	stormSlots   = 32       // one is used by one client after another, rarely
	stormSlot    = 24 << 10 // bytes of each client in each region
	stormGuard   = 64       // bytes before, between and after slots, which no client writes
	stormRegions = 4        // the first one stays open, others close at random
	stormStride  = stormSlot + stormGuard
	stormLen     = stormSlots*stormStride + stormGuard
	guardByte    = 0xC3
)

// TestStorm: clients of one server are killed during puts and gets, and the server closes memory meanwhile. Clients
// read what they have written. No client writes outside of its slots, or to closed memory. In the end the server has no
// more resources than after the first few clients.
func TestStorm(t *testing.T) {
	for _, tls := range []string{"sm", `\rc`, "tcp", "all"} {
		t.Run(tls, func(t *testing.T) {
			if tls == "all" {
				testenv.SkipSweep(t, "as over sm")
			}
			s := startStorm(t, tls)
			kills := testenv.Rounds(10, 1000)
			warm := min(kills/2, 50)
			s.run(t, warm)
			before := footprintOf(t, s.shared)
			before.eps = 0
			s.run(t, kills-warm)
			now := requireNoGrowth(t, s.shared, before)
			t.Logf("%d kills, %d regions closed, %d times in use at first; after %d kills %+v, in the end %+v",
				kills, s.closed, s.inUse, warm, before, now)
		})
	}
}

// storm is a server, its regions and its clients.
type storm struct {
	*longServer
	rng       *rand.Rand
	regions   []*stormRegion
	closedMem [][]byte // registered memory after its region has closed
	clients   []*roles.Child
	slot      int // of the next client
	closed    int // regions
	inUse     int // regions that could not be closed at once
}

// stormRegion is memory that clients access.
type stormRegion struct {
	mem *ucp.Mem
	own []byte // memory of the caller; nil if the context has allocated it
}

func startStorm(t *testing.T, tls string) *storm {
	s := &storm{longServer: startServer(t, tls, 8), rng: rand.New(rand.NewPCG(7, 7))}
	for i := range stormRegions {
		s.regions = append(s.regions, s.newRegion(t, i))
	}
	t.Cleanup(func() {
		for _, c := range s.clients {
			c.Kill(t)
		}
		for _, r := range s.regions {
			s.close(t, r)
		}
	})
	return s
}

// newRegion makes region i, of either type, with guard bytes.
func (s *storm) newRegion(t *testing.T, i int) *stormRegion {
	r := &stormRegion{}
	var err error
	if i%2 == 1 {
		r.own = make([]byte, stormLen)
		r.mem, err = s.ctx.MemMap(r.own)
	} else {
		r.mem, err = s.ctx.MemAlloc(stormLen)
	}
	require.NoError(t, err)
	b := r.mem.Bytes()
	for at := 0; at < len(b); at += stormStride {
		testenv.Fill(b[at:at+stormGuard], guardByte)
	}
	return r
}

// check finds bytes that were written outside of the slots.
func (s *storm) check(t *testing.T) {
	guard := bytes.Repeat([]byte{guardByte}, stormGuard)
	for k, r := range s.regions {
		b := r.mem.Bytes()
		for at := 0; at < len(b); at += stormStride {
			require.Equal(t, guard, b[at:at+stormGuard], "guard at %d of region %d", at, k)
		}
	}
	for _, b := range s.closedMem {
		require.Len(t, b, bytes.Count(b, []byte{tlsets.ClosedByte}), "written after it has closed")
	}
}

// run runs clients and kills them all.
func (s *storm) run(t *testing.T, kills int) {
	for len(s.clients) < stormClients {
		s.clients = append(s.clients, s.newClient(t))
	}
	for k := range kills {
		i := s.rng.IntN(len(s.clients))
		victim := s.clients[i]
		victim.Send(t, "status")
		require.Equal(t, "ok", victim.Line(t))
		if s.rng.IntN(3) == 0 {
			s.replace(t, 1+s.rng.IntN(stormRegions-1))
		}
		victim.Kill(t)
		s.clients[i] = s.newClient(t)
		if k%8 == 0 {
			s.check(t)
		}
	}
	for _, c := range s.clients {
		c.Kill(t)
	}
	s.clients = nil
	s.check(t)
	s.closedMem = nil
}

func (s *storm) newClient(t *testing.T) *roles.Child {
	words := make([]string, len(s.regions))
	for i, r := range s.regions {
		words[i] = ucppair.Remote{Addr: s.w.Address(), Key: r.mem.Pack()}.String()
	}
	slot := s.slot
	s.slot = (s.slot + 1) % stormSlots
	return roles.New(t, "storm", s.tls, slot, strings.Join(words, ";"))
}

// replace closes a region while clients use it, and makes another one.
func (s *storm) replace(t *testing.T, i int) {
	s.close(t, s.regions[i])
	s.regions[i] = s.newRegion(t, i)
}

// close closes a region. Then it fills memory of the caller with a pattern, which no client may change.
func (s *storm) close(t *testing.T, r *stormRegion) {
	err := r.mem.Close()
	for inUse := (*ucs.InUseError)(nil); errors.As(err, &inUse); err = r.mem.Close() {
		s.inUse++
	}
	assert.NoError(t, err)
	s.closed++
	if r.own != nil {
		testenv.Fill(r.own, tlsets.ClosedByte)
		s.closedMem = append(s.closedMem, r.own)
	}
}

// stormRole is a client. Its arguments are transports, its slot, and the regions.
func stormRole(c *roles.Side) error {
	slot, err := strconv.Atoi(c.Args[1])
	if err != nil {
		return err
	}
	x := &stormClient{at: uint64(slot*stormStride + stormGuard), rng: rand.New(rand.NewPCG(uint64(slot), 1))}
	if err := x.open(c.Args[0], strings.Split(c.Args[2], ";")); err != nil {
		return err
	}
	asked := make(chan struct{}, 1)
	go func() {
		for c.NextLine() {
			asked <- struct{}{}
		}
		close(asked)
	}()
	for {
		if err := x.turn(); err != nil {
			return err
		}
		select {
		case _, ok := <-asked:
			if !ok {
				return nil // the parent has ended
			}
			c.Printf("ok")
		default:
		}
	}
}

// stormClient writes and reads its slot in each region that is open.
type stormClient struct {
	rng   *rand.Rand
	w     *ucp.Worker
	ep    *ucp.EP
	local *ucp.Mem
	at    uint64
	views []*stormView
}

// stormView is the slot of a client in one region.
type stormView struct {
	remote ucppair.Remote
	key    *ucp.RKey
	want   []byte // nil: not written yet
}

func (x *stormClient) open(tls string, regions []string) error {
	ctx, err := ucppair.OpenContext(tls)
	if err != nil {
		return err
	}
	if x.w, err = ctx.NewWorker(ucp.WorkerConfig{}); err != nil {
		return err
	}
	if x.local, err = ctx.MemAlloc(stormSlot); err != nil {
		return err
	}
	for _, s := range regions {
		remote, err := ucppair.ParseRemote(s)
		if err != nil {
			return err
		}
		x.views = append(x.views, &stormView{remote: remote})
	}
	return x.connect()
}

// connect makes a new EP, with the keys of the regions that are open.
func (x *stormClient) connect() (err error) {
	if x.ep, err = x.w.NewEP(x.views[0].remote.Addr, ucp.EPConfig{}); err != nil {
		return err
	}
	for _, v := range x.views {
		if v.key, err = x.ep.Unpack(v.remote.Key); err != nil {
			return err
		}
	}
	return nil
}

// turn writes or reads in a region. A rejected region has closed. The first region may fail too, if an earlier
// rejection has failed the EP.
func (x *stormClient) turn() error {
	i := x.rng.IntN(len(x.views))
	v := x.views[i]
	err := x.use(v)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errCorrupt), i == 0 && x.ep.Err() == nil, i == 0 && !errors.Is(err, ucs.ErrRemoteAccess):
		return err
	case i == 0:
		v.want = nil
	default:
		x.views = append(x.views[:i], x.views[i+1:]...)
		v.key.Close()
	}
	if x.ep.Err() == nil {
		return nil
	}
	return x.reconnect()
}

// reconnect replaces an EP that has failed.
func (x *stormClient) reconnect() error {
	for _, v := range x.views {
		v.key.Close()
	}
	if err := x.ep.CloseWait(context.Background(), ucp.CloseForce); err != nil {
		return err
	}
	return x.connect()
}

var errCorrupt = errors.New("not what was written")

// use writes a part of the slot, all of it at first, and reads it.
func (x *stormClient) use(v *stormView) error {
	ctx, from, n := context.Background(), 0, stormSlot
	if v.want == nil {
		v.want = make([]byte, stormSlot)
	} else {
		from = x.rng.IntN(stormSlot)
		n = 1 + x.rng.IntN(stormSlot-from)
	}
	var p *ucp.OpParams
	if x.rng.IntN(2) == 0 {
		p = &ucp.OpParams{Mem: x.local}
	}
	buf := x.local.Bytes()[:n]
	copy(buf, testenv.Pattern(n, x.rng.IntN(256)))
	copy(v.want[from:], buf)
	raddr := v.key.Addr() + x.at
	if err := x.ep.PutWait(ctx, buf, raddr+uint64(from), v.key, p); err != nil {
		return err
	}
	if err := x.ep.FlushWait(ctx); err != nil {
		return err
	}
	got := x.local.Bytes()
	if err := x.ep.GetWait(ctx, got, raddr, v.key, p); err != nil {
		return err
	}
	if !bytes.Equal(got, v.want) {
		return fmt.Errorf("slot at %d: %w", x.at, errCorrupt)
	}
	return nil
}
