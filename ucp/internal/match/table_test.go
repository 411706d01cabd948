package match

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/invariants"
	"github.com/gucx/gucx/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// Example: a receive waits for a message, another message for a receive.
func Example() {
	var table Table[string, string]
	table.Init()

	table.Expect(&Recv[string]{Owner: "any tag of 7", Tag: 7, Mask: 0xff})
	fmt.Println(table.Arrive(0x107).Owner)

	if table.Arrive(0x108) == nil {
		table.Keep(&Msg[string]{Owner: "message of 8", Tag: 0x108})
	}
	fmt.Println(table.Take(8, 0xff).Owner)
	// Output:
	// any tag of 7
	// message of 8
}

// TestOrder: the earliest entry matches, also before one with a more exact mask.
func TestOrder(t *testing.T) {
	table := newTable()
	wild, sharp := &recv{}, &recv{Tag: 5, Mask: exact}
	table.Expect(wild)
	table.Expect(sharp)
	assert.Same(t, wild, table.Arrive(5))
	assert.Same(t, sharp, table.Arrive(5))
	assert.Nil(t, table.Arrive(5))

	first, second := &msg{Tag: 6}, &msg{Tag: 5}
	table.Keep(first)
	table.Keep(second)
	assert.Same(t, first, table.Peek(5, 0))
	assert.Same(t, second, table.Take(5, exact))
	assert.Same(t, first, table.Take(5, 0))
	assert.Nil(t, table.Take(5, 0))
}

// TestReceives_MoreMasksThanIndexes: receives with further masks are found in order, and an empty index is reused for
// the next mask.
func TestReceives_MoreMasksThanIndexes(t *testing.T) {
	const masks = 3 * ReceiveMasks
	table := newTable()
	list := make([]recv, masks)
	for i := range list {
		list[i] = recv{Tag: math.MaxUint64, Mask: 1<<i | 1<<40}
		table.Expect(&list[i])
	}
	require.Nil(t, table.Arrive(0))
	table.check(t)
	assert.Equal(t, ReceiveMasks, table.receives.used)
	for i := masks - 1; i >= 0; i-- {
		require.Same(t, &list[i], table.Arrive(1<<i|1<<40))
		table.check(t)
	}
	require.Nil(t, table.receives.unindexed.head)
	for i := masks - ReceiveMasks; i < masks; i++ {
		table.Expect(&list[i])
	}
	require.Nil(t, table.Arrive(0))
	assert.Nil(t, table.receives.unindexed.head, "each has an index")
}

// kept returns a table of messages, none of which is found at the front.
func kept(n int) (*table, []msg) {
	table, list := newTable(), came(n)
	for i := range list {
		table.Keep(&list[i])
	}
	return table, list
}

// TestMessages_MoreMasksThanIndexes: if masks alternate, those with an index keep it, and the others search one by one.
// An idle mask loses its index.
func TestMessages_MoreMasksThanIndexes(t *testing.T) {
	const n = 100
	table, list := kept(n)
	mask := func(i int) uint64 { return exact &^ (1 << i) }
	look := func(i int) { require.Same(t, &list[n-1], table.Peek(uniform(n-1), mask(i))) }
	for range 2 * idleSearches {
		for i := range MessageMasks {
			look(i)
		}
		look(MessageMasks)
	}
	for i := range MessageMasks {
		assert.Equal(t, mask(i), table.messages.indexes[i].mask)
	}
	for range 2 * idleSearches {
		for i := 1; i <= MessageMasks; i++ {
			look(i)
		}
	}
	assert.Equal(t, mask(MessageMasks), table.messages.indexes[0].mask, "the idle index was reused")
	table.check(t)
	before := table.Steps()
	look(MessageMasks)
	assert.Less(t, table.Steps()-before, uint64(n/2), "found by its index")
}

// TestMessages_TakeOverOfALargeIndex: when a large index is reused, its hash table is freed.
func TestMessages_TakeOverOfALargeIndex(t *testing.T) {
	table, list := kept(10 * leastBuckets)
	mask := func(i int) uint64 { return exact &^ (1 << i) }
	for i := range MessageMasks {
		table.Peek(9, mask(i))
	}
	for range idleSearches {
		table.Peek(9, mask(0))
	}
	x := &table.messages.indexes[1]
	require.Greater(t, len(x.buckets), leastBuckets)
	require.Nil(t, table.Peek(9, 0xff))
	require.Equal(t, uint64(0xff), x.mask)
	assert.Len(t, x.buckets, minBuckets, "all have one key")
	for i := range list {
		must(t, table.Remove(&list[i]))
	}
	table.check(t)
}

