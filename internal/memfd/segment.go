package memfd

import (
	"errors"
	"fmt"
	"math"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Errors of a size or a descriptor, for errors.Is. On a kernel
// without memfd the error matches errors.ErrUnsupported.
var (
	// ErrSize: a length is zero, negative, above a limit of the process, or
	// outside the bounds of Adopt.
	ErrSize = errors.New("segment length out of bounds")
	// ErrKind: the descriptor is not an anonymous memory file.
	ErrKind = errors.New("descriptor is not a memory file")
	// ErrUnsealed: the length of the file is not fixed by seals.
	ErrUnsealed = errors.New("memory file is not sealed against resizing")
)

// Sharing determines what processes that get the descriptor of a segment may do with it.
type Sharing uint8

const (
	// PeersRead permits only the creator to write.
	PeersRead Sharing = iota
	// PeersWrite permits all of them to write.
	PeersWrite
)

// Access is the type of mapping that Adopt makes.
type Access uint8

const (
	// ReadOnly maps for reading; a store to Bytes is a fault.
	ReadOnly Access = iota
	// ReadWrite maps for reading and writing.
	ReadWrite
	// HugePages, added to one of the others, also accepts files of CreateHuge. A process that can write
	// to such a file can remove pages, after which an access raises SIGBUS. So use it only
	// for peers that could end this process anyway.
	HugePages
)

// Segment is one mapping of a memory file. Any goroutine may call its methods. When Close is called,
// no goroutine may use the memory.
type Segment struct {
	mem  []byte
	huge bool

	mapper *Mapper     // of a segment from a Mapper
	file   *mappedFile // with mapper
	view   *view       // with mapper
	part   *part       // of a segment from a Pool
	made   madeFile    // of a segment from Create

	mu       sync.Mutex
	fd       int // -1: none
	unmapped bool
}

// madeFile identifies the file of a segment that this process has created.
type madeFile struct {
	dev, ino uint64
	page     int
}

// Create makes a zeroed segment of at least size bytes (rounded up to whole
// pages) and maps it for reading and writing. The segment is sparse: only pages
// that were accessed use memory, so size may be far larger than the machine's
// memory. name appears in /proc/<pid>/maps and need not be unique.
//
// Errors: ErrSize, errors.ErrUnsupported, system call errors. The text of an error names RLIMIT_AS if
// the mapping does not fit the address space.
func Create(name string, size int, sharing Sharing) (*Segment, error) {
	return newSegment(name, size, sharing, 0)
}

// hugePool is the setting for the size of the pool of huge pages.
const hugePool = "vm.nr_hugepages"

// ErrNoHugePages: the pool of huge pages has not enough pages that are not reserved. It
// matches errors.ErrUnsupported.
var ErrNoHugePages = fmt.Errorf("%w: not enough free huge pages", errors.ErrUnsupported)

// CreateHuge is Create with huge pages of the default size. It reserves all of them:
// the segment is not sparse.
//
// Errors: those of Create, and ErrNoHugePages.
func CreateHuge(name string, size int, sharing Sharing) (*Segment, error) {
	return newSegment(name, size, sharing, unix.MFD_HUGETLB)
}

func newSegment(name string, size int, sharing Sharing, extra int) (_ *Segment, err error) {
	fd, err := newFile(name, extra)
	if err != nil {
		return nil, err
	}
	s := &Segment{fd: fd}
	defer func() {
		if err != nil {
			_ = s.Close()
		}
	}()
	page, huge, err := pageOf(fd)
	if err != nil {
		return nil, err
	}
	s.huge = huge
	if size, err = roundUp(size, page); err != nil {
		return nil, err
	}
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		return nil, fmt.Errorf("memory file of %d bytes: %w", size, os.NewSyscallError("ftruncate", err))
	}
	if s.mem, err = mapFile(fd, size, ReadWrite, huge); err != nil {
		return nil, err
	}
	if s.made, err = identifyMade(fd, page); err != nil {
		return nil, err
	}
	if err := sealFile(fd, sharing); err != nil {
		return nil, err
	}
	if sharing == PeersRead {
		err = s.narrow()
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

func identifyMade(fd, page int) (madeFile, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return madeFile{}, os.NewSyscallError("fstat", err)
	}
	return madeFile{dev: uint64(st.Dev), ino: st.Ino, page: page}, nil
}

// duplicate returns another descriptor of the file, which the caller must close.
func (s *Segment) duplicate() (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fd, err := unix.FcntlInt(uintptr(s.fd), unix.F_DUPFD_CLOEXEC, 0)
	return fd, os.NewSyscallError("fcntl F_DUPFD_CLOEXEC", err)
}

// Adopt maps the segment of a descriptor from another process. It always
// closes fd; FD of the segment returns -1.
// The length of the file must be within [minLen, maxLen], in bytes.
//
// Errors: ErrKind, ErrUnsealed, ErrSize, system call errors.
func Adopt(fd int, access Access, minLen, maxLen int) (*Segment, error) {
	defer func() { _ = unix.Close(fd) }()
	f, err := acceptable(fd, access, minLen, maxLen)
	if err != nil {
		return nil, err
	}
	mem, err := mapFile(fd, int(f.size), access, f.huge)
	if err != nil {
		return nil, err
	}
	return &Segment{mem: mem, fd: -1, huge: f.huge}, nil
}

// acceptable is inspect, and checks that the file may be mapped for access by this descriptor, and how long it is.
func acceptable(fd int, access Access, minLen, maxLen int) (found, error) {
	f, err := inspect(fd)
	if err != nil {
		return f, err
	}
	mode, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	switch mode &= unix.O_ACCMODE; {
	case err != nil:
		return f, os.NewSyscallError("fcntl F_GETFL", err)
	case mode == unix.O_WRONLY || mode == unix.O_RDONLY && access&ReadWrite != 0:
		return f, fmt.Errorf("the descriptor does not permit the access: %w", unix.EACCES)
	case f.huge && access&HugePages == 0:
		return f, fmt.Errorf("%w: huge pages are not taken from there", ErrKind)
	case f.size < int64(minLen) || f.size > int64(maxLen) || f.size == 0:
		return f, fmt.Errorf("%w: %d bytes, want %d to %d", ErrSize, f.size, minLen, maxLen)
	}
	return f, nil
}

// Bytes returns the mapped memory, page aligned, valid until Close. It is the whole
// file or, for a segment from a Mapper, a part from its start.
func (s *Segment) Bytes() []byte { return s.mem }

// FD returns the descriptor to send to other processes; -1 if there is none (adopted
// segment, or after DropFD or Close). For a PeersRead segment it is open for reading
// only. The segment owns it: do not close it.
func (s *Segment) FD() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fd
}

