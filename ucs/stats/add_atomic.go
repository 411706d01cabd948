//go:build !(amd64 || arm64) || race

package stats

import "sync/atomic"

// Add adds n. The store is atomic, because this architecture may store 8 bytes in parts, or because the race detector
// would report a plain store that another goroutine reads.
func (c *Counter) Add(n uint64) { atomic.StoreUint64(&c.n, c.n+n) }
