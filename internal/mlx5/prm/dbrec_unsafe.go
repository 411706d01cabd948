package prm

import (
	"math/bits"
	"unsafe"

	"golang.org/x/sys/cpu"

	"github.com/gucx/gucx/internal/mmio"
)

// dbRecLen is the length of a doorbell record: two big-endian words.
const dbRecLen = 8

// DBRec is a doorbell record, in memory that the driver writes and the device
// reads. A QP's has its receive counter and its send counter (the producer index
// in BBs), an SRQ's its counter, a CQ's its consumer index and arm word. Stores
// are release stores, also towards a device: after it has loaded a counter, the device reads valid entries, and
// after it has loaded a consumer index, it overwrites no entry that software still
// reads. Loads, by a device in software, are acquire loads and pair with them.
type DBRec struct{ p unsafe.Pointer }

// NewDBRec returns the record at p, which must be aligned to 8 bytes.
func NewDBRec(p unsafe.Pointer) DBRec { return DBRec{p} }

// Addr is the address of the record, for a device that finds it in memory.
func (d DBRec) Addr() uintptr { return uintptr(d.p) }

func (d DBRec) store(word uintptr, v uint32) {
	mmio.StoreRecord32(unsafe.Add(d.p, word*4), swap32(v))
}

func (d DBRec) load(word uintptr) uint32 {
	return swap32(mmio.LoadAcquire32(unsafe.Add(d.p, word*4)))
}

// StoreRecv sets the receive counter of a QP, or the counter of an SRQ.
func (d DBRec) StoreRecv(n uint16) { d.store(0, uint32(n)) }

// Recv is the receive counter of a QP, or the counter of an SRQ.
func (d DBRec) Recv() uint16 { return uint16(d.load(0)) }

// StoreSend sets the send counter.
func (d DBRec) StoreSend(n uint16) { d.store(1, uint32(n)) }

// Send is the send counter.
func (d DBRec) Send() uint16 { return uint16(d.load(1)) }

// StoreCI sets the consumer index of a CQ: 24 bits.
func (d DBRec) StoreCI(n uint32) { d.store(0, n&ciMask) }

// CI is the consumer index of a CQ: 24 bits.
func (d DBRec) CI() uint32 { return d.load(0) & ciMask }

// StoreArm sets the arm word of a CQ; see ArmWord.
func (d DBRec) StoreArm(w uint32) { d.store(1, w) }

// Arm is the arm word of a CQ.
func (d DBRec) Arm() uint32 { return d.load(1) }

// swap32 converts between host order and a big-endian word that was loaded without
// conversion.
func swap32(v uint32) uint32 {
	if cpu.IsBigEndian {
		return v
	}
	return bits.ReverseBytes32(v)
}