// DropFD closes the descriptor and not the mapping. Use it when no further peer
// will get the segment. Idempotent.
func (s *Segment) DropFD() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dropFD()
}

// Close unmaps the memory and closes the descriptor. Idempotent. No goroutine may
// access Bytes afterwards.
func (s *Segment) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.dropFD()
	if s.unmapped || s.mem == nil && s.file == nil {
		return err
	}
	s.unmapped = true
	if s.part != nil {
		return s.part.release()
	}
	if s.file != nil {
		return s.mapper.release(s)
	}
	return errors.Join(err, munmap(s.mem))
}

func (s *Segment) dropFD() error {
	if s.fd < 0 {
		return nil
	}
	fd := s.fd
	s.fd = -1
	return os.NewSyscallError("close", unix.Close(fd))
}

// narrow replaces the descriptor by another one that is open for reading only.
func (s *Segment) narrow() error {
	fd, err := reopenReadOnly(s.fd)
	if err != nil {
		return err
	}
	err = s.dropFD()
	s.fd = fd
	return err
}

// roundUp rounds size up to whole pages. It rejects a size above RLIMIT_FSIZE,
// for which the kernel would raise SIGXFSZ, which ends a Go program.
func roundUp(size, page int) (int, error) {
	if size <= 0 || size > math.MaxInt-page {
		return 0, fmt.Errorf("%w: %d bytes", ErrSize, size)
	}
	size = (size + page - 1) / page * page
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &lim); err != nil {
		return 0, os.NewSyscallError("getrlimit", err)
	}
	if uint64(size) > lim.Cur {
		return 0, fmt.Errorf("%w: %d bytes, RLIMIT_FSIZE is %d", ErrSize, size, lim.Cur)
	}
	return size, nil
}
