package uct

// Notifier puts data and sends a 32-bit word to the EP at the other end, in one operation. When the
// word arrives, the data is visible to the target, and so are operations posted before a preceding
// Fence. Words and messages of one EP arrive in the order in which they were posted, once each. If
// the put fails, its word does not arrive. After a put has failed at the target, of a Notifier or
// a [Putter], no word and no message arrives that the EP posted after it.
type Notifier interface {
	// NotifyBcopy is PutBcopy of buf, then word. A put of no bytes only sends the word.
	// Errors: as PutBcopy.
	NotifyBcopy(buf []byte, raddr uint64, key RKey, word uint32) error
	// NotifyZcopy is PutZcopy of iov, then word. Errors: as PutZcopy.
	NotifyZcopy(iov []IOV, raddr uint64, key RKey, word uint32, c *Completion) (pending bool, err error)
	// SetNotifyHandler sets the handler of words that arrive on this EP, until the EP is closed. Set it
	// before the EP connects: words without a handler are dropped. nil removes the handler.
	SetNotifyHandler(h NotifyHandler)
}

// NotifyHandler handles words.
type NotifyHandler interface {
	// HandleNotify is called with one word, from Progress of the iface. What it may do: see the
	// package, "Calls from inside".
	HandleNotify(word uint32)
}
