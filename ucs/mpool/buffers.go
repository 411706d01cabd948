package mpool

import (
	"errors"

	"github.com/gucx/gucx/internal/invariants"
	"github.com/gucx/gucx/internal/offheap"
)

// Memory is one chunk of a Buffers pool: at least as many bytes as were asked for,
// aligned to elementAlign. A source may return a type of its own, with the
// registration of the memory say, and find it by Buffers.Chunk.
type Memory interface {
	Bytes() []byte
	Free() error
}

// Source makes a chunk of n bytes. It is called by the goroutine of the pool.
type Source func(n int) (Memory, error)

// elementAlign is the alignment of each buffer: a cache line of amd64, and what
// the queues of devices are aligned to.
const elementAlign = 64

// maxElementLen bounds a buffer, so that the length of a chunk does not overflow.
const maxElementLen = 1 << 30

// Buffers is a pool of pieces of memory of one length. Make it with NewBuffers.
type Buffers struct {
	freeList
	chunks []Memory
	bytes  [][]byte // of the chunks
	length int      // of a buffer
	stride int      // between buffers
	source Source
}

// ErrLength says that the length of the elements is out of range.
var ErrLength = errors.New("length of pool elements is out of range")

// NewBuffers returns an empty pool of buffers of n bytes, 1 to 1<<30, each aligned
// to 64; the first Get or Reserve adds a chunk. With a nil source the memory is off
// the heap and private to the process.
func NewBuffers(c Config, n int, source Source) (*Buffers, error) {
	if n < 1 || n > maxElementLen {
		return nil, ErrLength
	}
	if source == nil {
		source = func(n int) (Memory, error) { return offheap.Alloc(n) }
	}
	stride := (n + elementAlign - 1) &^ (elementAlign - 1)
	return &Buffers{freeList: newFreeList(c), length: n, stride: stride, source: source}, nil
}

// Get takes a buffer; its bytes are zero, or as they were put back. ok is false
// when the pool is at its limit or there is no memory; Err says which.
func (p *Buffers) Get() (h Handle, ok bool) {
	if h, ok = p.pop(); ok {
		return h, true
	}
	if !p.grow() {
		return 0, false
	}
	return p.pop()
}

// Bytes is the memory of a handle that is in use, until Put. Its capacity is its
// length.
func (p *Buffers) Bytes(h Handle) []byte {
	if invariants.Enabled {
		p.mustBeUsed(h)
	}
	chunk, index := p.place(h)
	off := index * p.stride
	return p.bytes[chunk][off : off+p.length : off+p.length]
}

// Chunk is the memory that holds the buffer, as its source returned it.
func (p *Buffers) Chunk(h Handle) Memory {
	chunk, _ := p.place(h)
	return p.chunks[chunk]
}

// Len is the length of a buffer.
func (p *Buffers) Len() int { return p.length }

// Put gives a buffer back. No device may still read or write it.
func (p *Buffers) Put(h Handle) { p.push(h) }

// Reserve adds chunks until n more buffers can be got without a call of the
// source. The error is ErrLimit, or the source's.
func (p *Buffers) Reserve(n int) error {
	for len(p.free) < n {
		if !p.grow() {
			return p.growth
		}
	}
	return nil
}

// Close frees all memory. The error joins those of the memory, and says how many
// buffers are still in use; the pool is closed even so, and Get returns none.
func (p *Buffers) Close() error {
	errs := []error{p.close()}
	for _, c := range p.chunks {
		errs = append(errs, c.Free())
	}
	p.chunks, p.bytes = nil, nil
	return errors.Join(errs...)
}

// grow adds a chunk.
func (p *Buffers) grow() bool {
	if p.growth = p.canGrow(); p.growth != nil {
		return false
	}
	m, err := p.source(p.stride << p.shift)
	if err != nil {
		p.growth = err
		return false
	}
	p.chunks = append(p.chunks, m)
	p.bytes = append(p.bytes, m.Bytes())
	p.addChunk()
	return true
}
