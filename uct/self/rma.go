package self

import (
	"github.com/gucx/gucx/internal/shortcopy"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/internal/memop"
)

// at returns the target memory of an operation. Without an error it has entered the guard of the peer, and the
// caller must call Leave with before.
func (e *endpoint) at(key uct.RKey, raddr uint64, n int, need uct.Access) (b []byte, before uint64, err error) {
	if !e.ready() {
		return nil, 0, e.postError()
	}
	before = e.peer.guard.Enter(anyRegion, e.peer.fenced)
	b = e.peer.md.find(uint64(key), raddr, n, need)
	if b == nil && n != 0 {
		e.peer.guard.Leave(before)
		return nil, 0, ucs.ErrRemoteAccess
	}
	return b, before, nil
}

// PutShort implements uct.Putter.
func (e *endpoint) PutShort(buf []byte, raddr uint64, key uct.RKey) error {
	if len(buf) > maxZcopy {
		return uct.ErrTooLong
	}
	dst, before, err := e.at(key, raddr, len(buf), uct.AccessRemoteWrite)
	if err != nil {
		return err
	}
	shortcopy.Copy(dst, buf)
	e.peer.guard.Leave(before)
	return nil
}

// PutBcopy implements uct.Putter.
func (e *endpoint) PutBcopy(buf []byte, raddr uint64, key uct.RKey) error {
	if len(buf) > e.iface.attr.Put.MaxBcopy {
		return uct.ErrTooLong
	}
	return e.PutShort(buf, raddr, key)
}

// PutZcopy implements uct.Putter.
func (e *endpoint) PutZcopy(iov []uct.IOV, raddr uint64, key uct.RKey, _ *uct.Completion) (bool, error) {
	n, err := memop.CheckIOV(iov, maxIOV, maxZcopy)
	if err != nil {
		return false, err
	}
	dst, before, err := e.at(key, raddr, n, uct.AccessRemoteWrite)
	if err != nil {
		return false, err
	}
	memop.Gather(dst, iov)
	e.peer.guard.Leave(before)
	return false, nil
}

// GetShort implements uct.Getter.
func (e *endpoint) GetShort(buf []byte, raddr uint64, key uct.RKey) error {
	if len(buf) > maxZcopy {
		return uct.ErrTooLong
	}
	src, before, err := e.at(key, raddr, len(buf), uct.AccessRemoteRead)
	if err != nil {
		return err
	}
	shortcopy.Copy(buf, src)
	e.peer.guard.Leave(before)
	return nil
}

// GetBcopy implements uct.Getter.
func (e *endpoint) GetBcopy(buf []byte, raddr uint64, key uct.RKey, _ *uct.Completion) (bool, error) {
	if len(buf) > e.iface.attr.Get.MaxBcopy {
		return false, uct.ErrTooLong
	}
	return false, e.GetShort(buf, raddr, key)
}

// GetZcopy implements uct.Getter.
func (e *endpoint) GetZcopy(iov []uct.IOV, raddr uint64, key uct.RKey, _ *uct.Completion) (bool, error) {
	n, err := memop.CheckIOV(iov, maxIOV, maxZcopy)
	if err != nil {
		return false, err
	}
	src, before, err := e.at(key, raddr, n, uct.AccessRemoteRead)
	if err != nil {
		return false, err
	}
	memop.Scatter(iov, src)
	e.peer.guard.Leave(before)
	return false, nil
}

// Map implements uct.Mapper. It returns the region itself; the slice keeps Go memory alive.
func (e *endpoint) Map(raddr uint64, n int, key uct.RKey) ([]byte, func(), error) {
	mem, before, err := e.at(key, raddr, n, uct.AccessRemoteRead)
	if err != nil {
		return nil, nil, err
	}
	e.peer.guard.Leave(before)
	return mem[:n:n], func() {}, nil
}
