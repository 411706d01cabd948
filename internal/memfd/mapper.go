package memfd

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Mapper maps memory files of other processes. All segments of a file share one mapping. It has only the
// length that a segment needs, because address space is limited and files are sparse.
// The zero value is ready. Any goroutine may call its methods.
type Mapper struct {
	mu    sync.Mutex
	files map[fileID]*mappedFile
}

// fileID identifies a memory file, as long as it is open or mapped in some process, and an access.
type fileID struct {
	dev, ino uint64
	access   Access
}

// mappedFile is a file with at least one segment.
type mappedFile struct {
	id    fileID
	found       // size, page, huge
	fd    int   // -1: all of it is mapped
	users int   // number of segments
	view  *view // the longest mapping
}

// view is one mapping, from the start of the file.
type view struct {
	mem   []byte
	users int // number of segments, plus 1 if mappedFile.view refers to it
}

// Adopt is the function Adopt, but the segment has at least the first mapLen bytes, and Grow maps
// more. The length of the file must be within [minLen, maxLen].
func (m *Mapper) Adopt(fd int, access Access, minLen, maxLen, mapLen int) (*Segment, error) {
	f, err := m.file(fd, access, minLen, maxLen)
	if err != nil {
		return nil, err
	}
	return m.segmentOf(f, mapLen)
}

// AdoptOwn is Adopt of a segment that this process has created and whose descriptor is open. It makes no system call if the
// file is mapped already. Errors: system call errors.
func (m *Mapper) AdoptOwn(own *Segment, access Access, mapLen int) (*Segment, error) {
	id := fileID{own.made.dev, own.made.ino, access &^ HugePages}
	f, err := m.ownFile(own, id)
	if err != nil {
		return nil, err
	}
	return m.segmentOf(f, mapLen)
}

// ownFile returns the file of own, with one more user.
func (m *Mapper) ownFile(own *Segment, id fileID) (*mappedFile, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := m.files[id]
	if f == nil {
		fd, err := own.duplicate()
		if err != nil {
			return nil, err
		}
		f = m.add(&mappedFile{id: id, found: found{int64(len(own.mem)), own.made.page, own.huge}, fd: fd})
	}
	f.users++
	return f, nil
}

// segmentOf returns a segment of at least mapLen bytes of f. The caller has counted it in f.users.
func (m *Mapper) segmentOf(f *mappedFile, mapLen int) (*Segment, error) {
	s := &Segment{fd: -1, mapper: m, file: f, huge: f.huge}
	if err := s.Grow(mapLen); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// file returns the file of fd, with one more user. It closes fd, or the file owns it.
func (m *Mapper) file(fd int, access Access, minLen, maxLen int) (*mappedFile, error) {
	found, id, err := identify(fd, access, minLen, maxLen)
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	f := m.files[id]
	if f != nil {
		_ = unix.Close(fd)
	} else {
		f = m.add(&mappedFile{id: id, found: found, fd: fd})
	}
	f.users++
	return f, nil
}

// add adds a file. The mapper is locked.
func (m *Mapper) add(f *mappedFile) *mappedFile {
	if m.files == nil {
		m.files = map[fileID]*mappedFile{}
	}
	m.files[f.id] = f
	return f
}

func identify(fd int, access Access, minLen, maxLen int) (found, fileID, error) {
	f, err := acceptable(fd, access, minLen, maxLen)
	if err != nil {
		return f, fileID{}, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return f, fileID{}, os.NewSyscallError("fstat", err)
	}
	return f, fileID{uint64(st.Dev), st.Ino, access &^ HugePages}, nil
}

// FileLen returns the length of the file of an adopted segment, of which Bytes may contain
// only a part.
func (s *Segment) FileLen() int {
	if s.file == nil {
		return len(s.mem)
	}
	return int(s.file.size)
}

// Grow maps at least n bytes. Afterwards Bytes returns another slice, and the caller must not use the
// previous one; an error changes nothing. Only the owner may call it, for a segment from a
// Mapper. Errors: ErrSize beyond FileLen, system call errors.
func (s *Segment) Grow(n int) error {
	if n <= len(s.mem) {
		return nil
	}
	if n > s.FileLen() {
		return fmt.Errorf("%w: %d bytes, the file has %d", ErrSize, n, s.FileLen())
	}
	s.mapper.mu.Lock()
	defer s.mapper.mu.Unlock()
	if err := s.file.stretch(n); err != nil {
		return err
	}
	old := s.view
	s.view = s.file.view
	s.view.users++
	s.mem = s.view.mem
	return old.drop()
}

// Clone returns another segment with the mapping of s, which exists until both are closed. Only the owner may call it,
// for a segment from a Mapper or a Pool.
func (s *Segment) Clone() *Segment {
	if s.part != nil {
		return &Segment{mem: s.mem, fd: -1, part: s.part.clone()}
	}
	s.mapper.mu.Lock()
	defer s.mapper.mu.Unlock()
	s.file.users++
	if s.view != nil {
		s.view.users++
	}
	return &Segment{mem: s.mem, huge: s.huge, mapper: s.mapper, file: s.file, view: s.view, fd: -1}
}

// stretch makes the view at least n bytes long. The mapper is locked.
func (f *mappedFile) stretch(n int) error {
	if f.view != nil && n <= len(f.view.mem) {
		return nil
	}
	mem, err := mapFile(f.fd, f.step(n), f.id.access, f.huge)
	if err != nil {
		return err
	}
	old := f.view
	f.view = &view{mem: mem, users: 1}
	if len(mem) == int(f.size) {
		err = os.NewSyscallError("close", unix.Close(f.fd))
		f.fd = -1
	}
	return errors.Join(err, old.drop())
}

// minStep is the minimum length of a mapping, if the file is not shorter.
const minStep = 2 << 20

// step returns the length to map if n bytes are needed: up to a quarter more, so that a file
// of which ever more is used is mapped anew only a few times.
func (f *mappedFile) step(n int) int {
	unit := max(minStep, 1<<bits.Len(uint(n))>>3, f.page)
	return min((n+unit-1)/unit*unit, int(f.size))
}

// drop removes a user, and unmaps v with the last one. v may be nil.
func (v *view) drop() error {
	if v == nil {
		return nil
	}
	if v.users--; v.users > 0 {
		return nil
	}
	return munmap(v.mem)
}

// release is Close of a segment from a Mapper.
func (m *Mapper) release(s *Segment) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := s.view.drop()
	if s.file.users--; s.file.users > 0 {
		return err
	}
	delete(m.files, s.file.id)
	err = errors.Join(err, s.file.view.drop())
	if s.file.fd >= 0 {
		err = errors.Join(err, os.NewSyscallError("close", unix.Close(s.file.fd)))
	}
	return err
}
