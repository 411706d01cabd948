// Package bpfcount counts what processes ask of the kernel: system calls by number,
// context switches, page faults, packets. It attaches eBPF programs to raw
// tracepoints, so every event is counted, and at full speed: an event of a thread that
// is not watched costs a few comparisons.
//
// The programs are assembled here, at most 28 instructions each, and loaded under the
// licence "Dual BSD/GPL"; nothing is compiled or shipped as bytes. All share two maps:
//
//	gate    array, mapped into this process: whom to count
//	          thread  u32   ┐
//	          process u32   │ 0 matches nobody
//	          peer    u32   ┘
//	counts  per-CPU array of u64: [group][system call by number, then events]
//
// Counting begins and ends with a store to the gate, without a system call, so what
// is counted is only what ran in between. Process ids are those of this process's
// namespace.
//
// It needs Linux 5.7 (bpf_get_ns_current_pid_tgid; raw tracepoints are of 4.17, maps that
// can be mapped of 5.5) and CAP_BPF with CAP_PERFMON, or root. This is the only package
// that imports github.com/cilium/ebpf.
package bpfcount
