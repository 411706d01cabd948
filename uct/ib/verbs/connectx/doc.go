// Package connectx drives ConnectX adapters, and other devices of the kernel's driver mlx5: no libibverbs, no
// libmlx5, no cgo. Package internal/mlx5/provider makes the verbs objects, and rc_mlx5, ud_mlx5 and xrc_mlx5 write
// their queues without verbs calls.
//
//	process                              kernel, driver mlx5
//	queues, doorbell records   ioctl ->  pins them, creates the object in the adapter
//	UAR page                   mmap  ->  maps a page of the adapter's BAR
//	post: WQE, record, UAR     no system call
//	poll: CQE                  no system call
//
// It has never run on an adapter: none was at hand. Its calls are compared with those that libmlx5 makes, and it runs
// over a kernel in software whose device is the software HCA (package fakekernel). docs/hardware.md lists what only an
// adapter can decide, and the command that tests one. It needs Linux 5.14 or later.
//
// # Memory
//
// The kernel pins queues and doorbell records when an object is created, and the adapter uses their addresses
// until it is destroyed. Package internal/mlx5/provider allocates them off the Go heap, and a child made by fork
// does not get them (MADV_DONTFORK). Registered memory on the Go heap is pinned for Go until it is deregistered.
//
// # What is not there
//
// Only dynamic UAR pages: kernels that assign registers to QPs themselves are refused. No scatter of short
// messages to CQEs, no compressed CQEs, no on-demand paging, no DEVX.
package connectx
