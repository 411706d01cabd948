// Package uverbs calls the kernel's verbs ABI: the device files /dev/infiniband/uverbsN,
// without libibverbs and without cgo. The providers of kernel devices are built on it.
//
//	List          sysfs: the devices, their kernel names and drivers
//	Open          a Context: one open device file
//	Context.Call  a method of the ioctl ABI, as a list of attributes
//	Context.Invoke  a command of the older write ABI, through the ioctl
//	Command       such a command prepared once, for calls that must not allocate
//	Channel       completion events
//	NextEvent     asynchronous events
//
// Sources: include/uapi/rdma in the Linux kernel, files ib_user_verbs.h,
// ib_user_ioctl_cmds.h, rdma_user_ioctl.h and ib_user_ioctl_verbs.h. Numbers are in the byte
// order of the host unless a field says otherwise.
//
// # Memory
//
// The package passes only addresses of memory outside the Go heap to the kernel: each call
// copies its arguments to a block, and copies the reply back. Child processes do not inherit
// the blocks (MADV_DONTFORK). Go starts programs with CLONE_VM and CLONE_VFORK, which copies
// no page, so registered memory on the Go heap remains on the same physical pages, too.
//
// # Playback
//
// [Kernel] is the interface of the package to the operating system. A Recorder records the
// calls to a device as text; a Player replies to the same calls from that text.
package uverbs
