// Package queue writes and reads mlx5 queues without the verbs library, as the accelerated verbs of
// UCX do. The caller must ensure that the QP is in RTS, that only one goroutine uses it, and that
// the ring has room.
//
// It is a package of its own because perftest instructions counts its instructions as those of the
// layer averbs.
package queue
