package msgrate

import "github.com/gucx/gucx/perftest/internal/measure/pattern"

// cacheLine is the distance of data on separate cache lines, on amd64 and most of arm64.
const cacheLine = 64

// memory is the payloads, and behind them a slot for what each thread writes when
// its QP is connected to itself:
//
//	0          payloads, by thread / Buf: a cache line or more each, or packed
//	landing    slots by thread, with untouched bytes between
type memory struct {
	all     []byte
	landing int
	stride  int // of payloads
	place   int // of slots
	buf     int
	threads int
	size    int
}

func layout(cfg Config) memory {
	line := (cfg.Size + cacheLine - 1) / cacheLine * cacheLine
	m := memory{stride: line, place: line + cacheLine, buf: cfg.Buf, threads: cfg.Threads, size: cfg.Size}
	if cfg.Packed {
		m.stride = cfg.Size
	}
	bufs := (cfg.Threads + cfg.Buf - 1) / cfg.Buf
	m.landing = (bufs*m.stride + cacheLine - 1) / cacheLine * cacheLine
	m.all = aligned(m.landing + m.landingLen())
	return m
}

// aligned returns heap memory that begins at a page: the allocator aligns allocations of a page or
// more.
func aligned(n int) []byte {
	const page = 4096
	return make([]byte, (n+page-1)/page*page)[:n]
}

// payload returns the offset of the payload of thread t.
func (m *memory) payload(t int) int { return t / m.buf * m.stride }

// slot returns the offset of the destination of thread t from the start of the landing.
func (m *memory) slot(t int) int { return t * m.place }

func (m *memory) landingLen() int { return m.threads * m.place }

// fill changes the bytes of each payload.
func (m *memory) fill(round uint64) {
	for t := 0; t < m.threads; t += m.buf {
		pattern.Fill(m.all[m.payload(t):][:m.size], round<<16|uint64(t))
	}
}
