// Package softhca has a software host channel adapter: a device whose queues have the format of mlx5
// hardware, and whose work requests the CPU executes. It needs no hardware and no driver.
//
// It checks what hardware checks: QP states, protection domains, keys, bounds, access rights,
// opcodes and lengths. Work requests of a QP take effect and complete in order. On a fault the device moves the QPs
// of both sides to ERR, each with its syndrome, and flushes them.
//
// On [FabricLoop] a device reaches only its own QPs. On [FabricShm] processes of one user on one host reach
// each other; [Config.AllowUIDs] permits other users. A peer reaches only memory that is registered with access
// for peers. It may write anything to the rings that it shares with the device, which checks all that it reads there.
//
// If a peer dies or closes its device, each QP that is connected to it goes to ERR with RETRY_EXC on its
// oldest work request.
package softhca
