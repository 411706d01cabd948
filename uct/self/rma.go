package self

import (
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/internal/memop"
)

// at is the target memory of an operation.
func (e *EP) at(key uct.RKey, raddr uint64, n int, need uct.Access) ([]byte, error) {
	if !e.ready() {
		return nil, e.refused()
	}
	b := e.peer.md.find(key.Handle, raddr, n, need)
	if b == nil && n != 0 {
		return nil, ucs.ErrRemoteAccess
	}
	return b, nil
}

// PutShort implements uct.Putter.
func (e *EP) PutShort(buf []byte, raddr uint64, key uct.RKey) error {
	if len(buf) > maxZcopy {
		return uct.ErrTooLong
	}
	dst, err := e.at(key, raddr, len(buf), uct.AccessRemoteWrite)
	if err != nil {
		return err
	}
	copy(dst, buf)
	return nil
}

// PutBcopy implements uct.Putter. The length is known only when p has packed, so it
// packs into a segment.
func (e *EP) PutBcopy(p uct.Packer, raddr uint64, key uct.RKey) (int, error) {
	if !e.ready() {
		return 0, e.refused()
	}
	if e.peer.md.find(key.Handle, raddr, 0, uct.AccessRemoteWrite) == nil {
		return 0, ucs.ErrRemoteAccess
	}
	n := p.Pack(e.iface.bounce())
	dst, err := e.at(key, raddr, n, uct.AccessRemoteWrite)
	if err != nil {
		return 0, err
	}
	copy(dst, e.iface.scratch[:n])
	return n, nil
}

// bounce is a buffer of MaxBcopy bytes, made at the first use.
func (it *Iface) bounce() []byte {
	if it.scratch == nil {
		it.scratch = make([]byte, it.attr.Put.MaxBcopy)
	}
	return it.scratch
}

// PutZcopy implements uct.Putter.
func (e *EP) PutZcopy(iov []uct.IOV, raddr uint64, key uct.RKey, _ *uct.Completion) (bool, error) {
	n, err := memop.CheckIOV(iov, maxIOV, maxZcopy)
	if err != nil {
		return false, err
	}
	dst, err := e.at(key, raddr, n, uct.AccessRemoteWrite)
	if err != nil {
		return false, err
	}
	memop.Gather(dst, iov)
	return false, nil
}

// GetShort implements uct.Getter.
func (e *EP) GetShort(buf []byte, raddr uint64, key uct.RKey) error {
	if len(buf) > maxZcopy {
		return uct.ErrTooLong
	}
	src, err := e.at(key, raddr, len(buf), uct.AccessRemoteRead)
	if err != nil {
		return err
	}
	copy(buf, src)
	return nil
}

// GetBcopy implements uct.Getter: u reads the target memory itself.
func (e *EP) GetBcopy(u uct.Unpacker, n int, raddr uint64, key uct.RKey, _ *uct.Completion) (bool, error) {
	if n > e.iface.attr.Get.MaxBcopy {
		return false, uct.ErrTooLong
	}
	src, err := e.at(key, raddr, n, uct.AccessRemoteRead)
	if err != nil {
		return false, err
	}
	u.Unpack(src)
	return false, nil
}

// GetZcopy implements uct.Getter.
func (e *EP) GetZcopy(iov []uct.IOV, raddr uint64, key uct.RKey, _ *uct.Completion) (bool, error) {
	n, err := memop.CheckIOV(iov, maxIOV, maxZcopy)
	if err != nil {
		return false, err
	}
	src, err := e.at(key, raddr, n, uct.AccessRemoteRead)
	if err != nil {
		return false, err
	}
	memop.Scatter(iov, src)
	return false, nil
}
