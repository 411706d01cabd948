// Package queue writes and reads mlx5 queues without the verbs library, as the accelerated
// verbs of UCX do: the caller owns the data path of a QP and of a CQ, and knows that the QP can
// send, that one goroutine uses it and that the ring has room.
//
// It is a package of its own because perftest instructions counts it as the layer averbs.
package queue
