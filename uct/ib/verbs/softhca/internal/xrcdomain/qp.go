package xrcdomain

import (
	"fmt"
	"math/bits"
	"os"

	"github.com/gucx/gucx/ucs"
)

// NumberBit is set in the numbers of target QPs of a shared domain, and in those of no
// other QPs of a device.
const NumberBit = 1 << 23

// qpSerials is how often an entry has another number: bits 15 to 22.
const qpSerials = 1 << 8

// TargetQP is a target QP of the domain.
type TargetQP struct {
	Number uint32
	// SrcGID and SrcQPN are the initiator; zero before the QP is connected.
	SrcGID [16]byte
	SrcQPN uint32
	// PID is the process that made it.
	PID int
}

// AddQP makes a target QP that this member refers to. ucs.ErrNoMemory when there is no
// number left.
func (d *Domain) AddQP() (number uint32, err error) {
	err = d.change(func() error {
		i, ok := d.freeQP()
		if !ok {
			return fmt.Errorf("%w: %d target QPs", ucs.ErrNoMemory, maxQPs)
		}
		e := d.dir.qp(i)
		serial := (e.serial.Load() + 1) % qpSerials
		number = NumberBit | serial*maxQPs | i
		e.serial.Store(serial)
		e.pid.Store(uint32(os.Getpid()))
		e.connect([16]byte{}, 0)
		e.refer(d.place)
		e.number.Store(number)
		d.opened[number] = 1
		return nil
	})
	return number, err
}

// freeQP returns an entry without QP and without references: one that is free, a new one,
// or one of the dead. Under the lock for changes.
func (d *Domain) freeQP() (uint32, bool) {
	end := d.dir.qpsEnd()
	for i := range end {
		if e := d.dir.qp(i); e.number.Load() == 0 {
			e.clear()
			return i, true
		}
	}
	if end < maxQPs {
		d.dir.header().qpsEnd.Store(end + 1)
		d.dir.qp(end).clear()
		return end, true
	}
	for i := range end {
		if e := d.dir.qp(i); !d.used(e) {
			e.number.Store(0)
			e.clear()
			return i, true
		}
	}
	return 0, false
}

// used reports whether a member that is alive refers to an entry.
func (v *View) used(e *qpEntry) bool {
	for i := range e.refs {
		for rest := e.refs[i].Load(); rest != 0; rest &= rest - 1 {
			if v.alive(i*64 + bits.TrailingZeros64(rest)) {
				return true
			}
		}
	}
	return false
}

// OpenQP refers to a target QP that is there, once more if it did before.
// ucs.ErrInvalidParam if there is none.
func (d *Domain) OpenQP(number uint32) error {
	return d.change(func() error {
		e := d.entry(number)
		if e == nil {
			return noQP(number)
		}
		e.refer(d.place)
		d.opened[number]++
		return nil
	})
}

// CloseQP takes one reference of this member back. gone says that it was the last of the
// domain.
func (d *Domain) CloseQP(number uint32) (gone bool, err error) {
	err = d.change(func() error {
		if d.opened[number] == 0 {
			return noQP(number)
		}
		if d.opened[number]--; d.opened[number] > 0 {
			return nil
		}
		delete(d.opened, number)
		e := d.dir.qp(number)
		if e.number.Load() != number {
			gone = true
			return nil
		}
		e.unrefer(d.place)
		if gone = !d.used(e); gone {
			e.number.Store(0)
		}
		return nil
	})
	return gone, err
}

// ConnectQP says which initiator a target QP serves. ucs.ErrInvalidParam if this member
// does not refer to it, ucs.ErrInvalidState if it serves another.
func (d *Domain) ConnectQP(number uint32, gid [16]byte, qpn uint32) error {
	return d.change(func() error {
		e := d.entry(number)
		if e == nil || d.opened[number] == 0 {
			return noQP(number)
		}
		if e.srcQPN.Load() != 0 && !e.serves(gid, qpn) {
			return ucs.ErrInvalidState
		}
		e.connect(gid, qpn)
		return nil
	})
}

func noQP(number uint32) error {
	return fmt.Errorf("%w: target QP %#x", ucs.ErrInvalidParam, number)
}

// entry is the one of a target QP that is used; nil if there is none. Under the lock for
// changes.
func (d *Domain) entry(number uint32) *qpEntry {
	if e := d.dir.qp(number); number != 0 && e.number.Load() == number && d.used(e) {
		return e
	}
	return nil
}

// FindQP looks for the target QP that serves an initiator. Reads all entries.
func (d *Domain) FindQP(gid [16]byte, qpn uint32) (number uint32, found bool) {
	err := d.change(func() error {
		for i := range d.dir.qpsEnd() {
			e := d.dir.qp(i)
			if n := e.number.Load(); n%maxQPs == i && e.serves(gid, qpn) && d.entry(n) != nil {
				number, found = n, true
				return nil
			}
		}
		return nil
	})
	return number, found && err == nil
}

// QP is the target QP with a number; false if no member that is alive refers to it.
func (v *View) QP(number uint32) (TargetQP, bool) {
	e := v.dir.qp(number)
	if number == 0 || e.number.Load() != number || !v.used(e) {
		return TargetQP{}, false
	}
	q := e.read(number)
	return q, e.number.Load() == number
}

func (e *qpEntry) read(number uint32) TargetQP {
	return TargetQP{
		Number: number,
		SrcGID: gidOf([2]uint64{e.srcGID[0].Load(), e.srcGID[1].Load()}),
		SrcQPN: e.srcQPN.Load(),
		PID:    int(e.pid.Load()),
	}
}

// connect stores the initiator; the QPN last, as it publishes the GID.
func (e *qpEntry) connect(gid [16]byte, qpn uint32) {
	w := words(gid)
	e.srcQPN.Store(0)
	e.srcGID[0].Store(w[0])
	e.srcGID[1].Store(w[1])
	e.srcQPN.Store(qpn)
}

func (e *qpEntry) serves(gid [16]byte, qpn uint32) bool {
	w := words(gid)
	return qpn != 0 && e.srcQPN.Load() == qpn && e.srcGID[0].Load() == w[0] && e.srcGID[1].Load() == w[1]
}

func (e *qpEntry) refers(place int) bool { return e.refs[place/64].Load()&(1<<(place%64)) != 0 }

func (e *qpEntry) refer(place int) { e.refs[place/64].Or(1 << (place % 64)) }

func (e *qpEntry) unrefer(place int) { e.refs[place/64].And(^uint64(1 << (place % 64))) }

// drop takes the reference of a place back, and the QP with the last one.
func (e *qpEntry) drop(place int) {
	if !e.refers(place) {
		return
	}
	e.unrefer(place)
	for i := range e.refs {
		if e.refs[i].Load() != 0 {
			return
		}
	}
	e.number.Store(0)
}

func (e *qpEntry) clear() {
	for i := range e.refs {
		e.refs[i].Store(0)
	}
}
