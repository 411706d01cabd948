package testenv

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/gucx/gucx/internal/offheap"
)

// inventory is the resources of a process besides Go memory and goroutines.
type inventory struct {
	files    map[string]string // descriptor number: target
	mappings map[string]string // address range: mapped file
	bytes    int64             // off-heap
}

// readInventory reads the inventory from /proc/self. Parts that cannot be read are empty.
func readInventory() inventory {
	wakePoller()
	return inventory{files: openFiles(), mappings: sharedMappings(), bytes: offheap.InUse()}
}

// since returns the resources that an earlier inventory does not have, in fixed order.
func (i inventory) since(before inventory) []string {
	var leaks []string
	for fd, target := range i.files {
		if before.files[fd] != target {
			leaks = append(leaks, fmt.Sprintf("file descriptor %s: %s", fd, target))
		}
	}
	for at, what := range i.mappings {
		if before.mappings[at] != what {
			leaks = append(leaks, fmt.Sprintf("mapping %s: %s", at, what))
		}
	}
	if extra := i.bytes - before.bytes; extra != 0 {
		leaks = append(leaks, fmt.Sprintf("off-heap memory: %d bytes", extra))
	}
	slices.Sort(leaks)
	return leaks
}

// wakePoller makes the runtime open its epoll and event descriptors, which remain open, so that each inventory has
// them.
func wakePoller() {
	r, w, err := os.Pipe()
	if err != nil {
		return
	}
	r.Close()
	w.Close()
}

// openFiles lists /proc/self/fd, without the descriptor that lists it.
func openFiles() map[string]string {
	const dir = "/proc/self/fd"
	files := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return files
	}
	for _, e := range entries {
		if target, err := os.Readlink(dir + "/" + e.Name()); err == nil {
			files[e.Name()] = target
		}
	}
	return files
}

// sharedMappings lists the mappings of /proc/self/maps that are shared or of a memfd. The others are those of the
// runtime, or counted by package offheap.
func sharedMappings() map[string]string {
	mappings := map[string]string{}
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return mappings
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if at, what, ok := parseMapping(lines.Text()); ok {
			mappings[at] = what
		}
	}
	return mappings
}

// parseMapping splits one line of /proc/self/maps (proc(5)): address, permissions, offset, device, inode, path. ok is
// true if the mapping is shared or of a memfd.
func parseMapping(line string) (at, what string, ok bool) {
	const permissions, path = 1, 5
	f := strings.Fields(line)
	if len(f) <= permissions {
		return "", "", false
	}
	what = strings.Join(f[min(path, len(f)):], " ")
	shared := strings.HasSuffix(f[permissions], "s")
	if !shared && !strings.HasPrefix(what, "/memfd:") {
		return "", "", false
	}
	if what == "" {
		what = "anonymous shared memory"
	}
	return f[0], what, true
}
