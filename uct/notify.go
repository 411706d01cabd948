package uct

// Notifier puts data and delivers 32 bits of immediate data to the peer's EP, in one operation (verbs:
// RDMA_WRITE_WITH_IMM). When the immediate data arrives, the target sees the put data and operations posted before a
// preceding Fence. Immediate data and messages of one EP arrive in the order in which they were posted, once each. If
// the put fails, its immediate data does not arrive. After a put of a Notifier or a [Putter] has failed at the target, no
// immediate data and no message that the EP posted after it arrives.
type Notifier interface {
	// NotifyBcopy is PutBcopy of buf with the immediate data imm. A put of no bytes only delivers imm.
	// Errors as PutBcopy.
	NotifyBcopy(buf []byte, raddr uint64, key RKey, imm uint32) error
	// NotifyZcopy is PutZcopy of iov with the immediate data imm. Errors as PutZcopy.
	NotifyZcopy(iov []IOV, raddr uint64, key RKey, imm uint32, c *Completion) (pending bool, err error)
	// SetNotifyHandler sets the handler of immediate data that arrives on this EP, until the EP is closed; nil removes
	// it. Immediate data without a handler is dropped, so the caller should set the handler before the EP connects.
	SetNotifyHandler(h NotifyHandler)
}

// NotifyHandler handles immediate data.
type NotifyHandler interface {
	// HandleNotify is called once for each arrival, from Progress of the iface. For the calls that it may make see the
	// package documentation, "Calls from callbacks".
	HandleNotify(imm uint32)
}
