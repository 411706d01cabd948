package match

import (
	"testing"

	"github.com/gucx/gucx/internal/testenv"
)

// TestAllocs: nothing allocates, neither while queues remain long, nor while they grow and shrink within the minimum
// size of hash tables. The first run warms up.
func TestAllocs(t *testing.T) {
	const n = leastBuckets
	table, receives, messages := newTable(), posted(n, mpiMasks[:]...), came(n)
	alone, single := &recv{Tag: 9, Mask: exact}, &msg{Tag: 9}
	for name, run := range map[string]func(){
		"one receive": func() {
			table.Expect(alone)
			table.Arrive(9)
		},
		"one message": func() {
			table.Keep(single)
			table.Take(9, exact)
		},
		"receives, filled and drained": func() {
			for i := range receives {
				table.Expect(&receives[i])
			}
			for i := range receives {
				table.Arrive(receives[n-1-i].Tag)
			}
			for r := range table.Receives() {
				table.Cancel(r)
			}
		},
		"messages, filled and drained": func() {
			for i := range messages {
				table.Keep(&messages[i])
			}
			for i := range messages {
				table.Take(messages[n-1-i].Tag, mpiMasks[i%4])
			}
			for m := range table.Messages() {
				table.Remove(m)
			}
		},
	} {
		run()
		testenv.NoAllocs(t, name, run)
	}
}

// TestAllocs_Long: so it is with queues far above that size, which remain long.
func TestAllocs_Long(t *testing.T) {
	const n = 20 * leastBuckets
	table, receives, messages := newTable(), posted(n, mpiMasks[:3]...), came(n)
	for i := range receives {
		table.Expect(&receives[i])
		table.Keep(&messages[i])
	}
	i := 0
	turn := func() {
		i = (i + n/2 + 1) % n
		if r := table.Arrive(uniform(i)); r != nil {
			table.Expect(r)
		}
		if m := table.Take(uniform(i), mpiMasks[i%3]); m != nil {
			table.Keep(m)
		}
	}
	for range 4 {
		turn()
	}
	testenv.NoAllocs(t, "long queues", turn)
}
