package ptrace

import (
	"os"

	"golang.org/x/sys/unix"
)

// pinThread binds the calling thread, and the processes that it starts afterwards, to one of its
// allowed CPUs. restore undoes that for the thread.
func pinThread() (restore func() error, err error) {
	var old unix.CPUSet
	if err := unix.SchedGetaffinity(0, &old); err != nil {
		return nil, os.NewSyscallError("sched_getaffinity", err)
	}
	var one unix.CPUSet
	one.Set(firstCPU(&old))
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return nil, os.NewSyscallError("sched_setaffinity", err)
	}
	return func() error {
		return os.NewSyscallError("sched_setaffinity", unix.SchedSetaffinity(0, &old))
	}, nil
}

// firstCPU returns the lowest CPU in s, which must not be empty.
func firstCPU(s *unix.CPUSet) int {
	for i := range len(s) * 64 {
		if s.IsSet(i) {
			return i
		}
	}
	return 0
}
