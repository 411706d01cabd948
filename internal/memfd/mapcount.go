package memfd

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// defaultMapCount is the kernel's default of vm.max_map_count: DEFAULT_MAX_MAP_COUNT in linux/mm.h.
const defaultMapCount = 65530

// mappings is the number of mappings of this package in the process.
var mappings atomic.Int64

// maxMappings returns the limit of mappings: seven eighths of vm.max_map_count. The rest is for the program and the Go
// runtime, which ends the process if the kernel refuses a mapping.
var maxMappings = sync.OnceValue(func() int64 {
	limit := int64(defaultMapCount)
	if text, err := os.ReadFile("/proc/sys/vm/max_map_count"); err == nil {
		if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil {
			limit = n
		}
	}
	return limit - limit/8
})

// mmap is mmap(2) of a file within the limit. Beyond it the error wraps ENOMEM and names the setting to raise.
func mmap(fd, size, prot, flags int) ([]byte, error) {
	if limit := maxMappings(); mappings.Add(1) > limit {
		mappings.Add(-1)
		return nil, errMappings(limit)
	}
	mem, err := unix.Mmap(fd, 0, size, prot, flags)
	if err != nil {
		mappings.Add(-1)
	}
	return mem, err
}

// errMapCount is the error of mmap beyond the limit.
var errMapCount = fmt.Errorf("%w: too many mappings of shared memory", unix.ENOMEM)

// errMappings returns the error of a process that has limit mappings. The value in its text is four times the current one.
func errMappings(limit int64) error {
	return fmt.Errorf("%w: %d, 7/8 of vm.max_map_count: raise it (sysctl -w vm.max_map_count=%d), or use fewer workers",
		errMapCount, limit, 4*(limit/7*8))
}

// munmap undoes mmap.
func munmap(mem []byte) error {
	err := unix.Munmap(mem)
	if err == nil {
		mappings.Add(-1)
	}
	return os.NewSyscallError("munmap", err)
}
