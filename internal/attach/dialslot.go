package attach

import (
	"context"
	"sync"
	"time"
)

const (
	// maxDials is how many dials of this process are under way at a time. A dial ends when its link has moved to
	// an older connection, or is the first one. Until then it takes up to 9 descriptors if both ends are in this
	// process: two sockets, the link segment, and three that come with the message to either side.
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
