// Package ptrace runs a program and records, one instruction at a time, what a
// thread of it executes between two marks. It needs no performance counters and
// no privilege: the kernel single-steps a child for its parent (ptrace(2)).
//
//	parent                         child
//	Run ── fork, PTRACE_TRACEME ──> exec
//	   <── trap ──────────────────  Begin(tag)
//	   ── stop the other threads, PTRACE_SINGLESTEP ... ──>  the operation
//	   <── trap ──────────────────  End()
//	   Window{Tag, Steps}
//
// Parent and child share one CPU, which makes a step three times as fast as on
// two. While a window is recorded the other threads of the child stand still, so
// that the runtime's monitor cannot preempt the operation and every repetition
// counts the same; once the operation enters the kernel they run again, because
// it may wait for one of them.
//
// The begin and end marks are trap instructions. A program that is not traced is
// killed by them (SIGTRAP): call them only where [Traced] says so.
package ptrace
