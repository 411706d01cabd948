// Package adapter is the [prm.Hardware] of package connectx: it creates the objects of the kernel's driver mlx5 by the
// calls of package uverbs. Its callers pass the kernel: package connectx that of the system, package fakekernel itself.
//
// Its calls are compared with those that libmlx5 makes (testdata).
//
// Sources: mlx5-abi.h, mlx5_user_ioctl_cmds.h and mlx5_user_ioctl_verbs.h of include/uapi/rdma in the Linux
// kernel. Calls of the ioctl ABI need [uverbs.MinKernel].
package adapter
