// Package threads measures operations of ucp that several goroutines post and wait for at
// once, in two processes: each with a worker of its own, with one worker under a lock of the
// program, or with one ucp.SharedWorker. Goroutine i of one process talks to goroutine i of
// the other; those that share a worker share its EP.
package threads
