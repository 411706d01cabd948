package cma

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/testenv"
)

// The child process keeps a region of regionLen bytes, with pattern in it, and a
// page without rights behind it.
const (
	roleEnv   = "GUCX_CMA_TEST_ROLE"
	regionLen = 1 << 20
	cookie    = 0x1122334455667788
)

func pattern(i int) byte { return byte(i*7 + i>>8) }

// mapRegion returns the region, readable and writable, with nothing accessible behind.
func mapRegion() ([]byte, error) {
	mem, err := unix.Mmap(-1, 0, regionLen+os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, err
	}
	for i := range regionLen {
		mem[i] = pattern(i)
	}
	binary.NativeEndian.PutUint64(mem, cookie)
	return mem[:regionLen], unix.Mprotect(mem[regionLen:], unix.PROT_NONE)
}

func addrOf(mem []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))) }

// runTarget is the child: it prints where its region is and what it holds whenever a
// line arrives, and ends with its standard input.
func runTarget() error {
	mem, err := mapRegion()
	if err != nil {
		return err
	}
	fmt.Println(addrOf(mem))
	in := bufio.NewReader(os.Stdin)
	for {
		var off int
		if _, err := fmt.Fscanln(in, &off); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		fmt.Println(mem[off])
	}
}

// runProber is a child that probes the process named in its arguments, and prints
// the error.
func runProber() error {
	var pid int
	var addr uint64
	if _, err := fmt.Sscan(os.Getenv(roleEnv+"_ARGS"), &pid, &addr); err != nil {
		return err
	}
	var v Vec
	fmt.Println(v.Probe(pid, addr, cookie))
	return nil
}

func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(roleEnv) {
	case "target":
		err = runTarget()
	case "prober":
		err = runProber()
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// target is a running child.
type target struct {
	*testenv.Subprocess
	addr uint64
}

func startTarget(t testing.TB) *target {
	t.Helper()
	c := &target{Subprocess: testenv.StartSubprocess(t, testenv.Self(roleEnv+"=target"))}
	c.Scan(t, &c.addr)
	return c
}

// at asks the child for a byte of its region.
func (c *target) at(t testing.TB, off int) byte {
	t.Helper()
	c.Tell(t, "%d", off)
	var b int
	c.Scan(t, &b)
	return byte(b)
}

// permitted skips the test when this machine forbids cross-memory attach to children.
func permitted(t testing.TB, c *target) {
	t.Helper()
	var v Vec
	err := v.Probe(c.Process.Pid, c.addr, cookie)
	if err == ErrForbidden || err == ErrUnsupported {
		t.Skipf("cross-memory attach: %v", err)
	}
	require.NoError(t, err)
}
