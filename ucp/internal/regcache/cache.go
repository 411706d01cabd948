package regcache

import (
	"errors"
	"io"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/invariants"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/stats"
	"github.com/gucx/gucx/uct"
)

// Registrar registers memory. M is the result that an operation needs. Any call of the cache may call the
// Registrar, except a Get that finds its entry. The Registrar must not call the cache.
type Registrar[M io.Closer] interface {
	// Register registers buf, which is not empty, with the given access. The memory must stay reachable and must
	// not move until Close of the result has returned nil; then it is deregistered. After an error Close may
	// be called again. Register returns ErrNoMemory, possibly wrapped, if it would succeed with fewer registrations.
	// A Registrar that registers with several domains must return that error even if other domains succeed.
	Register(buf []byte, access uct.Access) (M, error)
}

// Entry is registered memory that an operation uses, from Get to Put.
type Entry[M io.Closer] struct {
	Mem   M         // covers the buffer; the caller must not close it
	Cache *Cache[M] // that owns the entry

	span
	buf        []byte // keeps the memory at its address
	access     uct.Access
	users      int
	indexed    bool      // Get finds it; otherwise it is in Cache.leaving, until deregistered
	prev, next *Entry[M] // in Cache.idle, while indexed and unused
}

// Cache keeps memory registered. One goroutine at a time calls its methods.
type Cache[M io.Closer] struct {
	reg        Registrar[M]
	maxSize    uint64
	maxRegions int
	closed     bool

	indexes [uct.AccessAll + 1]index[M] // by access
	idle    idleList[M]
	leaving []*Entry[M] // no longer indexed: deregistered by the last Put, or deregistering has failed

	hits, misses, evictions stats.Counter
}

// New makes a cache with a valid cfg. The caller must close it.
func New[M io.Closer](reg Registrar[M], cfg Config) *Cache[M] {
	return &Cache[M]{reg: reg, maxSize: cfg.maxSize(), maxRegions: cfg.maxRegions()}
}

// Get returns an entry that covers buf and has exactly the given access. If there is none, it registers buf.
// Release the entry with Put. buf must not be empty and must not be on a goroutine's stack. Errors: ErrInvalidParam,
// ErrClosed, or the error of the Registrar. Before it returns ErrNoMemory, Get has deregistered all idle entries
// and tried again.
func (c *Cache[M]) Get(buf []byte, access uct.Access) (*Entry[M], error) {
	if e := c.find(buf, access); e != nil {
		return e, nil
	}
	return c.miss(buf, access)
}

// find looks up an entry like Get, and does not register. It returns nil if there is no such entry.
func (c *Cache[M]) find(buf []byte, access uct.Access) *Entry[M] {
	if access > uct.AccessAll || len(buf) == 0 {
		return nil
	}
	e := c.indexes[access].find(spanOf(buf))
	if e == nil {
		return nil
	}
	if e.users == 0 {
		c.idle.remove(e)
	}
	e.users++
	c.hits.Inc()
	return e
}

// Put releases an entry, once for each Get, when no transport accesses the buffer any more. It deregisters the least
// recently used idle entries that exceed the limits of Config.
func (c *Cache[M]) Put(e *Entry[M]) {
	if invariants.Enabled {
		invariants.Assert(e.users > 0, "a registration was put more often than gotten")
	}
	e.users--
	switch {
	case e.users > 0:
	case !e.indexed:
		_ = c.release(e) // after an error deregisterLeaving retries
	default:
		c.idle.pushFront(e)
		if e.len() > c.maxSize {
			c.evict(e) // do not evict other entries in its favour
		}
		c.trim()
	}
}

// Discard removes an entry in use from the index. Its last Put deregisters it.
func (c *Cache[M]) Discard(e *Entry[M]) {
	if e.indexed {
		c.hide(e)
	}
}

// miss implements Get for a buffer that no entry covers.
func (c *Cache[M]) miss(buf []byte, access uct.Access) (*Entry[M], error) {
	switch {
	case c.closed:
		return nil, ucs.ErrClosed
	case len(buf) == 0 || access > uct.AccessAll:
		return nil, ucs.ErrInvalidParam
	}
	c.misses.Inc()
	mem, err := c.register(buf, access)
	if err != nil {
		return nil, err
	}
	e := &Entry[M]{Mem: mem, Cache: c, span: spanOf(buf), buf: buf, access: access, users: 1, indexed: true}
	for _, old := range c.indexes[access].insert(e) {
		c.leave(old)
		if old.users == 0 {
			_ = c.release(old) // after an error deregisterLeaving retries
		}
	}
	return e, nil
}

// register registers buf. After ErrNoMemory it deregisters all idle entries and retries once.
func (c *Cache[M]) register(buf []byte, access uct.Access) (M, error) {
	mem, err := c.reg.Register(buf, access)
	if !errors.Is(err, ucs.ErrNoMemory) && !errors.Is(err, unix.ENOMEM) {
		return mem, err
	}
	unused := c.idle.count + len(c.leaving)
	_ = c.Purge() // entries that it could not deregister still count
	if c.idle.count+len(c.leaving) == unused {
		return mem, err
	}
	return c.reg.Register(buf, access)
}

// AddStats adds the counters of the cache: hits, misses and evictions.
func (c *Cache[M]) AddStats(n *stats.Node) {
	n.Add("hits", &c.hits)
	n.Add("misses", &c.misses)
	n.Add("evictions", &c.evictions)
}
