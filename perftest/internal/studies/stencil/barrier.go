package stencil

import "github.com/gucx/gucx/perftest/internal/studies/steps"

// barrier lets the threads of a rank go on when all have arrived. Any goroutine.
type barrier struct {
	threads    int64
	arrived    steps.Shared
	generation steps.Shared
}

// arrive returns the generation to wait for the end of.
func (b *barrier) arrive() int64 {
	g := b.generation.Load()
	if b.arrived.Add(1) == b.threads {
		b.arrived.Add(-b.threads)
		b.generation.Add(1)
	}
	return g
}

func (b *barrier) passed(g int64) bool { return b.generation.Load() != g }
