//go:build (amd64 || arm64) && !race

package stats

// Add adds n. It is a plain add: with one writer there is nothing to lock, and an
// aligned word of 8 bytes is stored whole on these architectures. Load does not
// order anything but the counter itself, so neither does Add.
func (c *Counter) Add(n uint64) { c.n += n }
