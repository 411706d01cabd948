// Package affinity binds threads of this process to CPUs.
package affinity

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxCPU is the largest CPU number in the mask of x/sys.
const maxCPU = len(unix.CPUSet{})*64 - 1

// Allowed lists the CPUs that this process may run on, ascending.
func Allowed() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(os.Getpid(), &set); err != nil {
		return nil, os.NewSyscallError("sched_getaffinity", err)
	}
	return members(&set), nil
}

// Thread locks the calling goroutine to its thread, and binds the thread to cpu. undo removes both;
// the same goroutine must call it.
func Thread(cpu int) (undo func(), err error) {
	runtime.LockOSThread()
	var before unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		runtime.UnlockOSThread()
		return nil, os.NewSyscallError("sched_getaffinity", err)
	}
	if err := setThread(0, []int{cpu}); err != nil {
		runtime.UnlockOSThread()
		return nil, err
	}
	return func() {
		// An error is ignored: the kernel accepts the mask again unless the administrator has
		// removed CPUs.
		_ = unix.SchedSetaffinity(0, &before)
		runtime.UnlockOSThread()
	}, nil
}

// Process binds all existing threads of this process to cpus. A thread inherits the binding of the
// thread that creates it.
func Process(cpus []int) error {
	dir, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, e := range dir {
		tid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if err := setThread(tid, cpus); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}

func setThread(tid int, cpus []int) error {
	var set unix.CPUSet
	for _, c := range cpus {
		if c < 0 || c > maxCPU {
			return fmt.Errorf("CPU %d is outside 0..%d", c, maxCPU)
		}
		set.Set(c)
	}
	if err := unix.SchedSetaffinity(tid, &set); err != nil {
		return fmt.Errorf("bind to CPUs %v: %w", cpus, os.NewSyscallError("sched_setaffinity", err))
	}
	return nil
}

func members(set *unix.CPUSet) (cpus []int) {
	for c := range maxCPU + 1 {
		if set.IsSet(c) {
			cpus = append(cpus, c)
		}
	}
	return cpus
}

// Parse parses a list of CPUs in the format of taskset and UCX: "0,1" or "2-5,8". Numbers are
// returned in the order of the list.
func Parse(list string) (cpus []int, err error) {
	for _, part := range strings.Split(list, ",") {
		lo, hi, isRange := strings.Cut(part, "-")
		if !isRange {
			hi = lo
		}
		a, errLo := strconv.Atoi(lo)
		b, errHi := strconv.Atoi(hi)
		if errLo != nil || errHi != nil || a < 0 || b < a || b > maxCPU {
			return nil, fmt.Errorf("CPU list %q: %q is not a number or an ascending range within 0..%d", list, part, maxCPU)
		}
		for c := a; c <= b; c++ {
			cpus = append(cpus, c)
		}
	}
	return cpus, nil
}

// Pair selects the CPUs of initiator and target: "1,0" selects these two, "auto" two different
// ones, "off" none. Both must be allowed. With one allowed CPU, auto is off. The result has two
// elements or none.
func Pair(list string) ([]int, error) {
	allowed, err := Allowed()
	if err != nil {
		return nil, err
	}
	switch {
	case list == "off", list == "auto" && len(allowed) < 2:
		return nil, nil
	case list == "auto":
		// The first CPU handles most interrupts: use it for the target.
		return []int{allowed[1], allowed[0]}, nil
	}
	cpus, err := Parse(list)
	if err != nil {
		return nil, err
	}
	if len(cpus) != 2 {
		return nil, fmt.Errorf("CPUs %q: want two, of initiator and target", list)
	}
	for _, c := range cpus {
		if !slices.Contains(allowed, c) {
			return nil, fmt.Errorf("CPU %d is not among those allowed: %v", c, allowed)
		}
	}
	return cpus, nil
}
