package sm

import (
	"errors"
	"fmt"

	"github.com/gucx/gucx/internal/cma"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// Registered memory of the peer is not mapped. The kernel
// copies from and to it (cross-memory attach). If the kernel forbids that, the peer executes the operation.

// putUnmapped is PutShort to memory that is not mapped.
func (e *endpoint) putUnmapped(buf []byte, raddr, key uint64) error {
	if len(buf) == 0 {
		return nil
	}
	if e.mapMore(key, raddr, uint64(len(buf)), uct.AccessRemoteWrite) {
		return e.PutShort(buf, raddr, uct.RKey(key))
	}
	if !e.isUnmapped(key, raddr, uint64(len(buf)), uct.AccessRemoteWrite) {
		return e.accessError()
	}
	if e.cmaErr == nil {
		if err := e.copyCMA(buf, raddr, key, uct.AccessRemoteWrite); e.cmaErr == nil {
			return err
		}
	}
	if !e.canPostOp() {
		return uct.ErrNoResource
	}
	a := e.add(opPut, raddr, key, len(buf), nil)
	a.iov[0], a.pieces = uct.IOV{Buf: buf}, 1
	e.issue() // sends all bytes, because a slot and a segment are free; the caller may reuse buf
	return nil
}

// errTarget means that only the peer can access the memory.
var errTarget = errors.New("the peer must execute it")

// getUnmapped reads memory that is not mapped. errTarget if only the peer can read it.
func (e *endpoint) getUnmapped(buf []byte, raddr, key uint64) error {
	if len(buf) == 0 {
		return nil
	}
	if e.mapMore(key, raddr, uint64(len(buf)), uct.AccessRemoteRead) && e.load(buf, raddr, key) {
		return nil
	}
	if !e.isUnmapped(key, raddr, uint64(len(buf)), uct.AccessRemoteRead) {
		return e.accessError()
	}
	if e.cmaErr == nil {
		if err := e.copyCMA(buf, raddr, key, uct.AccessRemoteRead); e.cmaErr == nil {
			return err
		}
	}
	return errTarget
}

// vectorUnmapped is PutZcopy and GetZcopy for memory that is not mapped.
func (e *endpoint) vectorUnmapped(kind opKind, iov []uct.IOV, n int, raddr, key uint64, c *uct.Completion) (bool, error) {
	if n == 0 {
		return false, nil
	}
	need := kind.need()
	if e.mapMore(key, raddr, uint64(n), need) {
		return e.vector(kind, iov, raddr, key, c)
	}
	if !e.isUnmapped(key, raddr, uint64(n), need) {
		return false, e.accessError()
	}
	if e.cmaErr == nil {
		if err := e.copyAllCMA(iov, raddr, key, need); e.cmaErr == nil {
			return false, err
		}
	}
	if !e.ops.room() {
		return false, uct.ErrNoResource
	}
	a := e.add(kind, raddr, key, n, c)
	a.pieces = copy(a.iov[:], iov)
	e.issue()
	return true, nil
}

// copyAllCMA copies all buffers of iov by cross-memory attach.
func (e *endpoint) copyAllCMA(iov []uct.IOV, raddr, key uint64, need uct.Access) error {
	for i := range iov {
		if len(iov[i].Buf) == 0 {
			continue
		}
		if err := e.copyCMA(iov[i].Buf, raddr, key, need); err != nil {
			return err
		}
		raddr += uint64(len(iov[i].Buf))
	}
	return nil
}

// copyCMA copies bytes by cross-memory attach, in visits of at most visitMax. If the kernel forbids it now,
// it sets cmaErr.
func (e *endpoint) copyCMA(buf []byte, raddr, key uint64, need uct.Access) error {
	for len(buf) > visitMax {
		if err := e.copyPieceCMA(buf[:visitMax], raddr, key, need); err != nil {
			return err
		}
		buf, raddr = buf[visitMax:], raddr+visitMax
	}
	return e.copyPieceCMA(buf, raddr, key, need)
}

func (e *endpoint) copyPieceCMA(buf []byte, raddr, key uint64, need uct.Access) error {
	idle := e.enter(key) // until the system call has returned
	defer e.guard.Leave(idle)
	if !e.isUnmapped(key, raddr, uint64(len(buf)), need) {
		return e.accessError()
	}
	var err error
	if need == uct.AccessRemoteRead {
		err = e.vec.Read(e.pid, buf, raddr)
	} else {
		err = e.vec.Write(e.pid, buf, raddr)
	}
	switch err {
	case nil:
		if e.hold.Load()&holdDown != 0 { // another process may have the pid now
			return uct.ErrNoResource
		}
		return nil
	case cma.ErrForbidden, cma.ErrUnsupported:
		e.cmaErr = err
		return err
	case cma.ErrGone:
		e.markLost()
		return fmt.Errorf("%w: %w", uct.ErrEPFailed, ucs.ErrConnReset)
	case cma.ErrBadRange:
		return e.accessError()
	}
	return err
}
