// Package adapter implements [prm.Hardware] for package connectx: it creates the objects of the kernel's driver mlx5 with
// calls of package uverbs. The caller passes the kernel: package connectx the system's, package fakekernel its own.
//
// A test compares its calls with those of libmlx5 (testdata).
//
// Sources: mlx5-abi.h, mlx5_user_ioctl_cmds.h and mlx5_user_ioctl_verbs.h of include/uapi/rdma in the Linux
// kernel. Calls of the ioctl ABI need [uverbs.MinKernel].
package adapter
