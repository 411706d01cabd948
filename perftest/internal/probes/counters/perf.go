package counters

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/perftest/internal/measure/result"
	"github.com/gucx/gucx/perftest/internal/probes/bpfcount"
)

// perfEvents are the software counters of the kernel, by enum perf_sw_ids.
var perfEvents = []struct {
	name   string
	config uint64
}{
	{result.Switches, unix.PERF_COUNT_SW_CONTEXT_SWITCHES},
	{result.Faults, unix.PERF_COUNT_SW_PAGE_FAULTS},
	{result.Migrations, unix.PERF_COUNT_SW_CPU_MIGRATIONS},
	{result.CPUTime, unix.PERF_COUNT_SW_TASK_CLOCK}, // nanoseconds
}

// perfCounter is one event of one thread; except for the caller, also of threads that it creates.
type perfCounter struct {
	fd    int
	group bpfcount.Group
	event string
}

// perfSource opens counters for the threads that exist at the start.
type perfSource struct{ counters []perfCounter }

// openPerf checks, on the calling thread, whether counters can be opened.
func openPerf() (source, error) {
	s := &perfSource{}
	if err := s.add(bpfcount.Caller, unix.Gettid()); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, s.close()
}

// add opens the events of a thread, without starting them.
func (s *perfSource) add(g bpfcount.Group, thread int) error {
	for _, e := range perfEvents {
		attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Config: e.config,
			Size: unix.PERF_ATTR_SIZE_VER0, Bits: unix.PerfBitDisabled}
		if g != bpfcount.Caller {
			attr.Bits |= unix.PerfBitInherit
		}
		fd, err := unix.PerfEventOpen(&attr, thread, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if err != nil {
			return os.NewSyscallError("perf_event_open", err)
		}
		s.counters = append(s.counters, perfCounter{fd, g, e.name})
	}
	return nil
}

func (s *perfSource) start(w bpfcount.Watch) error {
	if err := s.open(w); err != nil {
		return errors.Join(err, s.close())
	}
	for _, c := range s.counters {
		if err := unix.IoctlSetInt(c.fd, unix.PERF_EVENT_IOC_ENABLE, 0); err != nil {
			return errors.Join(os.NewSyscallError("ioctl", err), s.close())
		}
	}
	return nil
}

// open opens the counters of all threads of w.
func (s *perfSource) open(w bpfcount.Watch) error {
	for g, process := range map[bpfcount.Group]int{bpfcount.Rest: w.Process, bpfcount.Peer: w.Peer} {
		if process == 0 {
			continue
		}
		threads, err := threadsOf(process)
		if err != nil {
			return err
		}
		for _, t := range threads {
			group := g
			if t == w.Thread {
				group = bpfcount.Caller
			}
			if err := s.add(group, t); err != nil && !errors.Is(err, unix.ESRCH) { // it may have ended
				return err
			}
		}
	}
	return nil
}

// threadsOf lists the threads of a process.
func threadsOf(process int) (threads []int, err error) {
	entries, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(process), "task"))
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		t, err := strconv.Atoi(e.Name())
		if err != nil {
			return nil, err
		}
		threads = append(threads, t)
	}
	return threads, nil
}

func (s *perfSource) stop() (all groups, err error) {
	for _, c := range s.counters {
		err = errors.Join(err, os.NewSyscallError("ioctl", unix.IoctlSetInt(c.fd, unix.PERF_EVENT_IOC_DISABLE, 0)))
	}
	for _, c := range s.counters {
		var value [8]byte
		if _, readErr := unix.Read(c.fd, value[:]); readErr != nil {
			err = errors.Join(err, os.NewSyscallError("read", readErr))
			continue
		}
		if all[c.group].events == nil {
			all[c.group].events = map[string]uint64{}
		}
		all[c.group].events[c.event] += binary.NativeEndian.Uint64(value[:])
	}
	return all, errors.Join(err, s.close())
}

func (s *perfSource) close() error {
	var errs []error
	for _, c := range s.counters {
		errs = append(errs, os.NewSyscallError("close", unix.Close(c.fd)))
	}
	s.counters = nil
	return errors.Join(errs...)
}
