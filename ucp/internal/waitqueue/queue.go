// Package waitqueue has the queue of operations of an EP that wait, for a lane, for credit or
// behind a fence.
package waitqueue

import "slices"

// Queue is operations that wait, in order. Pop and PutBack take the same time with a thousand
// operations as with one.
//
// A pass starts all operations again, one after the other. An operation that has to wait again is
// deferred: EndPass puts it before the operations that the pass has not reached, and before those
// that were added during the pass.
//
// The zero value is an empty queue. One goroutine at a time may use it.
type Queue[T comparable] struct {
	list []T
	head int // of list; the elements before it are zero

	passing  bool
	deferred []T
	ordered  int // of deferred: those that were deferred as ordered
}

// Empty reports that nothing waits. q may be nil.
func (q *Queue[T]) Empty() bool { return q == nil || q.PassDone() && len(q.deferred) == 0 }

// PassDone reports that no operation is left but deferred ones.
func (q *Queue[T]) PassDone() bool { return q.head == len(q.list) }

// First returns the operation that Pop would return. There must be one.
func (q *Queue[T]) First() T { return q.list[q.head] }

// Pending returns the operations that are not deferred, in order. The slice is the queue's, and valid
// until the queue changes.
func (q *Queue[T]) Pending() []T { return q.list[q.head:] }

// Add puts an operation behind the others.
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

// PutBack puts the operation that Pop has returned last before the others.
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

// Passing reports that a pass has begun and not ended.
func (q *Queue[T]) Passing() bool { return q.passing }

// Defer puts an operation that Pop has returned during a pass behind the other deferred ones.
func (q *Queue[T]) Defer(r T, ordered bool) {
	q.deferred = append(q.deferred, r)
	if ordered {
		q.ordered++
	}
}

// Deferred returns the deferred operations, in order. The slice is the queue's, and valid until the
// queue changes.
func (q *Queue[T]) Deferred() []T { return q.deferred }

// DeferredOrdered is the number of deferred operations that are ordered.
func (q *Queue[T]) DeferredOrdered() int { return q.ordered }

// EndPass ends a pass after PassDone: the deferred operations are the queue.
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

// TakeAll empties the queue and returns what was in it, in order. A pass goes on.
func (q *Queue[T]) TakeAll() []T {
	list := slices.Concat(q.deferred, q.Pending())
	q.Replace(nil)
	return list
}

// Replace makes the operations of a list the whole queue, which keeps the list. A pass goes on.
func (q *Queue[T]) Replace(list []T) { *q = Queue[T]{list: list, passing: q.passing} }
