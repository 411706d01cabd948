// Package connectx drives ConnectX adapters, and other devices of the kernel's driver mlx5, through package
// uverbs: no libibverbs, no libmlx5, no cgo. It is a [prm.Hardware]: package mlx5 makes the verbs objects of it,
// and rc_mlx5, ud_mlx5 and xrc_mlx5 write its queues without verbs calls.
//
//	process                              kernel, driver mlx5
//	queues, doorbell records   ioctl ->  pins them, creates the object in the adapter
//	UAR page                   mmap  ->  maps a page of the adapter's BAR
//	post: WQE, record, UAR     no system call
//	poll: CQE                  no system call
//
// It has never run on an adapter: none was at hand. Its calls are compared with those that libmlx5 makes
// (testdata), and it runs over a kernel in software whose device is the software HCA (package
// fakekernel). docs/hardware.md lists what only an adapter can decide, and the command that tests one.
//
// Sources: mlx5-abi.h, mlx5_user_ioctl_cmds.h and mlx5_user_ioctl_verbs.h of include/uapi/rdma in the Linux
// kernel. Calls of the ioctl ABI need [uverbs.MinKernel].
//
// # Memory
//
// The kernel pins queues and doorbell records when an object is created, and the adapter uses their addresses
// until it is destroyed. Package mlx5 allocates them off the Go heap, and a child made by fork does not get them
// (MADV_DONTFORK). Registered memory on the Go heap is pinned for Go until it is deregistered.
//
// # What is not there
//
// Only dynamic UAR pages: kernels that assign registers to QPs themselves are refused. No scatter of short
// messages to CQEs, no compressed CQEs, no on-demand paging, no DEVX.
package connectx
