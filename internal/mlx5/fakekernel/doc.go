// Package fakekernel is a kernel in software with one device of driver mlx5. [Kernel.Devices] returns the device, as
// connectx.Devices returns adapters. The kernel replies to ioctls like the driver, and passes the queues that a process
// creates to the software HCA. So tests on a machine without a ConnectX adapter use its calls, structs and queues with
// real bytes:
//
//	rc_mlx5, ud_mlx5, rc, ud
//	mlx5       queues              the same code as on an adapter
//	connectx   ioctls
//	fakekernel handles, addresses of queues -> prm.Params
//	softhca    executes the queues
//
// The package implements neither the kernel's checks of attribute masks and its limits, nor the behavior of firmware. It
// does not check addresses, which are in its own process.
//
// # Doorbells
//
// By default the driver calls the device after each store to a UAR page, and the device runs in the threads that post and
// poll, as the software HCA does without this package. With Config.Silicon the driver makes no such calls, as on an
// adapter: a goroutine polls the doorbell records. The polling interval adds to the latency of an operation.
package fakekernel
