package softhca

import (
	"fmt"
	"sync"

	"github.com/gucx/gucx/ucs"
)

// uarPool allocates the numbers of the UAR pages of a device, which all its contexts in this process
// share. Any goroutine may use it.
type uarPool struct {
	limit uint32

	mu   sync.Mutex
	next uint32   // smaller numbers have been used
	free []uint32 // those of them that are free
}

// UAR pages of a ConnectX-4. The kernel reserves some of them; the others have 16336 micro-UARs.
const (
	deviceUARs   = 8192
	reservedUARs = 24
)

func (p *uarPool) get() (uint32, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 {
		page := p.free[n-1]
		p.free = p.free[:n-1]
		return page, nil
	}
	if p.next == p.limit {
		return 0, fmt.Errorf("all %d UAR pages of the device are in use: %w", p.limit, ucs.ErrNoMemory)
	}
	p.next++
	return p.next - 1, nil
}

func (p *uarPool) put(page uint32) {
	p.mu.Lock()
	p.free = append(p.free, page)
	p.mu.Unlock()
}
