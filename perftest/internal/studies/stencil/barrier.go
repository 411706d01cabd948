package stencil

import "github.com/gucx/gucx/perftest/internal/studies/steps"

// barrier blocks the threads of a rank until all have arrived. Any goroutine may call it.
type barrier struct {
	threads    int64
	arrived    steps.Shared
	generation steps.Shared
}

// arrive returns the generation whose end the caller must wait for.
func (b *barrier) arrive() int64 {
	g := b.generation.Load()
	if b.arrived.Add(1) == b.threads {
		b.arrived.Add(-b.threads)
		b.generation.Add(1)
	}
	return g
}

func (b *barrier) passed(g int64) bool { return b.generation.Load() != g }
