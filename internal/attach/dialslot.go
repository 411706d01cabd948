package attach

import (
	"context"
	"sync"
	"time"
)

const (
	// maxDials is how many dials of this process are under way at a time. Each takes up to 9 descriptors of
	// this process, of which one is left when its link is not the first one to the peer's process and has not
	// moved to another connection yet, and none later.
	maxDials = 64

	// dialPatience is after how long another dial begins though this one has not ended: the peer may be
	// stopped. Such a dial has one descriptor.
	dialPatience = 300 * time.Millisecond
)

// dialSlots has an element for each dial under way.
var dialSlots = make(chan struct{}, maxDials)

// takeDialSlot waits until another dial may begin. Errors: as Dial.
func (p *Port) takeDialSlot(ctx context.Context) (release func(), err error) {
	select {
	case dialSlots <- struct{}{}:
	case <-ctx.Done():
		return nil, p.dialError(ctx, ctx.Err())
	case <-p.ctx.Done():
		return nil, p.dialError(ctx, p.ctx.Err())
	}
	free := sync.OnceFunc(func() { <-dialSlots })
	late := time.AfterFunc(dialPatience, free)
	return func() { late.Stop(); free() }, nil
}
