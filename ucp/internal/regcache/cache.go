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

// Registrar registers memory; M is what an operation needs of that. It may be called
// within any call of the cache but a Get that finds its entry, and calls none itself.
type Registrar[M io.Closer] interface {
	// Register registers buf, which is not empty, with the rights of access, and keeps it
	// reachable and unmoved until Close of the result has returned nil: it is then
	// registered no more. After an error Close may be called again. ErrNoMemory, also
	// wrapped, says that it would go if less were registered; where several domains
	// register together, one that says so must not be passed over in silence.
	Register(buf []byte, access uct.Access) (M, error)
}

// Entry is registered memory that an operation uses, from Get to Put.
type Entry[M io.Closer] struct {
	Mem   M         // covers the buffer; not to be closed
	Cache *Cache[M] // that it is of

	span
	buf        []byte // keeps the memory at its address
	access     uct.Access
	users      int
	indexed    bool      // Get finds it; otherwise it is in Cache.leaving, until deregistered
	prev, next *Entry[M] // in Cache.idle, while indexed and not used
}

// Cache keeps memory registered. One goroutine at a time calls its methods.
type Cache[M io.Closer] struct {
	reg        Registrar[M]
	maxSize    uint64
	maxRegions int
	closed     bool

	indexes [uct.AccessAll + 1]index[M] // by rights
	idle    idleList[M]
	leaving []*Entry[M] // found no more: the last Put deregisters them, or it did not succeed

	hits, misses, evictions stats.Counter
}

// New makes a cache; cfg is valid. It must be closed.
func New[M io.Closer](reg Registrar[M], cfg Config) *Cache[M] {
	return &Cache[M]{reg: reg, maxSize: cfg.maxSize(), maxRegions: cfg.maxRegions()}
}

// Get returns an entry that covers buf and has the rights of access, no more and no less,
// registering buf if there is none. Give it back with Put. buf must not be empty nor lie on
// a goroutine's stack. ErrInvalidParam, ErrClosed, or the error of the Registrar: after
// ErrNoMemory it has been tried twice, the second time with nothing idle registered.
func (c *Cache[M]) Get(buf []byte, access uct.Access) (*Entry[M], error) {
	if e := c.find(buf, access); e != nil {
		return e, nil
	}
	return c.miss(buf, access)
}

// find is Get that registers nothing: nil if there is no such entry.
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

// Put gives an entry back, once for each Get: no transport has the buffer any more. What is
// idle beyond the bounds of Config is deregistered, the least recently used first.
func (c *Cache[M]) Put(e *Entry[M]) {
	if invariants.Enabled {
		invariants.Assert(e.users > 0, "a registration was put more often than gotten")
	}
	e.users--
	switch {
	case e.users > 0:
	case !e.indexed:
		_ = c.release(e) // settle tries again
	default:
		c.idle.pushFront(e)
		if e.len() > c.maxSize {
			c.evict(e) // and not the others in its favour
		}
		c.trim()
	}
}

// Discard has an entry that is in use be found no more; its last Put deregisters it.
func (c *Cache[M]) Discard(e *Entry[M]) {
	if e.indexed {
		c.hide(e)
	}
}

// miss is Get where nothing was found.
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
			_ = c.release(old) // settle tries again
		}
	}
	return e, nil
}

// register has the Registrar register buf, once more with nothing idle if it lacks room.
func (c *Cache[M]) register(buf []byte, access uct.Access) (M, error) {
	mem, err := c.reg.Register(buf, access)
	if !errors.Is(err, ucs.ErrNoMemory) && !errors.Is(err, unix.ENOMEM) {
		return mem, err
	}
	unused := c.idle.count + len(c.leaving)
	_ = c.Purge() // what it could not deregister is still counted
	if c.idle.count+len(c.leaving) == unused {
		return mem, err
	}
	return c.reg.Register(buf, access)
}

// AddStats adds the counters of the cache: what was found, what was registered or was to be,
// and what was deregistered because of the bounds.
func (c *Cache[M]) AddStats(n *stats.Node) {
	n.Add("hits", &c.hits)
	n.Add("misses", &c.misses)
	n.Add("evictions", &c.evictions)
}
