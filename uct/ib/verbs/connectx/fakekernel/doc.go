// Package fakekernel is a kernel in software, for package connectx: a [uverbs.Kernel] with one device of the driver
// mlx5. It answers the ioctls as the kernel's driver does, and gives the queues that a process creates to the
// software HCA. So the calls, the structs and the queues of a ConnectX adapter are used with real bytes, on a
// machine without one:
//
//	rc_mlx5, ud_mlx5, rc, ud
//	mlx5       queues              the same code as on an adapter
//	connectx   ioctls
//	fakekernel handles, addresses of queues -> prm.Params
//	softhca    executes the queues
//
// It does not copy the kernel's checks of attribute masks, its limits, or the behaviour of firmware. It
// trusts the addresses that it is given, which are of its own process.
//
// # Who looks at the queues
//
// By default the device is told of stores to UAR pages, and runs in the threads that post and poll, as the software HCA
// does without this package. With Config.Silicon it is told nothing: a goroutine looks at the doorbell records in
// memory, so that the driver does what it does on an adapter. That is slower by the time between two looks.
package fakekernel
