package sm

import (
	"errors"
	"fmt"

	"github.com/gucx/gucx/internal/cma"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// Far memory is registered memory of the peer, which is not mapped here. The kernel
// copies from and to it; where it refuses to, the peer does it.

// putFar is PutShort for what mapped refused.
func (e *EP) putFar(buf []byte, raddr, key uint64) error {
	if len(buf) == 0 {
		return nil
	}
	if e.extended(key, raddr, uint64(len(buf)), uct.AccessRemoteWrite) {
		return e.PutShort(buf, raddr, uct.RKey(key))
	}
	if !e.private(key, raddr, uint64(len(buf)), uct.AccessRemoteWrite) {
		return e.denied()
	}
	if e.cmaErr == nil {
		if err := e.attach(buf, raddr, key, uct.AccessRemoteWrite); e.cmaErr == nil {
			return err
		}
	}
	if !e.canPostOp() {
		return uct.ErrNoResource
	}
	a := e.add(opPut, raddr, key, len(buf), nil)
	a.iov[0], a.pieces = uct.IOV{Buf: buf}, 1
	e.issue() // all of it, as there is room: buf is the caller's again
	return nil
}

// errTarget says that only the peer can reach the memory.
var errTarget = errors.New("the peer has to do it")

// getFar reads what load did not. errTarget: it cannot.
func (e *EP) getFar(buf []byte, raddr, key uint64) error {
	if len(buf) == 0 {
		return nil
	}
	if e.extended(key, raddr, uint64(len(buf)), uct.AccessRemoteRead) && e.load(buf, raddr, key) {
		return nil
	}
	if !e.private(key, raddr, uint64(len(buf)), uct.AccessRemoteRead) {
		return e.denied()
	}
	if e.cmaErr == nil {
		if err := e.attach(buf, raddr, key, uct.AccessRemoteRead); e.cmaErr == nil {
			return err
		}
	}
	return errTarget
}

// vectorFar is PutZcopy and GetZcopy for what mapped refused.
func (e *EP) vectorFar(kind opKind, iov []uct.IOV, n int, raddr, key uint64, c *uct.Completion) (bool, error) {
	if n == 0 {
		return false, nil
	}
	need := kind.need()
	if e.extended(key, raddr, uint64(n), need) {
		return e.vector(kind, iov, raddr, key, c)
	}
	if !e.private(key, raddr, uint64(n), need) {
		return false, e.denied()
	}
	if e.cmaErr == nil {
		if err := e.attachAll(iov, raddr, key, need); e.cmaErr == nil {
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

// attachAll moves all pieces by cross-memory attach.
func (e *EP) attachAll(iov []uct.IOV, raddr, key uint64, need uct.Access) error {
	for i := range iov {
		if len(iov[i].Buf) == 0 {
			continue
		}
		if err := e.attach(iov[i].Buf, raddr, key, need); err != nil {
			return err
		}
		raddr += uint64(len(iov[i].Buf))
	}
	return nil
}

// attach moves bytes by cross-memory attach, in visits of visitMax. If the kernel does not
// let us any more, it sets cmaErr.
func (e *EP) attach(buf []byte, raddr, key uint64, need uct.Access) error {
	for len(buf) > visitMax {
		if err := e.attachPiece(buf[:visitMax], raddr, key, need); err != nil {
			return err
		}
		buf, raddr = buf[visitMax:], raddr+visitMax
	}
	return e.attachPiece(buf, raddr, key, need)
}

func (e *EP) attachPiece(buf []byte, raddr, key uint64, need uct.Access) error {
	idle := e.enter(key) // the kernel copies inside the system call, so until it returns
	defer e.guard.Leave(idle)
	if !e.private(key, raddr, uint64(len(buf)), need) {
		return e.denied()
	}
	var err error
	if need == uct.AccessRemoteRead {
		err = e.vec.Read(e.pid, buf, raddr)
	} else {
		err = e.vec.Write(e.pid, buf, raddr)
	}
	switch err {
	case nil:
		if e.hold.Load()&holdDown != 0 { // the pid may be another process's by now
			return uct.ErrNoResource
		}
		return nil
	case cma.ErrForbidden, cma.ErrUnsupported:
		e.cmaErr = err
		return err
	case cma.ErrGone:
		e.lost()
		return fmt.Errorf("%w: %w", uct.ErrEPFailed, ucs.ErrConnReset)
	case cma.ErrBadRange:
		return e.denied()
	}
	return err
}
