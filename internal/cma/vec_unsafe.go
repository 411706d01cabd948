package cma

import (
	"encoding/binary"
	"math"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Vec contains the arguments of a transfer in memory, so that a transfer allocates
// nothing. The zero value is ready. Not for concurrent use.
type Vec struct {
	local  unix.Iovec
	remote unix.RemoteIovec
	nonce  [8]byte
}

// Read fills dst with len(dst) bytes from address raddr of process pid. It blocks for
// the time of the copy. After an error the
// contents of dst are unspecified. The process may write to the memory at the same time.
//
// Errors: ErrForbidden, ErrGone, ErrBadRange, ErrNoMemory, ErrUnsupported.
func (v *Vec) Read(pid int, dst []byte, raddr uint64) error {
	return v.transfer(unix.SYS_PROCESS_VM_READV, pid, dst, raddr)
}

// Write copies src to address raddr of process pid. It blocks for the time of the
// copy. After an error a part may have been
// written. Errors: as Read.
func (v *Vec) Write(pid int, src []byte, raddr uint64) error {
	return v.transfer(unix.SYS_PROCESS_VM_WRITEV, pid, src, raddr)
}

// Probe returns nil if transfers with process pid are permitted. It reads 8
// bytes at raddr, where the process has stored want, a random number that it has published,
// in the byte order of the machine.
//
// Errors: those of Read, and ErrOtherProcess.
func (v *Vec) Probe(pid int, raddr, want uint64) error {
	if err := v.Read(pid, v.nonce[:], raddr); err != nil {
		return err
	}
	if binary.NativeEndian.Uint64(v.nonce[:]) != want {
		return ErrOtherProcess
	}
	return nil
}

// transfer repeats the call until all bytes are copied: a call copies at most 2 GiB
// minus one page, and stops before a page that is not accessible.
func (v *Vec) transfer(trap uintptr, pid int, local []byte, raddr uint64) error {
	if len(local) == 0 {
		return nil
	}
	if raddr > math.MaxUint64-uint64(len(local)) {
		return ErrBadRange
	}
	if pid <= 0 {
		return ErrGone
	}
	for len(local) > 0 {
		n, errno := v.call(trap, pid, local, raddr)
		switch {
		case errno == unix.EINTR:
			continue
		case errno != 0:
			return v.failure(trap, errno)
		case n <= 0 || n > len(local):
			return ErrBadRange
		}
		local = local[n:]
		raddr += uint64(n)
	}
	return nil
}

// call makes one system call. Its pointers point into v, which Syscall6
// keeps alive (unsafe.Pointer rule 4); v refers to local until the system call has returned.
func (v *Vec) call(trap uintptr, pid int, local []byte, raddr uint64) (int, unix.Errno) {
	v.local.Base = unsafe.SliceData(local)
	v.local.SetLen(len(local))
	v.remote.Base = uintptr(raddr)
	v.remote.Len = len(local)
	n, _, errno := unix.Syscall6(trap, uintptr(pid),
		uintptr(unsafe.Pointer(&v.local)), 1, uintptr(unsafe.Pointer(&v.remote)), 1, 0)
	v.local.Base = nil // do not keep the caller's memory alive
	return int(n), errno
}

//go:noinline
func (v *Vec) failure(trap uintptr, errno unix.Errno) error {
	if trap == unix.SYS_PROCESS_VM_WRITEV {
		return fromErrno("process_vm_writev", errno)
	}
	return fromErrno("process_vm_readv", errno)
}
