//go:build !(amd64 || arm64) || race

package stats

import "sync/atomic"

// Add adds n. It is atomic where a word of 8 bytes may be stored in parts, and for
// the race detector, which rightly does not know of a plain add that is read
// elsewhere.
func (c *Counter) Add(n uint64) { atomic.StoreUint64(&c.n, c.n+n) }