// TestCancel_Twice: a removed entry is not removed again.
func TestCancel_Twice(t *testing.T) {
	table, r, m := newTable(), &recv{Tag: 1, Mask: exact}, &msg{Tag: 2}
	assert.False(t, table.Cancel(r))
	assert.False(t, table.Remove(m))
	table.Expect(r)
	table.Keep(m)
	assert.True(t, table.Cancel(r))
	assert.True(t, table.Remove(m))
	assert.False(t, table.Cancel(r))
	assert.False(t, table.Remove(m))
	assert.False(t, table.Expects())
	assert.Zero(t, table.Unexpected())
	assert.Nil(t, table.Arrive(1))
	assert.Nil(t, table.Peek(2, exact))
}

// TestAdded_Twice: with invariants, adding a record that is in the table panics.
func TestAdded_Twice(t *testing.T) {
	if !invariants.Enabled {
		t.Skip("built without -tags invariants")
	}
	table, r, m := newTable(), &recv{}, &msg{}
	table.Expect(r)
	table.Keep(m)
	assert.Panics(t, func() { table.Expect(r) })
	assert.Panics(t, func() { table.Keep(m) })
}

// TestMessages_LoopTakesOut: a loop may remove and add messages. It sees those that were in the table before and still
// are.
func TestMessages_LoopTakesOut(t *testing.T) {
	for name, tc := range map[string]struct {
		out  func(i int) []int // messages to remove when i is seen
		want []int
	}{
		"none":           {func(int) []int { return nil }, []int{0, 1, 2, 3, 4, 5}},
		"itself":         {func(i int) []int { return []int{i} }, []int{0, 1, 2, 3, 4, 5}},
		"the next":       {func(i int) []int { return []int{i + 1} }, []int{0, 2, 4}},
		"both":           {func(i int) []int { return []int{i, i + 1} }, []int{0, 2, 4}},
		"those before":   {func(i int) []int { return []int{i - 1} }, []int{0, 1, 2, 3, 4, 5}},
		"the last":       {func(i int) []int { return []int{5 - i} }, []int{0, 1, 2}},
		"all, backwards": {func(int) []int { return []int{5, 4, 3, 2, 1, 0} }, []int{0}},
	} {
		table, list := kept(6)
		var seen []int
		for m := range table.Messages() {
			seen = append(seen, m.Owner)
			for _, i := range tc.out(m.Owner) {
				if i >= 0 && i < len(list) {
					table.Remove(&list[i])
				}
			}
			table.Keep(&msg{Owner: -1})
		}
		assert.Equal(t, tc.want, seen, name)
		table.check(t)
	}
}

// TestReceives_LoopEnds: a loop ends at a break, and after the receives that were in the table at its beginning, also
// if each is posted again.
func TestReceives_LoopEnds(t *testing.T) {
	table, list := newTable(), posted(5, exact)
	assert.Empty(t, slices.Collect(table.Receives()))
	for i := range list {
		table.Expect(&list[i])
	}
	for r := range table.Receives() {
		assert.Zero(t, r.Owner)
		break
	}
	var seen []int
	for r := range table.Receives() {
		seen = append(seen, r.Owner)
		require.True(t, table.Cancel(r))
		table.Expect(r)
	}
	assert.Equal(t, []int{0, 1, 2, 3, 4}, seen)
	table.check(t)
}

// TestFront_WithoutSearch: the first entries of a side are compared one by one, without an index.
func TestFront_WithoutSearch(t *testing.T) {
	table := newTable()
	receives, messages := make([]recv, scanLimit+1), make([]msg, scanLimit+1)
	for i := range receives {
		receives[i], messages[i] = recv{Tag: uint64(i), Mask: exact}, msg{Tag: uint64(i)}
		table.Expect(&receives[i])
		table.Keep(&messages[i])
	}
	for i := range scanLimit {
		require.Same(t, &receives[i], table.Find(uint64(i)))
		require.Same(t, &messages[i], table.Peek(uint64(i), exact))
	}
	assert.Zero(t, table.receives.indexed)
	assert.Zero(t, table.messages.searches)
	assert.Zero(t, table.Steps())
	require.Same(t, &receives[scanLimit], table.Find(scanLimit))
	require.Same(t, &messages[scanLimit], table.Peek(scanLimit, exact))
	assert.EqualValues(t, scanLimit+1, table.receives.indexed)
	assert.EqualValues(t, 1, table.messages.searches)
}

// TestAfter: After returns the earliest receive behind a number, with any receives removed.
func TestAfter(t *testing.T) {
	table, list := newTable(), posted(10, exact)
	assert.Nil(t, table.After(0))
	for i := range list {
		table.Expect(&list[i])
	}
	for _, gone := range []int{3, 0, 9, 4, 5} {
		require.True(t, table.Cancel(&list[gone]))
		for seq := range uint64(len(list) + 2) {
			var want *recv
			for r := range table.Receives() {
				if r.Seq() > seq {
					want = r
					break
				}
			}
			require.Same(t, want, table.After(seq), "behind %d", seq)
		}
	}
	assert.True(t, table.Pending(&list[1], 2))
	assert.False(t, table.Pending(&list[1], 1))
	assert.False(t, table.Pending(&list[0], 1))
}

