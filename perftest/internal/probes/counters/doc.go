// Package counters tells what operations ask of the kernel: system calls, context
// switches, page faults, packets, for each thread group of a measurement. There are
// three sources, of which Open takes the first that works:
//
//	bpf     eBPF programs at raw tracepoints (package bpfcount): everything, exactly
//	perf    the kernel's software counters by perf_event_open: switches, faults,
//	        migrations and processor time
//	rusage  getrusage: switches and faults of this process alone
//
// A source counts the calling thread, the other threads of its process, and, but for
// rusage, a process beside it.
package counters
