package tcp

import (
	"encoding/binary"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// operands are the parameters of an atomic operation.
type operands struct {
	op             uct.AtomicOp
	size           int
	fetch          bool
	value, compare uint64
}

// AtomicPost implements uct.Atomics.
func (e *endpoint) AtomicPost(op uct.AtomicOp, size int, value, raddr uint64, key uct.RKey) error {
	if op >= uct.AtomicCSwap {
		return uct.ErrUnsupported
	}
	return e.postAtomic(operands{op: op, size: size, value: value}, raddr, key)
}

// AtomicFetch implements uct.Atomics.
func (e *endpoint) AtomicFetch(op uct.AtomicOp, size int, value uint64, result *uint64, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
	if op >= uct.AtomicCSwap {
		return false, uct.ErrUnsupported
	}
	return e.fetch(operands{op: op, size: size, fetch: true, value: value}, result, raddr, key, c)
}

// AtomicCSwap implements uct.Atomics.
func (e *endpoint) AtomicCSwap(size int, compare, swap uint64, result *uint64, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
	a := operands{op: uct.AtomicCSwap, size: size, fetch: true, value: swap, compare: compare}
	return e.fetch(a, result, raddr, key, c)
}

func (e *endpoint) fetch(a operands, result *uint64, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
	if !e.canAwaitReply() {
		return false, e.postError()
	}
	if err := e.postAtomic(a, raddr, key); err != nil {
		return false, err
	}
	o := e.awaitReply(opAtomic, c)
	o.size, o.result = a.size, result
	return true, nil
}

func (e *endpoint) postAtomic(a operands, raddr uint64, key uct.RKey) error {
	const whole = frameLen + atomicLen
	if a.size != 4 && a.size != 8 || raddr%uint64(a.size) != 0 {
		return uct.ErrInvalidParam
	}
	t, ok := e.target(raddr, key)
	if !ok {
		return ucs.ErrRemoteAccess
	}
	b, err := e.reserve(whole)
	if err != nil {
		return err
	}
	putHeader(b, frameAtomic, uint8(a.op), atomicLen)
	putTarget(b[frameLen:], t)
	putOperands(b[frameLen:], a)
	e.commit(whole)
	return nil
}

// putOperands writes the body of an ATOMIC after the target.
func putOperands(body []byte, a operands) {
	binary.LittleEndian.PutUint64(body[offSize:], uint64(a.size))
	if a.fetch {
		body[offFetch] = 1
	}
	binary.LittleEndian.PutUint64(body[offValue:], a.value)
	binary.LittleEndian.PutUint64(body[offCompare:], a.compare)
}
