package xrcdomain

import (
	"sync/atomic"
	"unsafe"

	"github.com/gucx/gucx/internal/memfd"
	"github.com/gucx/gucx/ucs"
)

// The directory, in native order, as all who map it run on one machine.
const (
	layoutMagic   = 0x6763_7872 // "gcxr"
	layoutVersion = 4

	maxMembers = 1 << 10
	maxSlots   = 1 << 16 // of a device
	maxQPs     = 1 << 15

	headerLen = 4096
	memberLen = 32
	slotLen   = 4 << variantBits // a word for each number that a slot can have
	qpLen     = 256

	membersAt = headerLen
	slotsAt   = membersAt + maxMembers*memberLen
	qpsAt     = slotsAt + maxSlots*slotLen // address space: pages are taken when touched
	// layoutLen is in whole pages of any machine, so that the segment is as long everywhere.
	layoutLen = (qpsAt + maxQPs*qpLen + longestPage - 1) / longestPage * longestPage

	// longestPage is that of arm64 with CONFIG_ARM64_64K_PAGES.
	longestPage = 64 << 10
)

// Bytes of the file that locks are taken of. Locks are no data: they may lie behind its end.
const (
	lifeByte   = 1 << 30 // and those behind: one for each place
	changeByte = lifeByte - 1
)

// header is the start of the directory.
type header struct {
	magic    atomic.Uint32 // stored last
	version  atomic.Uint32
	dev      atomic.Uint64 // of the inode
	ino      atomic.Uint64
	slotsEnd atomic.Uint32 // slots from here on have never been used
	qpsEnd   atomic.Uint32 // entries from here on have never been used
}

// member is a device of a process. It is valid while the lock of its place is held.
type member struct {
	gid   [2]atomic.Uint64
	pid   atomic.Uint32
	joins atomic.Uint32 // how many there have been at the place
	_     [8]byte
}

// Area is what the devices of a domain keep of a target QP: 64 bytes, aligned to that.
type Area [8]atomic.Uint64

const areaLen = int(unsafe.Sizeof(Area{}))

// qpEntry is a target QP. number is stored last when it appears and cleared first.
type qpEntry struct {
	number atomic.Uint32 // 0: free
	serial atomic.Uint32 // how many numbers it has had
	_      [areaLen - 8]byte
	area   Area
	refs   [maxMembers / 64]atomic.Uint64 // which members refer to it
}

var (
	_ = [1]struct{}{}[unsafe.Sizeof(member{})-memberLen]
	_ = [1]struct{}{}[unsafe.Sizeof(qpEntry{})-qpLen]
)

// directory is a view of a segment of layoutLen bytes, which is page aligned; places are
// in range by construction or by the caller's check.
type directory struct {
	seg  *memfd.Segment
	base unsafe.Pointer
}

func viewOf(seg *memfd.Segment) directory {
	return directory{seg, unsafe.Pointer(unsafe.SliceData(seg.Bytes()))}
}

func (d directory) header() *header { return (*header)(d.base) }

func (d directory) member(place int) *member {
	return (*member)(unsafe.Add(d.base, membersAt+place*memberLen))
}

// srq is the word of an SRQ number, 24 bits: see srq.go.
func (d directory) srq(number uint32) *atomic.Uint32 {
	slot, variant := number%maxSlots, number>>slotBits%(1<<variantBits)
	return (*atomic.Uint32)(unsafe.Add(d.base, slotsAt+int(slot)*slotLen+int(variant)*4))
}

func (d directory) qp(i uint32) *qpEntry {
	return (*qpEntry)(unsafe.Add(d.base, qpsAt+int(i%maxQPs)*qpLen))
}

// Footprint is how many bytes of the directory have been written, by all members together, and
// how many more are address space.
func (v *View) Footprint() (used, reserved int64) {
	pages := func(n int) int64 { return int64(n+headerLen-1) / headerLen * headerLen } // a page is as long
	used = headerLen + pages(maxMembers*memberLen)
	used += pages(int(v.dir.slotsEnd())*slotLen) + pages(int(v.dir.qpsEnd())*qpLen)
	return used, layoutLen - used
}

// slotsEnd is how many slots may have been used.
func (d directory) slotsEnd() uint32 { return min(d.header().slotsEnd.Load(), maxSlots) }

// qpsEnd is how many entries may have been used.
func (d directory) qpsEnd() uint32 { return min(d.header().qpsEnd.Load(), maxQPs) }

func (d directory) format(id inode) {
	h := d.header()
	h.version.Store(layoutVersion)
	h.dev.Store(id.dev)
	h.ino.Store(id.ino)
	h.magic.Store(layoutMagic)
}

// check makes sure that the directory is one of the inode.
func (d directory) check(id inode) error {
	h := d.header()
	if h.magic.Load() != layoutMagic || h.version.Load() != layoutVersion ||
		h.dev.Load() != id.dev || h.ino.Load() != id.ino {
		return ucs.ErrInvalidAddr
	}
	return nil
}

// words is a GID as two words in memory order.
func words(gid [16]byte) [2]uint64 { return *(*[2]uint64)(unsafe.Pointer(&gid)) }

// gidOf is the reverse of words.
func gidOf(w [2]uint64) [16]byte { return *(*[16]byte)(unsafe.Pointer(&w)) }
