package uct

// Notifier puts, and gives a word to the EP at the other end, in one operation. The word comes
// when the data is visible to the target, and so is what was posted before a preceding Fence.
// Words and messages of one EP arrive in the order in which they were posted, once each. An
// operation whose put fails brings no word. When a put has failed at the target, of a Notifier or
// a [Putter], no word and no message of the EP arrives that was posted after it.
type Notifier interface {
	// NotifyBcopy is PutBcopy of buf, then word. A put of no bytes brings the word alone.
	// Errors: as PutBcopy.
	NotifyBcopy(buf []byte, raddr uint64, key RKey, word uint32) error
	// NotifyZcopy is PutZcopy of iov, then word. Errors: as PutZcopy.
	NotifyZcopy(iov []IOV, raddr uint64, key RKey, word uint32, c *Completion) (pending bool, err error)
	// SetNotifyHandler has h take the words that come over this EP, until it is closed. Set it
	// before the EP connects: words that find no handler are dropped. nil removes it.
	SetNotifyHandler(h NotifyHandler)
}

// NotifyHandler takes words.
type NotifyHandler interface {
	// HandleNotify gets one word, from Progress of the iface. What it may do: see the
	// package, "Calls from inside".
	HandleNotify(word uint32)
}
