package threads

import (
	"context"

	"github.com/gucx/gucx/ucp"
)

// Tags contain their purpose above the number of the lane.
const (
	tagData = uint64(1) << 32
	tagAck  = uint64(2) << 32

	fullMask = ^uint64(0)
)

func (l *lane) tag(kind uint64) uint64 { return kind | uint64(l.i) }

// receive posts a receive of a message into its slot.
func (l *lane) receive() (*ucp.Request, error) {
	return l.ep.Worker().TagRecv(l.piece(l.in), l.tag(tagData), fullMask, nil, &l.params)
}

// recvAck posts a receive of an acknowledgement, which has no data.
func (l *lane) recvAck() (*ucp.Request, error) {
	return l.ep.Worker().TagRecv(nil, l.tag(tagAck), fullMask, nil, nil)
}

// tagPing sends a message and receives the reply.
func (l *lane) tagPing(ctx context.Context, k int) error {
	l.number(k, 0)
	if err := l.worker.Run(ctx, l.starts.send); err != nil {
		return err
	}
	if err := l.worker.Run(ctx, l.starts.receive); err != nil {
		return err
	}
	l.check(l.in[:l.part.Size], k, 0)
	return nil
}

// tagPong receives a message and sends one.
func (l *lane) tagPong(ctx context.Context, k int) error {
	if err := l.worker.Run(ctx, l.starts.receive); err != nil {
		return err
	}
	l.check(l.in[:l.part.Size], k, 0)
	l.number(k, 0)
	return l.worker.Run(ctx, l.starts.send)
}

// tagSends sends a window, and waits until it was received.
func (l *lane) tagSends(ctx context.Context, k int) error {
	l.each(l.starts.send, l.number, k)
	if err := l.waitWindow(ctx); err != nil {
		return err
	}
	return l.worker.Run(ctx, l.starts.recvAck)
}

// tagReceives receives a window, and acknowledges it.
func (l *lane) tagReceives(ctx context.Context, k int) error {
	l.each(l.starts.receive, nil, k)
	if err := l.waitWindow(ctx); err != nil {
		return err
	}
	for slot := range l.window {
		l.slot = slot
		l.check(l.piece(l.in), k, slot)
	}
	return l.worker.Run(ctx, l.starts.sendAck)
}
