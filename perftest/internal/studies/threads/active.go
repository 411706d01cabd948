package threads

import (
	"context"
	"fmt"

	"github.com/gucx/gucx/ucp"
)

// Ids of active messages; lane i adds i.
const (
	idData = 1
	idAck  = idData + MaxThreads
)

func (l *lane) id(base int) uint16 { return uint16(base + l.i) }

// handle sets the handlers of the lane. The caller must own the worker.
func (l *lane) handle(w *ucp.Worker) {
	w.OnActive(l.id(idData), l.arrived)
	w.OnActive(l.id(idAck), func(*ucp.ActiveMessage) { l.acks++ })
}

// arrived checks a message, or fetches it.
func (l *lane) arrived(m *ucp.ActiveMessage) {
	k, slot := int(l.received)/l.window, int(l.received)%l.window
	l.received++
	if m.Length != l.part.Size {
		l.recvErr = fmt.Errorf("%w: a message of %d bytes", ErrData, m.Length)
		return
	}
	if len(m.Data) == m.Length {
		l.check(m.Data, k, slot)
		l.got++
		return
	}
	l.fetched[slot] = true
	r, err := m.Recv(l.in[slot*l.part.Size:][:l.part.Size], &l.into)
	switch {
	case err != nil:
		l.recvErr = err
	case r == nil:
		l.got++
	default:
		r.Release() // its completion is reported
	}
}

// fetchedOne handles the completion of a fetch.
func (l *lane) fetchedOne(err error) {
	if err != nil {
		l.recvErr = err
	}
	l.got++
}

// reached reports that count is at least n, or that an error has occurred.
func (l *lane) reached(n uint64) bool {
	l.note(l.recvErr)
	return l.failed != nil || n >= l.want
}

// receiveUntil waits for the messages of window k.
func (l *lane) receiveUntil(ctx context.Context, k int) error {
	l.want = uint64((k + 1) * l.window)
	if err := l.worker.Until(ctx, l.enough); err != nil {
		return err
	}
	for slot, yes := range l.fetched {
		if yes {
			l.fetched[slot] = false
			l.check(l.in[slot*l.part.Size:][:l.part.Size], k, slot)
		}
	}
	return l.failed
}

// activePing sends a message and waits for the reply.
func (l *lane) activePing(ctx context.Context, k int) error {
	l.number(k, 0)
	if err := l.worker.Run(ctx, l.starts.active); err != nil {
		return err
	}
	return l.receiveUntil(ctx, k)
}

// activePong waits for a message and sends one.
func (l *lane) activePong(ctx context.Context, k int) error {
	if err := l.receiveUntil(ctx, k); err != nil {
		return err
	}
	l.number(k, 0)
	return l.worker.Run(ctx, l.starts.active)
}

// activeSends sends a window, and waits until it was received.
func (l *lane) activeSends(ctx context.Context, k int) error {
	l.each(l.starts.active, l.number, k)
	if err := l.waitWindow(ctx); err != nil {
		return err
	}
	l.want = uint64(k + 1)
	if err := l.worker.Until(ctx, l.acked); err != nil {
		return err
	}
	return l.failed
}

// activeReceives waits for a window, and acknowledges it.
func (l *lane) activeReceives(ctx context.Context, k int) error {
	if err := l.receiveUntil(ctx, k); err != nil {
		return err
	}
	return l.worker.Run(ctx, l.starts.ack)
}
