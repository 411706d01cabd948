package counters

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// callNames are the system calls of gucx, perftest and the Go runtime.
var callNames = map[int]string{
	unix.SYS_READ: "read", unix.SYS_WRITE: "write", unix.SYS_PREAD64: "pread64", unix.SYS_READV: "readv", unix.SYS_WRITEV: "writev",
	unix.SYS_SENDTO: "sendto", unix.SYS_RECVFROM: "recvfrom", unix.SYS_SENDMSG: "sendmsg", unix.SYS_RECVMSG: "recvmsg",
	unix.SYS_SENDMMSG: "sendmmsg", unix.SYS_RECVMMSG: "recvmmsg", unix.SYS_SHUTDOWN: "shutdown",
	unix.SYS_SOCKET: "socket", unix.SYS_CONNECT: "connect", unix.SYS_ACCEPT4: "accept4",
	unix.SYS_GETSOCKOPT: "getsockopt", unix.SYS_SETSOCKOPT: "setsockopt", unix.SYS_IOCTL: "ioctl", unix.SYS_CLOSE: "close",
	unix.SYS_EPOLL_PWAIT: "epoll_pwait", unix.SYS_EPOLL_CTL: "epoll_ctl", unix.SYS_PPOLL: "ppoll", unix.SYS_EVENTFD2: "eventfd2",
	unix.SYS_TIMERFD_SETTIME: "timerfd_settime",
	unix.SYS_FUTEX:           "futex", unix.SYS_NANOSLEEP: "nanosleep", unix.SYS_CLOCK_NANOSLEEP: "clock_nanosleep",
	unix.SYS_CLOCK_GETTIME: "clock_gettime", unix.SYS_SCHED_YIELD: "sched_yield", unix.SYS_SCHED_GETAFFINITY: "sched_getaffinity",
	unix.SYS_MMAP: "mmap", unix.SYS_MUNMAP: "munmap", unix.SYS_MADVISE: "madvise", unix.SYS_MPROTECT: "mprotect",
	unix.SYS_PROCESS_VM_READV: "process_vm_readv", unix.SYS_PROCESS_VM_WRITEV: "process_vm_writev",
	unix.SYS_RT_SIGRETURN: "rt_sigreturn", unix.SYS_RT_SIGPROCMASK: "rt_sigprocmask", unix.SYS_SIGALTSTACK: "sigaltstack",
	unix.SYS_GETPID: "getpid", unix.SYS_GETTID: "gettid", unix.SYS_GETPPID: "getppid", unix.SYS_TGKILL: "tgkill",
	unix.SYS_CLONE: "clone", unix.SYS_EXIT: "exit", unix.SYS_GETRUSAGE: "getrusage",
}

// callName returns the name of a system call, or its number.
func callName(number int) string {
	if name, ok := callNames[number]; ok {
		return name
	}
	return fmt.Sprintf("syscall %d", number)
}
