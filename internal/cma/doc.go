// Package cma copies bytes between the memory of this process and of another one, by the
// kernel's cross-memory attach (process_vm_readv, process_vm_writev). The other process executes
// nothing and may be stopped.
//
// Whether the kernel permits it depends on the processes (same user, no
// set-uid), on the Yama module (kernel.yama.ptrace_scope of 1 or more allows it for
// descendants only), on seccomp filters (containers often forbid it) and on user
// namespaces. Probe finds out by a transfer.
//
// # A PID may be used again
//
// The system calls have a PID as argument, not a pidfd. After a process has died and its parent has
// reaped it, another process can get its PID. Therefore:
//   - call only while the process is alive, according to an object that ends with the process, such as its
//     link (attach.Link.Up);
//   - check that again after Read before you use the bytes;
//   - Write cannot be undone. If the process dies, is reaped, and its PID is assigned again
//     between the check and the system call, the bytes are written to another process of the same
//     user, if it has mapped the address. Probe before the first use detects a stale PID.
//
// A process that replaces its program by execve keeps its pid; sockets that are
// close-on-exec, as those of attach, end then too.
package cma
