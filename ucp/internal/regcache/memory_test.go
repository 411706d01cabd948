package regcache

import (
	"bytes"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	uatomic "go.uber.org/atomic"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucp/internal/region"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/all"
)

// block is the length of the memory that a test registers: one object.
const block = 64 << 10

// eachDomain runs a test over each memory domain that registers memory.
func eachDomain(t *testing.T, test func(t *testing.T, md uct.MD)) {
	tested := 0
	for _, comp := range all.Components() {
		mds, err := comp.MDs()
		require.NoError(t, err)
		for _, res := range mds {
			md, err := comp.OpenMD(res.Name)
			require.NoError(t, err)
			if md.Ext().Reg != nil {
				tested++
				t.Run(res.Name, func(t *testing.T) { test(t, md) })
			}
			require.NoError(t, md.Close())
		}
	}
	assert.GreaterOrEqual(t, tested, 3, "sm, a device of ib, self")
}

// domain is a Registrar over one memory domain.
type domain struct{ uct.MD }

func (d domain) Register(buf []byte, access uct.Access) (uct.Mem, error) {
	return d.Ext().Reg.Reg(buf, access)
}

// useNew gets and puts a block that nothing else keeps, full of fill.
//
//go:noinline
func useNew(t *testing.T, c *Cache[uct.Mem], fill byte) {
	buf := bytes.Repeat([]byte{fill}, block)
	e, err := c.Get(buf, uct.AccessAll)
	require.NoError(t, err)
	registered := e.Mem.Bytes()
	require.Len(t, registered, block)
	buf[7] = ^fill
	require.Equal(t, ^fill, registered[7], "the registered memory is another one")
	buf[7] = fill
	c.Put(e)
}

// checkIdle checks that the contents of idle memory have not changed.
func checkIdle(t *testing.T, c *Cache[uct.Mem]) {
	for e := c.idle.front; e != nil; e = e.next {
		mem := e.Mem.Bytes()
		require.Equal(t, block, bytes.Count(mem, mem[:1]), "another object has the memory")
	}
}

// litter allocates garbage in the size of blocks, which reuses collected memory.
func litter(n int) {
	for range n {
		garbage = bytes.Repeat([]byte{1, 2}, block/2)
	}
	garbage = nil
}

var garbage []byte

// TestCache_DomainsUnderCollection: memory of the heap that only the cache refers to does not change, while its
// addresses are registered, freed and registered again.
func TestCache_DomainsUnderCollection(t *testing.T) {
	eachDomain(t, func(t *testing.T, md uct.MD) {
		c := New(domain{md}, Config{MaxRegions: 4})
		for round := range 48 {
			useNew(t, c, byte(round))
			litter(2)
			if round%8 == 7 {
				runtime.GC()
				litter(8)
				checkIdle(t, c)
			}
		}
		require.Equal(t, 4, c.idle.count)
		require.NoError(t, c.Close())
	})
}

// getNew gets and puts a block that nothing else keeps, and tells when it was collected.
//
//go:noinline
func getNew(t *testing.T, c *Cache[uct.Mem]) *uatomic.Bool {
	buf := make([]byte, block)
	collected := uatomic.NewBool(false)
	runtime.AddCleanup(&buf[0], func(b *uatomic.Bool) { b.Store(true) }, collected)
	e, err := c.Get(buf, uct.AccessAll)
	require.NoError(t, err)
	c.Put(e)
	return collected
}

// TestCache_IdleMemoryIsKeptUntilDeregistered: over each domain.
func TestCache_IdleMemoryIsKeptUntilDeregistered(t *testing.T) {
	eachDomain(t, func(t *testing.T, md uct.MD) {
		c := New(domain{md}, Config{})
		collected := getNew(t, c)
		for range 3 {
			runtime.GC()
		}
		require.False(t, collected.Load())
		require.NoError(t, c.Purge())
		testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
			runtime.GC()
			return collected.Load()
		})
		require.NoError(t, c.Close())
	})
}

// bare registers like d, and does not keep memory reachable itself.
type bare struct{ d *device }

func (b bare) Register(buf []byte, access uct.Access) (uct.Mem, error) {
	r, err := b.d.Register(buf, access)
	return bareMem{Mem: nil, r: r}, err
}

type bareMem struct {
	uct.Mem
	r *piece
}

func (m bareMem) Close() error { return m.r.Close() }

// TestCache_DeregistersReachableMemory: the cache keeps memory reachable until it is deregistered, also if the Registrar
// does not.
func TestCache_DeregistersReachableMemory(t *testing.T) {
	dev := &device{}
	c := New[uct.Mem](bare{dev}, Config{MaxRegions: 1})
	collected := getNew(t, c)
	deregistered := 0
	dev.closed = func(*piece) {
		for range 3 {
			runtime.GC()
		}
		deregistered++
		assert.False(t, collected.Load(), "the address may be another object's")
	}
	next := getNew(t, c)
	require.Equal(t, 1, deregistered)
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
		runtime.GC()
		return collected.Load()
	})
	collected = next
	require.NoError(t, c.Close())
	require.Equal(t, 2, deregistered)
}

// TestCache_OfAllDomains: a region.Set is a Registrar.
func TestCache_OfAllDomains(t *testing.T) {
	var set region.Set
	for _, comp := range all.Components() {
		mds, err := comp.MDs()
		require.NoError(t, err)
		for _, res := range mds {
			md, err := comp.OpenMD(res.Name)
			require.NoError(t, err)
			set.Add(md)
		}
	}
	c := New(&set, Config{})
	buf := make([]byte, block)
	e, err := c.Get(buf, uct.AccessRemoteRead)
	require.NoError(t, err)
	for _, d := range set.Domains {
		if d.Attr.NeedMemH {
			require.NotNil(t, e.Mem.In(d), d.Attr.Name)
			assert.Equal(t, &buf[0], &e.Mem.In(d).Bytes()[0])
		}
	}
	again, err := c.Get(buf[100:200], uct.AccessRemoteRead)
	require.NoError(t, err)
	assert.Same(t, e, again)
	c.Put(again)
	c.Put(e)
	require.Equal(t, 1, set.Len())
	require.NoError(t, c.Close())
	require.Zero(t, set.Len())
	require.NoError(t, set.Close())
}
