// Package cma moves bytes between this process's memory and another's, by the
// kernel's cross-memory attach (process_vm_readv, process_vm_writev): one copy, no
// help from the other process, which may even be stopped.
//
// Whether the kernel permits it depends on the processes (same user, no
// set-uid), on the Yama module (kernel.yama.ptrace_scope of 1 or more allows it for
// descendants only), on seccomp filters (containers often forbid it) and on user
// namespaces. No setting tells beforehand: Probe finds out by doing it.
//
// # A pid may be used again
//
// The kernel takes a pid, not a pidfd. When a process has died and its parent has
// collected it, another process can get its pid. Therefore:
//   - call only while something that ends with the process, such as the link it was
//     attached by (attach.Link.Up), says that it lives;
//   - check that again after the call before believing what Read brought;
//   - Write cannot be undone: what remains is that the process dies, is collected,
//     and pid allocation wraps around to its pid between the check and the system
//     call. Then the bytes go to a process of the same user, if that has the
//     address mapped. Probe before the first use rules out a stale pid at that point.
//
// A process that replaces its program by execve keeps its pid; sockets that are
// close-on-exec, as those of attach, end then too.
package cma
