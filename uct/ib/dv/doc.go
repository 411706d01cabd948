// Package dv has the transports that drive mlx5 queues directly: rc_mlx5,
// ud_mlx5 and xrc_mlx5. They speak what rc, ud and xrc speak, from the same cores (rccore,
// udcore, xrccore), and differ in posting and polling only: no post or poll of verbs is called. What
// verbs does per call, to serve every opcode, number of work requests, QP state and
// thread, is not needed here: the core knows that there is room, that the QP can
// send and that one goroutine owns it.
//
//	EP       sendQueue: has WQEs written by a prm.SendRing; the doorbell record, the register
//	Iface    compQueue: reads CQEs; prm.RecvList or prm.RecvRing: posts receives
//	         register: which BlueFlame buffer of the thread domain is next
//	         with xrc_mlx5: xrcSend and xrcRecv, of initiators and XRC SRQs
//
// # Posting
//
//	WQE into the ring | producer index into the doorbell record | register
//
// A single WQE of up to 256 bytes goes to the register whole (BlueFlame), another
// one or a list by its first 8 bytes. On hardware each step has its fence; the
// software HCA is told instead, by [prm.Doorbell].
//
// What a Progress posts (of rc_mlx5, what it posts at its end) is batched: one doorbell for each
// queue. With RCConfig.TxPostlist or UDConfig.TxPostlist above 1, so does what is posted outside
// Progress, and lists of that length share the doorbell record and the register. A shorter list
// waits for the next Progress, Flush, Arm or Close of the iface, with RC also for Fence and for
// those of its EP; until one of these is called it does not reach the peer. A post that finds the
// queue full gets ErrNoResource as ever; the Progress that makes room rings. A QP whose register
// is not that of the iface's first one rings at once; outside thread domains there are such.
//
// Outside thread domains a register may also be shared with queues of other ifaces.
// Then each store to it takes its lock, the one that posts of verbs take.
//
// # Polling
//
// A completion names its QP and the first basic block of its WQE; the queue
// remembers the number of the work request that begins there. Queues of xrc_mlx5 that are not
// an EP's RC QP are found by the user index. One Progress takes
// Config.MaxPoll entries and gives them back to the device with one store. A
// software HCA is driven when its attention word is up.
//
// # Misuse
//
// An iface is one goroutine's. Builds with the race detector report two that use it at once: a
// post in a thread domain while another one posts there returns [mlx5.ErrConcurrentPost], and a poll during
// another one takes nothing and logs why.
//
// # Devices
//
// The queues of other providers are not exposed (mlx5.RawSupported): there the
// transports are not listed, and opening one gives errors.ErrUnsupported with the
// provider's name.
package dv
