package memtp

import "github.com/gucx/gucx/uct"

// NotifyBcopy implements uct.Notifier.
func (e *EP) NotifyBcopy(buf []byte, raddr uint64, key uct.RKey, word uint32) error {
	err := e.PutBcopy(buf, raddr, key)
	if err == nil {
		e.tx.last().notifies(word)
	}
	return err
}

// NotifyZcopy implements uct.Notifier.
func (e *EP) NotifyZcopy(iov []uct.IOV, raddr uint64, key uct.RKey, word uint32, c *uct.Completion) (pending bool, err error) {
	pending, err = e.PutZcopy(iov, raddr, key, c)
	if err == nil {
		e.tx.last().notifies(word)
	}
	return pending, err
}

// SetNotifyHandler implements uct.Notifier.
func (e *EP) SetNotifyHandler(h uct.NotifyHandler) {
	if !e.closed {
		e.words = h
	}
}

// last returns the most recently posted operation.
func (q *tx) last() *op { return &q.ops[(q.first+q.n-1)%len(q.ops)] }

// notifies changes a put to a put with notification.
func (o *op) notifies(word uint32) { o.kind, o.word = opNotify, word }
