package ucxpeer

// FD returns a file descriptor for the caller's event loop (epoll, poll, select): after [Worker.Arm] has returned
// nil, the descriptor becomes readable when Progress has work. It is level-triggered, and does not change until
// Close. The worker owns it: the caller must not read or close it, and must remove it from the loop before
// Close. The first call creates the descriptor. Only the goroutine that owns the worker may call FD; any goroutine may wait
// for the descriptor. Errors: ErrClosed; *os.SyscallError.
func (w *Worker) FD() (int, error) {
	if err := w.engine.Turn.Take(); err != nil {
		return -1, err
	}
	defer w.engine.Turn.Release()
	return w.engine.EventFD()
}

// Arm makes the descriptor of [Worker.FD] readable on the next event of the worker: a message, a completion, a connection,
// a client of a listener, a failed peer, a timeout that is due, or [Worker.Signal]. Arm makes no progress and runs no
// callbacks. It takes some microseconds, so call it only before the loop waits, and again before each wait:
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
// operation that is started then may need progress. Only the goroutine that owns the worker may call Arm. Only the first call
// allocates. Errors: ErrBusy, never wrapped, if Progress may have work or Signal was called:
// call Progress, then Arm again; ErrClosed.
func (w *Worker) Arm() error {
	if err := w.engine.Turn.Take(); err != nil {
		return err
	}
	defer w.engine.Turn.Release()
	return w.engine.Arm()
}
