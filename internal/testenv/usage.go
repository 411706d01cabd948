package testenv

import (
	"bufio"
	"bytes"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// CPUTime is the CPU time of this process.
func CPUTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Fill sets all bytes of b to v.
func Fill(b []byte, v byte) {
	copy(b, bytes.Repeat([]byte{v}, len(b)))
}

// SharedMappings counts the shared mappings in the text of /proc/self/maps.
func SharedMappings(maps []byte) (n int) {
	for line := range bytes.Lines(maps) {
		if f := bytes.Fields(line); len(f) > 1 && bytes.HasSuffix(f[1], []byte("s")) {
			n++
		}
	}
	return n
}

// StatusKiB is a line of /proc/self/status, in KiB; 0 if there is none.
func StatusKiB(t testing.TB, name string) int {
	t.Helper()
	status, err := os.Open("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	defer status.Close()
	for lines := bufio.NewScanner(status); lines.Scan(); {
		if v, ok := strings.CutPrefix(lines.Text(), name+":"); ok {
			n, err := strconv.Atoi(strings.Fields(v)[0])
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	return 0
}
