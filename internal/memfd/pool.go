package memfd

import (
	"errors"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// Pool creates segments of one length for use within this process, without descriptors. Up to maxParts segments are parts of
// one mapping, because the number of mappings of a process is limited. Methods may be called from any goroutine.
type Pool struct {
	name string
	size int // of a segment, in bytes

	mu   sync.Mutex
	open []*chunk // with free parts
	used int      // parts in use, of all chunks
}

// chunk is a mapping and its parts. Its fields are under Pool.mu.
type chunk struct {
	seg   *Segment
	parts int
	free  []int // indexes of the free parts, whose bytes are 0
}

// part is the memory of a segment of a Pool and of its clones.
type part struct {
	pool  *Pool
	chunk *chunk
	index int
	users int // segments; under Pool.mu
}

// maxParts is the largest number of segments in one mapping. A mapping has at most as many as are in use already, so that
// a process with few segments needs little address space.
const maxParts = 64

// NewPool returns a pool of segments of size bytes, a multiple of the page size. name appears in /proc/<pid>/maps.
func NewPool(name string, size int) *Pool { return &Pool{name: name, size: size} }

// Create returns a zeroed segment. Errors: those of the function Create.
func (p *Pool) Create() (*Segment, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.open) == 0 {
		c, err := p.newChunk()
		if err != nil {
			return nil, err
		}
		p.open = append(p.open, c)
	}
	c := p.open[len(p.open)-1]
	i := c.free[len(c.free)-1]
	if c.free = c.free[:len(c.free)-1]; len(c.free) == 0 {
		p.open = p.open[:len(p.open)-1]
	}
	p.used++
	return &Segment{mem: p.bytes(c, i), fd: -1, part: &part{pool: p, chunk: c, index: i, users: 1}}, nil
}

// newChunk maps as many parts as are in use, or one if there is no room for more.
func (p *Pool) newChunk() (*chunk, error) {
	n := min(max(p.used, 1), maxParts)
	seg, err := Create(p.name, n*p.size, PeersWrite)
	if err != nil && n > 1 {
		n = 1
		seg, err = Create(p.name, p.size, PeersWrite)
	}
	if err != nil {
		return nil, err
	}
	if err := seg.DropFD(); err != nil {
		return nil, errors.Join(err, seg.Close())
	}
	c := &chunk{seg: seg, parts: n}
	for i := n - 1; i >= 0; i-- {
		c.free = append(c.free, i)
	}
	return c, nil
}

func (p *Pool) bytes(c *chunk, i int) []byte {
	return c.seg.mem[i*p.size : (i+1)*p.size : (i+1)*p.size]
}

// clone adds a user.
func (t *part) clone() *part {
	t.pool.mu.Lock()
	defer t.pool.mu.Unlock()
	t.users++
	return t
}

// release removes a user. Without users, the memory of the part is freed; without parts in use, the chunk is unmapped.
func (t *part) release() error {
	p, c := t.pool, t.chunk
	p.mu.Lock()
	t.users--
	inUse := t.users > 0
	p.mu.Unlock()
	if inUse {
		return nil
	}
	mem := p.bytes(c, t.index)
	if unix.Madvise(mem, unix.MADV_REMOVE) != nil {
		clear(mem)
	}
	p.mu.Lock()
	p.used--
	c.free = append(c.free, t.index)
	switch len(c.free) {
	case c.parts:
		p.open = slices.DeleteFunc(p.open, func(x *chunk) bool { return x == c })
		p.mu.Unlock()
		return c.seg.Close()
	case 1:
		p.open = append(p.open, c)
	}
	p.mu.Unlock()
	return nil
}
