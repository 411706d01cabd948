// Package fakekernel is a kernel in software with one device of the driver mlx5, which [Kernel.Devices] lists as
// connectx.Devices lists adapters. It answers the ioctls as the kernel's driver does, and passes the queues that a
// process creates to the software HCA. So the calls, the structs and the queues of a ConnectX adapter are used with real bytes, on a
// machine without one:
//
//	rc_mlx5, ud_mlx5, rc, ud
//	mlx5       queues              the same code as on an adapter
//	connectx   ioctls
//	fakekernel handles, addresses of queues -> prm.Params
//	softhca    executes the queues
//
// It does not copy the kernel's checks of attribute masks, its limits, or the behaviour of firmware. It
// does not check addresses, which are of its own process.
//
// # Doorbells
//
// By default the driver calls the device after each store to a UAR page, and the device runs in the threads that post and
// poll, as the software HCA does without this package. With Config.Silicon the driver makes no such calls, as on an
// adapter: a goroutine polls the doorbell records. An operation takes longer then, by the interval of the polls.
package fakekernel
