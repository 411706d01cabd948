package match

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
)

// newRand returns a source that a test can repeat.
func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

// The masks of a message-passing library. A tag has a tag, a source and a context.
const (
	anySource = exact &^ (0xfffff << 20)
	anyTag    = exact &^ (0xffffff << 40)
	anyBoth   = anySource & anyTag
)

var mpiMasks = [...]uint64{exact, anySource, anyTag, anyBoth}

// eightMasks are as many as receives have indexes.
func eightMasks() (masks []uint64) {
	for i := range ReceiveMasks {
		masks = append(masks, exact&^(1<<i))
	}
	return masks
}

// deep is the maximum number of entries of a side. The race detector finds nothing here, and is slow.
func deep() int {
	if testenv.RaceEnabled {
		return 10_000
	}
	return 100_000
}

// depths are the numbers of entries; the cost of an operation must not depend on them.
func depths() []int { return []int{1000, deep()} }

// stepsAllowed is the permitted average number of steps of an entry, from when it is added until it is removed, with
// that many masks: for each mask one to add it to an index, up to three to move it when the index grows and shrinks,
// and three times up to one, when it is added, searched and removed, for other keys in its bucket.
func stepsAllowed(masks int) uint64 { return uint64(7 * masks) }

// uniform returns a tag that differs from the tags of other numbers in all parts.
func uniform(n int) uint64 { return uint64(n)<<40 | uint64(n&0xfffff)<<20 | 7 }

// posted makes n receives in n contexts, with alternating masks.
func posted(n int, masks ...uint64) []recv {
	list := make([]recv, n)
	for i := range list {
		list[i] = recv{Tag: uniform(i), Mask: masks[i%len(masks)], Owner: i}
	}
	return list
}

// came makes n messages.
func came(n int) []msg {
	list := make([]msg, n)
	for i := range list {
		list[i] = msg{Tag: uniform(i), Owner: i}
	}
	return list
}

// must fails the test unless ok. It is for loops that are too long for require.
func must(t *testing.T, ok bool) {
	if !ok {
		t.Helper()
		t.Fatal("wrong entry")
	}
}

// TestSteps_Receives: posting receives and matching them, in any order of arrival, needs the same number of steps for
// each, with any number of them.
func TestSteps_Receives(t *testing.T) {
	for name, masks := range map[string][]uint64{
		"exact": {exact}, "masks": {exact, anySource, anyTag}, "most": eightMasks(),
	} {
		for _, n := range depths() {
			table, list, rng := newTable(), posted(n, masks...), newRand(1)
			for i := range list {
				table.Expect(&list[i])
			}
			for _, i := range rng.Perm(n) {
				must(t, table.Arrive(uniform(i)) != nil)
			}
			require.False(t, table.Expects())
			assert.LessOrEqual(t, table.Steps()/uint64(n), stepsAllowed(len(masks)), "%s, %d", name, n)
		}
	}
}

// TestSteps_Messages: so does receiving messages with alternating masks.
func TestSteps_Messages(t *testing.T) {
	for name, masks := range map[string][]uint64{"exact": {exact}, "masks": mpiMasks[:3], "any": {exact, 0}} {
		for _, n := range depths() {
			table, list, rng := newTable(), came(n), newRand(1)
			for i := range list {
				table.Keep(&list[i])
			}
			for k, i := range rng.Perm(n) {
				mask := masks[k%len(masks)]
				m := table.Take(uniform(i), mask)
				must(t, m != nil || len(masks) > 1) // only a wildcard may have matched it
			}
			assert.LessOrEqual(t, table.Steps()/uint64(n), stepsAllowed(len(masks)), "%s, %d", name, n)
		}
	}
}

// TestSteps_NothingFits: an entry without a match costs no more among many entries, on either side, with wildcards
// among them.
func TestSteps_NothingFits(t *testing.T) {
	const tries = 1000
	n := deep()
	table, receives, messages := newTable(), posted(n, mpiMasks[:]...), came(n)
	for i := range receives {
		table.Expect(&receives[i])
		table.Keep(&messages[i])
	}
	other := func(i int) uint64 { return uniform(i) + 1 + uint64(i) } // contexts of their own
	table.Arrive(other(0))
	for _, mask := range mpiMasks {
		table.Peek(other(0), mask)
	}
	before := table.Steps()
	for i := range tries {
		must(t, table.Arrive(other(i)) == nil)
		must(t, table.Peek(other(i), mpiMasks[i%4]) == nil)
	}
	assert.LessOrEqual(t, (table.Steps()-before)/tries, stepsAllowed(1))
}

// TestSteps_SameTag: many entries of one tag are one key.
func TestSteps_SameTag(t *testing.T) {
	n := deep()
	table, list := newTable(), posted(n, exact)
	for i := range list {
		list[i].Tag = 5
		if i < scanLimit {
			list[i].Tag = 6
		}
		table.Expect(&list[i])
	}
	for i := scanLimit; i < n; i++ {
		must(t, table.Arrive(5) == &list[i])
	}
	assert.LessOrEqual(t, table.Steps()/uint64(n), stepsAllowed(1))
}

// TestSteps_Cancel: removing entries from the middle costs the same.
func TestSteps_Cancel(t *testing.T) {
	n := deep()
	table, receives, messages := newTable(), posted(n, mpiMasks[:]...), came(n)
	for i := range receives {
		table.Expect(&receives[i])
		table.Keep(&messages[i])
	}
	table.Arrive(9)
	for _, mask := range mpiMasks {
		table.Peek(9, mask)
	}
	for _, i := range newRand(2).Perm(n) {
		must(t, table.Cancel(&receives[i]))
		must(t, table.Remove(&messages[i]))
	}
	assert.LessOrEqual(t, table.Steps()/uint64(n), stepsAllowed(1+len(mpiMasks)))
	table.check(t)
}

