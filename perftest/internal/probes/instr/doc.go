// Package instr counts the instructions of one operation, by layer and function:
// put, get, atomics, flush and progress, over verbs, UCT and UCP. It single-steps a
// child process that runs the operation between two marks (package ptrace), so the
// counts are exact and need neither performance counters nor privilege.
package instr
