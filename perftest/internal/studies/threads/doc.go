// Package threads measures operations of ucp that several goroutines post and wait for
// concurrently, in two processes: each goroutine with a worker of its own, all with one worker
// under a lock of the program, or all with one ucp.SharedWorker. Goroutine i of one process
// communicates with goroutine i of the other; goroutines that share a worker share its EP.
package threads
