package threads

import "context"

// putFlush puts, and waits until the data is in the memory of the target.
func (l *lane) putFlush(ctx context.Context, _ int) error {
	if err := l.worker.Run(ctx, l.starts.put); err != nil {
		return err
	}
	return l.worker.Run(ctx, l.starts.flush)
}

// puts puts a window, then flushes.
func (l *lane) puts(ctx context.Context, k int) error {
	l.each(l.starts.put, nil, k)
	if err := l.waitWindow(ctx); err != nil {
		return err
	}
	return l.worker.Run(ctx, l.starts.flush)
}

// get gets, and waits for the data.
func (l *lane) get(ctx context.Context, _ int) error { return l.worker.Run(ctx, l.starts.get) }

// gets gets a window, and waits for the data.
func (l *lane) gets(ctx context.Context, k int) error {
	l.each(l.starts.get, nil, k)
	return l.waitWindow(ctx)
}
