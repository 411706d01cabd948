package match

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// failer is a testing.T or a rapid.T.
type failer interface {
	require.TestingT
	Helper()
}

var _ failer = (*testing.T)(nil)

// inOrder checks a list and returns its links.
func inOrder[E any](t failer, q *queue[E]) (links []*link[E]) {
	t.Helper()
	for l := q.head; l != nil; l = l.next {
		if len(links) > 0 {
			require.Same(t, links[len(links)-1], l.prev)
		}
		require.NotNil(t, l.entry)
		links = append(links, l)
	}
	if len(links) > 0 {
		require.Same(t, links[len(links)-1], q.head.prev)
	}
	return links
}

// checkIndex checks a hash table and returns the number of its entries.
func checkIndex[E any](t failer, x *index[E], seq func(*E) uint64) (entries int) {
	t.Helper()
	keys := map[uint64]bool{}
	for i := range x.buckets {
		for q := &x.buckets[i]; q.head != nil; q = &q.head.rest {
			key, last := q.head.key, uint64(0)
			require.False(t, keys[key], "key %#x is there twice", key)
			keys[key] = true
			require.Same(t, &x.buckets[i], x.bucket(key))
			for _, l := range inOrder(t, q) {
				require.Equal(t, key, l.key)
				require.Greater(t, seq(l.entry), last)
				require.True(t, l == q.head || l.rest.head == nil)
				last = seq(l.entry)
				entries++
			}
		}
	}
	require.Len(t, keys, x.keys)
	require.LessOrEqual(t, x.keys, len(x.buckets))
	require.Zero(t, len(x.buckets)&(len(x.buckets)-1))
	require.True(t, len(x.buckets) <= leastBuckets || x.keys*sparse >= len(x.buckets), "%d keys in %d", x.keys, len(x.buckets))
	return entries
}

// check checks the invariants of a table between calls.
func (t *Table[R, M]) check(f failer) {
	f.Helper()
	t.receives.check(f)
	t.messages.check(f)
}

func (s *receives[R]) check(t failer) {
	t.Helper()
	links, filed, last := inOrder(t, &s.order), 0, uint64(0)
	for _, l := range links {
		r := l.entry
		require.Greater(t, r.Seq(), last)
		last = r.Seq()
		require.Equal(t, last <= s.indexed, r.same.prev != nil)
		if r.same.prev != nil {
			filed++
		}
		if r.index != nil {
			require.Equal(t, r.Mask, r.index.mask)
			require.Equal(t, r.Tag&r.Mask, r.same.key)
			require.Same(t, r, r.same.entry)
		}
	}
	require.LessOrEqual(t, last, s.seq)
	found := len(inOrder(t, &s.unindexed))
	for i := range s.indexes {
		n := checkIndex(t, &s.indexes[i], (*Recv[R]).Seq)
		require.True(t, i < s.used || n == 0)
		found += n
	}
	require.Equal(t, filed, found)
}

func (s *messages[M]) check(t failer) {
	t.Helper()
	links, last := inOrder(t, &s.order), uint64(0)
	require.Len(t, links, s.count)
	var filed [MessageMasks]int
	for _, l := range links {
		m := l.entry
		require.Greater(t, l.key, last)
		last = l.key
		for i := range s.indexes {
			x, in := &s.indexes[i], m.indexed&(1<<i) != 0
			require.Equal(t, last <= x.indexed, in)
			require.Equal(t, in, m.same[i].prev != nil)
			if in {
				filed[i]++
				require.Equal(t, m.Tag&x.mask, m.same[i].key)
				require.Same(t, m, m.same[i].entry)
			}
		}
	}
	require.LessOrEqual(t, last, s.seq)
	for i := range s.indexes {
		require.Equal(t, filed[i], checkIndex(t, &s.indexes[i].index, func(m *Msg[M]) uint64 { return m.order.key }))
	}
}
