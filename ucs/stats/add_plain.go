//go:build (amd64 || arm64) && !race

package stats

// Add adds n. A plain add is sufficient, because there is only one writer and these architectures store an aligned word of
// 8 bytes in one access. Add and Load order no other memory accesses.
func (c *Counter) Add(n uint64) { c.n += n }