// TestSteps_InOrder: queues that drain in the order in which they grew need no index.
func TestSteps_InOrder(t *testing.T) {
	const n = 1000
	table, receives, messages := newTable(), posted(n, mpiMasks[:]...), came(n)
	for i := range receives {
		table.Expect(&receives[i])
		table.Keep(&messages[i])
	}
	for i := range n {
		must(t, table.Arrive(uniform(i)) == &receives[i])
		must(t, table.Take(uniform(i), exact) == &messages[i])
	}
	assert.Zero(t, table.Steps())
}

// buckets returns the number of buckets of all hash tables.
func (t *Table[R, M]) buckets() (n int) {
	for i := range t.receives.indexes {
		n += len(t.receives.indexes[i].buckets)
	}
	for i := range t.messages.indexes {
		n += len(t.messages.indexes[i].buckets)
	}
	return n
}

// TestShrinks: after many entries the hash tables are small again, and no link that was not cleared keeps memory
// reachable.
func TestShrinks(t *testing.T) {
	n := deep()
	table, receives, messages := newTable(), posted(n, exact, anySource), came(n)
	for i := range receives {
		table.Expect(&receives[i])
		table.Keep(&messages[i])
	}
	require.Nil(t, table.Arrive(9))
	require.Nil(t, table.Peek(9, exact))
	require.Nil(t, table.Peek(9, anyTag))
	require.Greater(t, table.buckets(), 2*n)
	for i := range n {
		table.Cancel(&receives[n-1-i])
		table.Remove(&messages[n-1-i])
	}
	assert.LessOrEqual(t, table.buckets(), 4*leastBuckets, "two on each side")
	table.check(t)
	for i := range receives {
		r, m := &receives[i], &messages[i]
		r.order.entry, m.order.entry = nil, nil // each refers to itself
		r.order.key, m.order.key = 0, 0         // where it was
		must(t, *r == recv{Owner: i, Tag: r.Tag, Mask: r.Mask})
		must(t, *m == msg{Owner: i, Tag: m.Tag})
	}
}

// TestHash_Spreads: tags that differ only in their high, middle or low bits are spread, and so are those that collide
// in the low bits.
func TestHash_Spreads(t *testing.T) {
	const n = 1 << 14
	for _, shift := range []int{0, 7, 20, 32, 40, 50} {
		var x index[msg]
		x.mask = exact
		x.init()
		list := make([]msg, n)
		for i := range list {
			x.add(&list[i].same[0], &list[i], uint64(i)<<shift)
		}
		x.steps = 0
		for i := range n {
			must(t, x.first(uint64(i)<<shift) == &list[i])
		}
		assert.Less(t, x.steps, uint64(2*n), "shift %d, factors %#x", shift, x.factors)
	}
}

// TestHash_UsesAllBuckets: each bucket has some keys.
func TestHash_UsesAllBuckets(t *testing.T) {
	var x index[msg]
	x.init()
	for n := minBuckets; n <= 64*minBuckets; n *= 2 {
		x.resize(n)
		used := map[*queue[msg]]bool{}
		for key := range uint64(64 * n) {
			used[x.bucket(key)] = true
		}
		assert.Len(t, used, n)
	}
}

// TestHash_OddFactors: only odd factors give each number another product.
func TestHash_OddFactors(t *testing.T) {
	table := newTable()
	for i := range table.receives.indexes {
		assert.EqualValues(t, [2]uint64{1, 1}, odd(table.receives.indexes[i].factors))
	}
	for i := range table.messages.indexes {
		assert.EqualValues(t, [2]uint64{1, 1}, odd(table.messages.indexes[i].factors))
	}
}

func odd(factors [2]uint64) [2]uint64 { return [2]uint64{factors[0] & 1, factors[1] & 1} }

// TestShrinks_AtLimit: a hash table shrinks to a quarter when it has more than sparse buckets for each key, and not
// below leastBuckets.
func TestShrinks_AtLimit(t *testing.T) {
	var x index[msg]
	x.mask = exact
	x.init()
	const long = 16 * leastBuckets
	list := make([]msg, long)
	for i := range list {
		x.add(&list[i].same[0], &list[i], uint64(i))
	}
	remove := func(to int) {
		for x.keys > to {
			m := &list[x.keys-1]
			x.remove(&m.same[0])
		}
	}
	for n := long; n > leastBuckets; n /= 4 {
		remove(n / sparse)
		assert.Len(t, x.buckets, n)
		remove(n/sparse - 1)
		assert.Len(t, x.buckets, n/4)
	}
	buckets := &x.buckets[0]
	remove(0)
	assert.Same(t, buckets, &x.buckets[0], "kept")
	assert.Len(t, x.buckets, leastBuckets)
}

// TestLoop_TakesOutEach: a loop that removes each entry needs a few steps for each, with any number of them. If it
// passed the others for each, it would not complete within the time of a test.
func TestLoop_TakesOutEach(t *testing.T) {
	n := 10 * deep()
	table, receives := newTable(), make([]recv, n)
	for i := range receives {
		table.Expect(&receives[i])
	}
	i := 0
	for r := range table.Receives() {
		must(t, r == &receives[i])
		table.Cancel(r)
		i++
	}
	assert.Equal(t, n, i)
	assert.False(t, table.Expects())
}
