// Package dv contains the transports that use mlx5 queues directly: rc_mlx5, ud_mlx5 and xrc_mlx5.
// Their protocols are those of rc, ud and xrc, with the same cores (rccore, udcore, xrccore); only
// posting and polling differ, and never call verbs. Verbs serves every opcode, number of work
// requests, QP state and thread, and checks them at each call. Here the core ensures that there is
// room, that the QP can send and that one goroutine owns it.
//
//	EP       sendQueue: a prm.SendRing, which writes WQEs; the doorbell record, the register
//	Iface    compQueue: polls CQEs; prm.RecvList or prm.RecvRing: posts receives
//	         register: selects the BlueFlame buffer of the thread domain
//	         with xrc_mlx5: xrcSend of initiators and xrcRecv of XRC SRQs
//
// # Posting
//
//	WQE into the ring | producer index into the doorbell record | register
//
// A single WQE of up to 256 bytes is written to the register completely (BlueFlame). Of a larger
// WQE or of a list, only the first 8 bytes are written. On hardware each step has its fence; the
// software HCA is called through [prm.Doorbell] instead.
//
// All posts of one Progress (with rc_mlx5, those at its end) are batched: each queue gets one
// doorbell. With RCConfig.TxPostlist or UDConfig.TxPostlist above 1, posts outside Progress are
// batched too, and a list of that length needs only one write of the doorbell record and the
// register. A shorter list waits until the next Progress, Flush, Arm or Close of the iface; with RC also until
// Fence, and until those calls for its EP. Until then the peer receives nothing of it. A post to a
// full queue returns ErrNoResource as usual, and the Progress that makes room rings the doorbell.
// Outside thread domains, a QP may have another register than the first one of the iface; it rings
// at once.
//
// Outside thread domains, queues of other ifaces may share a register. Then each write locks it,
// with the lock that verbs uses.
//
// # Polling
//
// A completion contains its QPN and the index of the first basic block of its WQE. The queue stores
// the number of the work request that begins there. For queues of xrc_mlx5 that are not the RC QP
// of an EP, a completion contains the user index. One Progress polls up to Config.MaxPoll entries
// and returns them to the device with one store. If the attention word of a software HCA is set,
// Progress drives it.
//
// # Misuse
//
// One goroutine owns an iface. Builds with the race detector report concurrent use by two: a post
// during another post in the same thread domain returns [mlx5.ErrConcurrentPost], and a poll during
// another poll returns nothing and logs the reason.
//
// # Devices
//
// Devices of other providers have no mlx5 queues. On these devices the transports
// are not listed, and opening one returns errors.ErrUnsupported with the name of the provider.
package dv