// TestSteps_AreCounted: adding an entry to an index counts as a step, and so does moving it when the hash table grows.
func TestSteps_AreCounted(t *testing.T) {
	const n = minBuckets + 1
	const least = n + minBuckets
	table, receives, messages := newTable(), posted(n, exact), came(n)
	for i := range receives {
		table.Expect(&receives[i])
	}
	require.Nil(t, table.Find(exact))
	got := table.Steps()
	assert.GreaterOrEqual(t, got, uint64(least))
	for i := range messages {
		table.Keep(&messages[i])
	}
	require.Nil(t, table.Peek(exact, exact))
	assert.GreaterOrEqual(t, table.Steps()-got, uint64(least))
}

// TestSteps_AreCounted_Each: each entry that is compared beyond the first few counts, and so does each queue of a
// bucket that a search passes.
func TestSteps_AreCounted_Each(t *testing.T) {
	steps := func(table *table, call func()) uint64 {
		before := table.Steps()
		call()
		return table.Steps() - before
	}
	const n = minBuckets
	t.Run("bucket", func(t *testing.T) {
		x := index[msg]{mask: exact, factors: [2]uint64{1, 0}} // all keys are in one bucket
		list := make([]msg, n)
		for i := range list {
			before := x.steps
			x.add(&list[i].same[0], &list[i], uint64(i))
			assert.EqualValues(t, i, x.steps-before)
		}
		for i := range list {
			before := x.steps
			require.Same(t, &list[i], x.first(uint64(i)))
			assert.EqualValues(t, i, x.steps-before)
		}
	})
	t.Run("messages", func(t *testing.T) {
		table, _ := kept(n)
		for i := range table.messages.indexes {
			table.messages.indexes[i].factors = [2]uint64{} // all keys are in one bucket
		}
		for i := range MessageMasks {
			want := uint64(n) + n*(n-1)/2 + n // added, behind the others, and searched
			assert.Equal(t, want, steps(table, func() { require.Nil(t, table.Peek(9, exact&^(1<<i))) }))
		}
		const scanned = n - scanLimit
		assert.EqualValues(t, scanned, steps(table, func() { require.Nil(t, table.Peek(9, exact&^(1<<MessageMasks))) }))
		for range idleSearches {
			table.Peek(9, exact)
		}
		assert.EqualValues(t, 2*n+1, steps(table, func() { require.Nil(t, table.Peek(9, 0xff)) }), "taken over, and all have one key, that is passed")
	})
	t.Run("receives", func(t *testing.T) {
		const masks = ReceiveMasks + 3
		table, list := newTable(), make([]recv, masks)
		for i := range list {
			list[i] = recv{Tag: exact, Mask: 1<<i | 1<<40}
			table.Expect(&list[i])
		}
		for i := range table.receives.indexes {
			table.receives.indexes[i].factors = [2]uint64{}
		}
		assert.EqualValues(t, 2*masks, steps(table, func() { require.Nil(t, table.Arrive(0)) }), "put in, and passed or searched")
		assert.EqualValues(t, masks, steps(table, func() { require.Nil(t, table.Arrive(0)) }))
	})
}

// TestIdleSearches: a mask keeps its index for idleSearches searches of others, and no longer.
func TestIdleSearches(t *testing.T) {
	for searches, kept0 := range map[int]bool{idleSearches - 2: true, idleSearches - 1: false} {
		table, _ := kept(10)
		mask := func(i int) uint64 { return exact &^ (1 << i) }
		for i := range MessageMasks {
			table.Peek(9, mask(i))
		}
		for i := range searches - (MessageMasks - 1) {
			table.Peek(9, mask(1+i%(MessageMasks-1)))
		}
		table.Peek(9, mask(MessageMasks))
		assert.Equal(t, kept0, table.messages.indexes[0].mask == mask(0), "%d searches", searches)
		table.check(t)
	}
}

// TestReady: the first receive is ready for a message that it matches, until it is in an index.
func TestReady(t *testing.T) {
	table := newTable()
	list := posted(scanLimit+1, exact)
	for i := range list {
		table.Expect(&list[i])
	}
	require.Same(t, &list[0], table.First())
	assert.True(t, list[0].Ready(list[0].Tag))
	assert.False(t, list[0].Ready(list[1].Tag))
	require.Nil(t, table.Find(9))
	assert.False(t, list[0].Ready(list[0].Tag), "it is in an index")
	require.Same(t, &list[0], table.Arrive(list[0].Tag))
}
