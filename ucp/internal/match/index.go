package match

import (
	"math/bits"
	"math/rand/v2"
)

const (
	// minBuckets is the initial length of the hash table of an index.
	minBuckets = 16
	// leastBuckets is the minimum length to which a hash table shrinks. These 8 KiB are not freed, so that
	// queues that fill and drain again and again do not allocate.
	leastBuckets = 1024
	// sparse is the number of buckets for each key at which a hash table shrinks to a quarter. It then has
	// two buckets for each key, so that it neither grows nor shrinks again soon.
	sparse = 8
)

// index finds entries by their tags under one mask. Each entry has a link. Entries
// with the same key form a queue; the queues of a bucket are chained by their first links.
type index[E any] struct {
	mask    uint64
	factors [2]uint64  // of the hash: random and odd
	shift   uint       // 64 minus log2 of the number of buckets
	buckets []queue[E] // a power of two of them, or none
	keys    int        // different keys
	steps   uint64     // queues that searches passed, and queues moved
}

// init chooses random factors.
func (x *index[E]) init() {
	for i := range x.factors {
		x.factors[i] = rand.Uint64() | 1
	}
}

// bucket returns the first queue of the key's bucket. There must be buckets.
//
// The last step, the high bits of a product with a random odd number, is universal: any two numbers
// are in the same bucket with a probability of at most two divided by the number of
// buckets. That step alone collides often, for a few factors, if numbers have equal distances, as
// tags often have. So the two halves of a first product are folded and mixed before.
func (x *index[E]) bucket(key uint64) *queue[E] {
	high, low := bits.Mul64(key, x.factors[0])
	key = high ^ low
	key ^= key >> 32
	return &x.buckets[key*x.factors[1]>>(x.shift&63)]
}

// queue returns the queue of the key, or the empty queue for a new one. There must be buckets.
func (x *index[E]) queue(key uint64) *queue[E] {
	q := x.bucket(key)
	for q.head != nil && q.head.key != key {
		q = &q.head.rest
		x.steps++
	}
	return q
}

// first returns the earliest entry whose tag under the mask is the given one, or nil.
func (x *index[E]) first(tag uint64) *E {
	if x.keys == 0 {
		return nil
	}
	if l := x.queue(tag & x.mask).head; l != nil {
		return l.entry
	}
	return nil
}

// add appends an entry by a link that is in no queue.
func (x *index[E]) add(l *link[E], e *E, tag uint64) {
	if x.keys == len(x.buckets) {
		x.resize(max(minBuckets, 2*len(x.buckets)))
	}
	l.entry, l.key = e, tag&x.mask
	q := x.queue(l.key)
	if q.head == nil {
		x.keys++
	}
	q.push(l)
}

// remove removes an entry by its link, which must be in the index.
func (x *index[E]) remove(l *link[E]) {
	q := x.queue(l.key)
	rest := q.head.rest
	q.remove(l)
	*l = link[E]{}
	if q.head != nil {
		q.head.rest = rest
		return
	}
	*q = rest
	x.keys--
	if len(x.buckets) > leastBuckets && x.keys*sparse < len(x.buckets) {
		x.resize(max(leastBuckets, len(x.buckets)/4))
	}
}

// resize moves all queues to a new hash table of n buckets, a power of two.
func (x *index[E]) resize(n int) {
	old := x.buckets
	x.buckets = make([]queue[E], n)
	x.shift = uint(bits.LeadingZeros64(uint64(n)) + 1)
	for _, q := range old {
		for q.head != nil {
			rest := q.head.rest
			to := x.bucket(q.head.key)
			q.head.rest = *to
			*to = q
			q = rest
			x.steps++
		}
	}
}

// reset empties the index and gives it another mask. The caller clears the links.
func (x *index[E]) reset(mask uint64) {
	x.mask, x.keys = mask, 0
	if len(x.buckets) > leastBuckets {
		x.buckets = nil
	}
	clear(x.buckets)
}
