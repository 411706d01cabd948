package memfd

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// fixedLen are the seals that fix the length of a file.
const fixedLen = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW

// newFile makes an empty memory file; extra is 0 or MFD_HUGETLB. It first tries MFD_NOEXEC_SEAL
// (Linux 6.3), which vm.memfd_noexec may require; older kernels reject it.
func newFile(name string, extra int) (int, error) {
	flags := unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING | extra
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) {
		fd, err = unix.MemfdCreate(name, flags)
	}
	if errors.Is(err, unix.ENOSYS) {
		return -1, fmt.Errorf("memfd_create needs Linux 3.17 and no seccomp filter against it: %w", errors.ErrUnsupported)
	}
	if err != nil {
		return -1, os.NewSyscallError("memfd_create", err)
	}
	return fd, nil
}

// pageOf returns the page size of the file system of a memory file.
func pageOf(fd int) (page int, huge bool, err error) {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return 0, false, os.NewSyscallError("fstatfs", err)
	}
	switch int64(fs.Type) {
	case unix.TMPFS_MAGIC:
		return os.Getpagesize(), false, nil
	case unix.HUGETLBFS_MAGIC:
		return int(fs.Bsize), true, nil
	}
	return 0, false, fmt.Errorf("%w: file system %#x", ErrKind, fs.Type)
}

// sealFile fixes the length and, for PeersRead, prevents new writable mappings. The
// caller's mapping exists already and is not affected. Before Linux 5.1, which has
// F_SEAL_FUTURE_WRITE, only the read-only descriptor prevents them.
func sealFile(fd int, sharing Sharing) error {
	seals := fixedLen | unix.F_SEAL_SEAL
	if sharing == PeersRead {
		err := addSeals(fd, seals|unix.F_SEAL_FUTURE_WRITE)
		if !errors.Is(err, unix.EINVAL) {
			return err
		}
	}
	return addSeals(fd, seals)
}

func addSeals(fd, seals int) error {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	return os.NewSyscallError("fcntl F_ADD_SEALS", err)
}

// reopenReadOnly opens the file behind fd again. A duplicate would share fd's mode.
func reopenReadOnly(fd int) (int, error) {
	path := fmt.Sprintf("/proc/self/fd/%d", fd)
	ro, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open read-only", Path: path, Err: err}
	}
	return ro, nil
}

// found is the result of inspect.
type found struct {
	size int64
	page int
	huge bool
}

// inspect checks that a file from another process is a memory file of fixed length. It checks
// the seals before it reads the length: without them the peer could change the length in between.
func inspect(fd int) (f found, err error) {
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return f, fmt.Errorf("%w: %w", ErrKind, os.NewSyscallError("fcntl F_GET_SEALS", err))
	}
	if f.page, f.huge, err = pageOf(fd); err != nil {
		return f, err
	}
	if seals&fixedLen != fixedLen {
		return f, fmt.Errorf("%w: seals %#x", ErrUnsealed, seals)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return f, os.NewSyscallError("fstat", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return f, fmt.Errorf("%w: mode %#o", ErrKind, st.Mode)
	}
	f.size = st.Size
	return f, nil
}

// mapFile maps size bytes of a file, a multiple of its page size. It reserves no swap space, but it
// reserves huge pages, so that every later access finds one.
func mapFile(fd, size int, access Access, huge bool) ([]byte, error) {
	prot, flags := unix.PROT_READ, unix.MAP_SHARED
	if access&ReadWrite != 0 {
		prot |= unix.PROT_WRITE
	}
	if !huge {
		flags |= unix.MAP_NORESERVE
	}
	mem, err := mmap(fd, size, prot, flags)
	switch {
	case err == nil:
		_ = unix.Madvise(mem, unix.MADV_DONTDUMP) // a core dump that is too large is no reason to fail
		return mem, nil
	case errors.Is(err, errMapCount):
		return nil, fmt.Errorf("map %d bytes: %w", size, err)
	case errors.Is(err, unix.ENOMEM) && huge:
		return nil, fmt.Errorf("%w: %d bytes, see %s", ErrNoHugePages, size, hugePool)
	case errors.Is(err, unix.ENOMEM):
		return nil, fmt.Errorf("map %d bytes: no room in the address space: raise RLIMIT_AS (ulimit -v) or vm.max_map_count: %w",
			size, os.NewSyscallError("mmap", err))
	}
	return nil, fmt.Errorf("map %d bytes: %w", size, os.NewSyscallError("mmap", err))
}
