// Package waitqueue has the queue of the operations of an EP that cannot be posted yet: they wait for a lane, for credit or
// for a fence.
package waitqueue

import "slices"

// Queue is the queue of waiting operations, in order. Pop and PutBack take constant time.
//
// In a pass the caller pops all operations, one after the other, including those that were added during the pass, and
// starts them again. It defers an operation that must wait again. After the pass the deferred operations are the queue, in
// the order in which they were deferred.
//
// The zero value is an empty queue. One goroutine at a time may use it.
type Queue[T comparable] struct {
	list []T
	head int // of list; the elements before it are zero

	passing  bool
	deferred []T
	ordered  int // number of elements of deferred that were deferred with ordered set
}

// Empty reports whether no operation waits. q may be nil.
func (q *Queue[T]) Empty() bool { return q == nil || q.PassDone() && len(q.deferred) == 0 }

// PassDone reports whether all operations are deferred: the pass has popped all others.
func (q *Queue[T]) PassDone() bool { return q.head == len(q.list) }

// First returns the operation that Pop would return. There must be one.
func (q *Queue[T]) First() T { return q.list[q.head] }

// Pending returns the operations that are not deferred, in order. The slice belongs to the queue. It is valid until the
// queue changes.
func (q *Queue[T]) Pending() []T { return q.list[q.head:] }

// Add appends an operation.
func (q *Queue[T]) Add(r T) {
	if len(q.list) == cap(q.list) && 2*q.head > len(q.list) {
		n := copy(q.list, q.list[q.head:])
		clear(q.list[n:])
		q.list, q.head = q.list[:n], 0
	}
	q.list = append(q.list, r)
}

// Pop removes the first operation that is not deferred, and returns it. There must be one.
func (q *Queue[T]) Pop() T {
	var zero T
	r := q.list[q.head]
	q.list[q.head] = zero
	if q.head++; q.PassDone() {
		q.list, q.head = q.list[:0], 0
	}
	return r
}

// PutBack inserts r at the front of the queue. r must be the operation that the latest Pop has returned.
func (q *Queue[T]) PutBack(r T) {
	if q.head == 0 {
		q.list = slices.Insert(q.list, 0, r)
		return
	}
	q.head--
	q.list[q.head] = r
}

// BeginPass begins a pass. The caller pops operations until PassDone, and defers those that wait again.
func (q *Queue[T]) BeginPass() { q.passing = true }

// Passing reports whether a pass is in progress.
func (q *Queue[T]) Passing() bool { return q.passing }

// Defer appends r to the deferred operations. Pop must have returned r during this pass. ordered means that
// DeferredOrdered counts it.
func (q *Queue[T]) Defer(r T, ordered bool) {
	q.deferred = append(q.deferred, r)
	if ordered {
		q.ordered++
	}
}

// Deferred returns the deferred operations, in order. The slice belongs to the queue. It is valid until the queue changes.
func (q *Queue[T]) Deferred() []T { return q.deferred }

// DeferredOrdered returns the number of operations that were deferred with ordered set.
func (q *Queue[T]) DeferredOrdered() int { return q.ordered }

// EndPass ends a pass, when PassDone returns true. The deferred operations become the queue.
func (q *Queue[T]) EndPass() {
	if len(q.deferred) > 0 {
		q.list, q.head, q.deferred = q.deferred, 0, q.list[:0]
	}
	q.passing, q.ordered = false, 0
}

// Remove removes an operation, and reports whether it was in the queue. ordered is as in Defer.
func (q *Queue[T]) Remove(r T, ordered bool) bool {
	if i := slices.Index(q.deferred, r); i >= 0 {
		q.deferred = slices.Delete(q.deferred, i, i+1)
		if ordered {
			q.ordered--
		}
		return true
	}
	i := slices.Index(q.Pending(), r)
	if i >= 0 {
		q.list = slices.Delete(q.list, q.head+i, q.head+i+1)
	}
	return i >= 0
}

// All yields all operations, in order: deferred ones first. The queue must not change meanwhile.
func (q *Queue[T]) All(yield func(T) bool) {
	for _, list := range [...][]T{q.deferred, q.Pending()} {
		for _, r := range list {
			if !yield(r) {
				return
			}
		}
	}
}

// TakeAll removes all operations and returns them, in order. A pass in progress continues.
func (q *Queue[T]) TakeAll() []T {
	list := slices.Concat(q.deferred, q.Pending())
	q.Replace(nil)
	return list
}

// Replace replaces all operations, deferred ones too, by list, which then belongs to the queue. A pass in progress
// continues.
func (q *Queue[T]) Replace(list []T) { *q = Queue[T]{list: list, passing: q.passing} }
