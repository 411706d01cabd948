package memfd

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// fixedLen are the seals that keep a file's length as it is.
const fixedLen = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW

// newFile makes an empty memory file. MFD_NOEXEC_SEAL (Linux 6.3) is asked for
// first, since vm.memfd_noexec may demand it; older kernels do not know it.
func newFile(name string) (int, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
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

// sealFile fixes the length and, for PeersRead, bars new writable mappings. The
// caller's mapping exists already and is not affected. F_SEAL_FUTURE_WRITE is
// from Linux 5.1; before that the read-only descriptor is the only barrier.
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

// inspect returns the length of a file from another process after making sure
// that it is a memory file whose length is fixed. Memory files on hugetlbfs are
// refused: a missing huge page would be a SIGBUS.
func inspect(fd int) (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, os.NewSyscallError("fstat", err)
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return 0, os.NewSyscallError("fstatfs", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || int64(fs.Type) != unix.TMPFS_MAGIC {
		return 0, fmt.Errorf("%w: mode %#o, file system %#x", ErrKind, st.Mode, fs.Type)
	}
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrKind, os.NewSyscallError("fcntl F_GET_SEALS", err))
	}
	if seals&fixedLen != fixedLen {
		return 0, fmt.Errorf("%w: seals %#x", ErrUnsealed, seals)
	}
	return st.Size, nil
}

// mapFile maps the whole file, reserving no swap for it.
func mapFile(fd, size int, access Access) ([]byte, error) {
	prot := unix.PROT_READ
	if access == ReadWrite {
		prot |= unix.PROT_WRITE
	}
	mem, err := unix.Mmap(fd, 0, size, prot, unix.MAP_SHARED|unix.MAP_NORESERVE)
	if errors.Is(err, unix.ENOMEM) {
		return nil, fmt.Errorf("map %d bytes: no room in the address space (RLIMIT_AS, vm.max_map_count): %w",
			size, os.NewSyscallError("mmap", err))
	}
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", size, os.NewSyscallError("mmap", err))
	}
	_ = unix.Madvise(mem, unix.MADV_DONTDUMP) // a core dump that is too large is no reason to fail
	return mem, nil
}
