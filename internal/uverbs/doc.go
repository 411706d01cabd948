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
// The kernel gets addresses only of memory off the Go heap: each call copies what it passes to
// a block of its own, and copies the reply back. The blocks are not inherited by fork
// (MADV_DONTFORK). Go starts programs with CLONE_VM and CLONE_VFORK, which copies no page, so
// memory on the Go heap that is registered stays where the device sees it, too.
//
// # Playback
//
// [Kernel] is everything that the package asks of the operating system. A Recorder writes down
// the calls of a device as text; a Player replies to the same calls from that text.
package uverbs
