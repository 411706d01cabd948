// Package mpool has pools of elements of one size that grow by chunks: Objects of
// Go values (requests, descriptors), and Buffers of memory off the heap (bounce
// buffers, headers). Both hand out a Handle, a small integer that fits a work
// request id or a ring where a pointer must not be, and that finds the element in
// constant time.
//
//	bufs, err := mpool.NewBuffers(mpool.Config{Limit: 4096}, 8192, nil)
//	…
//	h, ok := bufs.Get()
//	if !ok {
//		return uct.ErrNoResource
//	}
//	n := copy(bufs.Bytes(h), payload)
//
// A pool belongs to one goroutine. Get is a pop from a stack and Put a push: no
// lock, and no allocation but when Get has to add a chunk; Reserve does that
// beforehand. The last element put back is the next one got, as its memory is in
// the cache. Elements come back as they were put, not cleared.
//
// With -tags invariants a Put of an element that is not in use panics, and so does
// the use of one that has been put back.
package mpool
