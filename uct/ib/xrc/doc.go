// Package xrc is the reliable-connected transport with receive queues that peers send to by
// number: package rccore, and beside it the queues of InfiniBand's extended reliable
// connections (XRC).
//
//	sender                                          target
//	EP        RC QP ------------------------------- RC QP     EP
//	           messages, RMA, atomics, control
//	conn      initiator --------------------------> target    in the domain of the iface
//	           one queue at a time: SendWR.SRQN          \--> XRC SRQ, one for each uct.Queue
//
// A message to a queue goes from the sender's memory to that of the receive, by the devices.
// One without a receive waits in the sender's device (RNR, retried for ever), and with it what
// is behind it on its connection; other connections and the RC QP do not.
//
// # Connections to queues
//
// An EP has QUEUE_CONNS of them, made when they are first attached. Initiator and target are
// connected by two control messages over the RC QP, ask and answer; sends that are posted
// meanwhile are held back. A connection whose queue is not there, or that was recalled, is
// in ERR on either side, and is connected again in the same way, with the same QPs and
// another first PSN. The initiator is in ERR, with all work requests flushed, before it asks:
// nothing that was recalled is received later.
//
// # One completion queue
//
// The queues complete in the completion queue of the core, which so wakes for all of them.
// What it must have room for, receives that are posted and sends that are under way, is
// bounded by QUEUE_CQ_LEN: a queue takes its depth from it, a connection QUEUE_TX_LEN.
package xrc
