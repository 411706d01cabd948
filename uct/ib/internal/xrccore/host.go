package xrccore

import "github.com/gucx/gucx/ucs"

// later has the next Progress call e.work.
func (it *Iface) later(e *EP) {
	if !e.listed {
		e.listed = true
		it.busy = append(it.busy, e)
	}
}

func (it *Iface) opError(op string, err error) error {
	return &ucs.OpError{TL: it.name, Dev: it.Port().Name, Op: op, Err: err}
}
