package ucplayer

import (
	"os"

	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/ucp"
)

// buffer is memory for operations of this process.
type buffer struct {
	bytes []byte
	mem   *ucp.Mem // nil if the memory is not registered
}

// params returns the parameters of operations on the buffer: nil if it is not registered.
func (b *buffer) params() *ucp.OpParams {
	if b.mem == nil {
		return nil
	}
	return &ucp.OpParams{Mem: b.mem}
}

// newBuffer returns n bytes of the class of the connection.
func (c *Conn) newBuffer(n int) (buffer, error) {
	if c.cfg.Memory == layer.Plain {
		return buffer{bytes: pages(n)}, nil
	}
	m, err := c.newMem(n)
	if err != nil {
		return buffer{}, err
	}
	return buffer{m.Bytes(), m}, nil
}

// newMem returns n bytes that peers access: it registers plain memory too.
func (c *Conn) newMem(n int) (m *ucp.Mem, err error) {
	if c.cfg.Memory == layer.Allocated {
		m, err = c.ctx.MemAlloc(n)
	} else {
		m, err = c.ctx.MemMap(pages(n))
	}
	if err != nil {
		return nil, err
	}
	c.undo.Add(m.Close)
	return m, nil
}

// pages returns n bytes of the Go heap, aligned to a page as memory of transports is.
func pages(n int) []byte {
	size := os.Getpagesize()
	b := make([]byte, n+size)
	return b[offset(b, size):][:n:n]
}
