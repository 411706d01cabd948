package xrcdomain

import (
	"sync/atomic"
	"unsafe"

	"github.com/gucx/gucx/internal/memfd"
	"github.com/gucx/gucx/ucs"
)

// The directory is in native byte order, as all processes that map it run on one machine.
const (
	layoutMagic   = 0x6763_7872 // "gcxr"
	layoutVersion = 4

	maxMembers = 1 << 10
	maxSlots   = 1 << 16 // of a device
	maxQPs     = 1 << 15

	headerLen = 4096
	memberLen = 32
	slotLen   = 4 << variantBits // a word for each number of a slot
	qpLen     = 256

	membersAt = headerLen
	slotsAt   = membersAt + maxMembers*memberLen
	qpsAt     = slotsAt + maxSlots*slotLen // address space: the kernel allocates pages on first access
	// layoutLen is a multiple of all page sizes, so that the segment has the same length on all machines.
	layoutLen = (qpsAt + maxQPs*qpLen + longestPage - 1) / longestPage * longestPage

	// longestPage is that of arm64 with CONFIG_ARM64_64K_PAGES.
	longestPage = 64 << 10
)

// Bytes of the file for locks, which may be behind its end.
const (
	lifeByte   = 1 << 30 // of place 0; the other places follow
	changeByte = lifeByte - 1
)

// header is the start of the directory.
type header struct {
	magic    atomic.Uint32 // stored last
	version  atomic.Uint32
	dev      atomic.Uint64 // of the inode
	ino      atomic.Uint64
	slotsEnd atomic.Uint32 // slots from this one on were never used
	qpsEnd   atomic.Uint32 // entries from this one on were never used
}

// member is a device of a process. It is valid while the lock of its place is held.
type member struct {
	gid   [2]atomic.Uint64
	pid   atomic.Uint32
	joins atomic.Uint32 // number of members at the place so far
	_     [8]byte
}

// Area is the data of the devices for a target QP: 64 bytes, aligned to 64.
type Area [8]atomic.Uint64

const areaLen = int(unsafe.Sizeof(Area{}))

// qpEntry is a target QP. number is stored last on creation and cleared first on removal.
type qpEntry struct {
	number atomic.Uint32 // 0: free
	serial atomic.Uint32 // count of numbers that the entry has had
	_      [areaLen - 8]byte
	area   Area
	refs   [maxMembers / 64]atomic.Uint64 // bit mask of the members that refer to it
}

var (
	_ = [1]struct{}{}[unsafe.Sizeof(member{})-memberLen]
	_ = [1]struct{}{}[unsafe.Sizeof(qpEntry{})-qpLen]
)

// directory is a view of a segment of layoutLen bytes, which is page aligned; indexes are in range by
// construction or by the caller's check.
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

// srq returns the word of an SRQ number of 24 bits: see srq.go.
func (d directory) srq(number uint32) *atomic.Uint32 {
	slot, variant := number%maxSlots, number>>slotBits%(1<<variantBits)
	return (*atomic.Uint32)(unsafe.Add(d.base, slotsAt+int(slot)*slotLen+int(variant)*4))
}

func (d directory) qp(i uint32) *qpEntry {
	return (*qpEntry)(unsafe.Add(d.base, qpsAt+int(i%maxQPs)*qpLen))
}

// Footprint returns the number of bytes of the directory that all members together have written, and
// of the rest, which is only address space.
func (v *View) Footprint() (used, reserved int64) {
	pages := func(n int) int64 { return int64(n+headerLen-1) / headerLen * headerLen } // headerLen is a page
	used = headerLen + pages(maxMembers*memberLen)
	used += pages(int(v.dir.slotsEnd())*slotLen) + pages(int(v.dir.qpsEnd())*qpLen)
	return used, layoutLen - used
}

// slotsEnd returns the number of slots that may have been used.
func (d directory) slotsEnd() uint32 { return min(d.header().slotsEnd.Load(), maxSlots) }

// qpsEnd returns the number of entries that may have been used.
func (d directory) qpsEnd() uint32 { return min(d.header().qpsEnd.Load(), maxQPs) }

func (d directory) format(id inode) {
	h := d.header()
	h.version.Store(layoutVersion)
	h.dev.Store(id.dev)
	h.ino.Store(id.ino)
	h.magic.Store(layoutMagic)
}

// check returns an error unless the directory is that of the inode.
func (d directory) check(id inode) error {
	h := d.header()
	if h.magic.Load() != layoutMagic || h.version.Load() != layoutVersion ||
		h.dev.Load() != id.dev || h.ino.Load() != id.ino {
		return ucs.ErrInvalidAddr
	}
	return nil
}

// words returns a GID as two words in memory order.
func words(gid [16]byte) [2]uint64 { return *(*[2]uint64)(unsafe.Pointer(&gid)) }

// gidOf is the inverse of words.
func gidOf(w [2]uint64) [16]byte { return *(*[16]byte)(unsafe.Pointer(&w)) }
