package ucp

import "github.com/gucx/gucx/ucs"

// FD returns a file descriptor for an event loop of the caller's own (epoll, poll, select): after [Worker.Arm] has returned
// nil, the descriptor becomes readable when Progress has something to do. It is level-triggered and the same for the life
// of the worker. The worker owns the descriptor: the caller may wait for it, must not read or close it, and must remove it
// from the loop before Close. The first call makes the descriptor. Only the goroutine that owns the worker may call FD; any
// goroutine may wait for the descriptor. Errors: ErrClosed; ErrInvalidState if a SharedWorker owns the worker;
// *os.SyscallError.
func (w *Worker) FD() (int, error) {
	if err := w.beginArm(); err != nil {
		return -1, err
	}
	defer w.engine.Turn.Release()
	return w.engine.EventFD()
}

// Arm makes the descriptor of [Worker.FD] readable on the next event of the worker: a message, a completion, a connection,
// a failed peer, a timeout that is due, or [Worker.Signal]. Arm makes no progress and runs no callbacks. It takes some
// microseconds, so call it only before the loop waits, and again before each wait:
//
//	for {
//		for w.Progress() > 0 {
//		}
//		// Check here what callbacks and requests have changed.
//		if err := w.Arm(); err == ucs.ErrBusy {
//			continue
//		} else if err != nil {
//			return err
//		}
//		// Wait until the descriptor, or another one of the loop, is readable.
//	}
//
// Between Arm and the wait the caller must not call other methods of the worker, its EPs and its requests, because an
// operation that is started then may need progress. Arm also sends the messages that transports have joined.
//
// Errors: ErrBusy, never wrapped, if Progress may have something to do or Signal was called: call Progress, then Arm again.
// ErrClosed; ErrInvalidState if a SharedWorker has the worker; an error that wraps ErrUnsupported if a transport in use has no
// events, so that only polling finds them. All transports of gucx have events. Only the goroutine that owns the worker
// may call Arm. Only the first call allocates.
func (w *Worker) Arm() error {
	if err := w.beginArm(); err != nil {
		return err
	}
	defer w.engine.Turn.Release()
	return w.engine.Arm()
}

// beginArm takes the turn for FD and Arm.
func (w *Worker) beginArm() error {
	if w.shared != nil {
		return ucs.ErrInvalidState
	}
	return w.engine.Turn.Take()
}
