package sp

import "time"

// meter measures a worker and a comm. Two clocks are read for each cell and kind of work, never
// within one.
type meter struct {
	Comm
	worker
	layout *layout
	Result
}

// alloc implements allocator. If the comm is no allocator, it allocates heap memory.
func (m *meter) alloc(n int) ([]byte, error) {
	if a, ok := m.Comm.(allocator); ok {
		return a.alloc(n)
	}
	return bytesOf(make([]float64, n/wordLen)), nil
}

func (m *meter) do(t task) {
	begin := time.Now()
	m.worker.do(t)
	m.Spent[t.work] += time.Since(begin)
	m.Amount[t.work] += t.amount(&m.layout.cells[t.cell])
}

func (m *meter) Isend(to, tag int, b []byte) error {
	begin := time.Now()
	err := m.Comm.Isend(to, tag, b)
	m.Posting += time.Since(begin)
	m.Sent++
	m.Bytes += len(b)
	return err
}

func (m *meter) Irecv(from, tag int, b []byte) error {
	begin := time.Now()
	err := m.Comm.Irecv(from, tag, b)
	m.Posting += time.Since(begin)
	return err
}

func (m *meter) WaitAll() error {
	begin := time.Now()
	err := m.Comm.WaitAll()
	m.Waiting += time.Since(begin)
	return err
}
