package cma

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
)

func TestRead_Child(t *testing.T) {
	c := startTarget(t)
	permitted(t, c)
	for _, tt := range []struct{ off, n int }{
		{8, 0}, {8, 1}, {9, 8}, {4095, 2}, {8, regionLen - 8}, {regionLen - 1, 1}, {regionLen, 0},
	} {
		t.Run(fmt.Sprintf("%d+%d", tt.off, tt.n), func(t *testing.T) {
			got := bytes.Repeat([]byte{0xee}, tt.n+1)
			want := append(patterned(tt.off, tt.n), 0xee)
			var v Vec
			require.NoError(t, v.Read(c.Process.Pid, got[:tt.n], c.addr+uint64(tt.off)))
			assert.True(t, bytes.Equal(want, got), "bytes, and nothing behind them")
		})
	}
}

func patterned(off, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = pattern(off + i)
	}
	return b
}

func TestWrite_Child(t *testing.T) {
	c := startTarget(t)
	permitted(t, c)
	var v Vec
	require.NoError(t, v.Write(c.Process.Pid, []byte("hello"), c.addr+1000))
	assert.Equal(t, pattern(999), c.at(t, 999))
	assert.EqualValues(t, 'h', c.at(t, 1000))
	assert.EqualValues(t, 'o', c.at(t, 1004))
	assert.Equal(t, pattern(1005), c.at(t, 1005))
}

func TestTransfer_StoppedChild(t *testing.T) {
	c := startTarget(t)
	permitted(t, c)
	c.Stop(t)
	var v Vec
	assert.NoError(t, v.Write(c.Process.Pid, []byte{42}, c.addr+64))
	var got [1]byte
	assert.NoError(t, v.Read(c.Process.Pid, got[:], c.addr+64))
	assert.EqualValues(t, 42, got[0])
	c.Continue(t)
	assert.EqualValues(t, 42, c.at(t, 64))
}

func TestTransfer_Errors(t *testing.T) {
	c := startTarget(t)
	permitted(t, c)
	for _, tt := range []struct {
		name string
		pid  int
		addr uint64
		n    int
		want error
	}{
		{"unmapped", c.Process.Pid, 4096, 8, ErrBadRange},
		{"no rights", c.Process.Pid, c.addr + regionLen, 1, ErrBadRange},
		{"runs into no rights", c.Process.Pid, c.addr + regionLen - 4096, 8192, ErrBadRange},
		{"wraps", c.Process.Pid, math.MaxUint64 - 3, 8, ErrBadRange},
		{"kernel half", c.Process.Pid, 1 << 63, 8, ErrBadRange},
		{"pid 0", 0, c.addr, 8, ErrGone},
		{"negative pid", -1, c.addr, 8, ErrGone},
		{"no such pid", math.MaxInt32, c.addr, 8, ErrGone},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var v Vec
			buf := make([]byte, tt.n)
			assert.Equal(t, tt.want, v.Read(tt.pid, buf, tt.addr), "read")
			assert.Equal(t, tt.want, v.Write(tt.pid, buf, tt.addr), "write")
		})
	}
}

func TestTransfer_FailsIfChildIsDead(t *testing.T) {
	c := startTarget(t)
	permitted(t, c)
	c.End(t)
	var v Vec
	var buf [8]byte
	assert.Equal(t, ErrGone, v.Read(c.Process.Pid, buf[:], c.addr))
	assert.Equal(t, ErrGone, v.Write(c.Process.Pid, buf[:], c.addr))
	err := v.Probe(c.Process.Pid, c.addr, cookie)
	assert.Equal(t, ErrGone, err)
}

func TestProbe_OtherProcess(t *testing.T) {
	c := startTarget(t)
	permitted(t, c)
	var v Vec
	err := v.Probe(c.Process.Pid, c.addr, cookie+1)
	assert.Equal(t, ErrOtherProcess, err)
}

// TestProbe_Forbidden has somebody without the right try: a child of another user against this
// process or, without the right to start one, this user against process 1, if that is of another one.
func TestProbe_Forbidden(t *testing.T) {
	pid, as := forbidden(t)
	mem, err := mapRegion()
	require.NoError(t, err)
	cmd := testenv.Self(roleEnv+"=prober", fmt.Sprintf("%s_ARGS=%d %d", roleEnv, pid, addrOf(mem)))
	cmd.SysProcAttr, cmd.Dir = as, "/"
	out, err := cmd.Output()
	require.NoError(t, err)
	if got := strings.TrimSpace(string(out)); got != ErrUnsupported.Error() {
		assert.Equal(t, ErrForbidden.Error(), got)
	}
}

// forbidden is a process, and as whom to start another one that must not read it.
func forbidden(t *testing.T) (pid int, as *syscall.SysProcAttr) {
	t.Helper()
	if os.Geteuid() == 0 {
		return os.Getpid(), testenv.NeedOtherUser(t)
	}
	var init unix.Stat_t
	if err := unix.Stat("/proc/1", &init); err != nil || int(init.Uid) == os.Geteuid() {
		t.Skipf("no process of another user is known here (%v)", err)
	}
	return 1, nil
}

func TestFromErrno(t *testing.T) {
	for errno, want := range map[unix.Errno]error{
		unix.EPERM: ErrForbidden, unix.EACCES: ErrForbidden, unix.ESRCH: ErrGone, unix.EFAULT: ErrBadRange,
		unix.ENOMEM: ErrNoMemory, unix.ENOSYS: ErrUnsupported, unix.EINVAL: unix.EINVAL,
	} {
		assert.ErrorIs(t, fromErrno("call", errno), want)
	}
	assert.ErrorIs(t, ErrUnsupported, errors.ErrUnsupported)
	assert.ErrorIs(t, ErrNoMemory, ucs.ErrNoMemory)
}

func TestTransfer_AllocatesNothing(t *testing.T) {
	c := startTarget(t)
	permitted(t, c)
	v := new(Vec)
	buf := make([]byte, 64)
	for name, f := range map[string]func() error{
		"read":   func() error { return v.Read(c.Process.Pid, buf, c.addr) },
		"write":  func() error { return v.Write(c.Process.Pid, buf, c.addr+4096) },
		"probe":  func() error { return v.Probe(c.Process.Pid, c.addr, cookie) },
		"failed": func() error { _ = v.Read(c.Process.Pid, buf, 4096); return nil },
	} {
		assert.Zero(t, testing.AllocsPerRun(100, func() {
			if err := f(); err != nil {
				panic(err)
			}
		}), name)
	}
}

func BenchmarkRead(b *testing.B) {
	c := startTarget(b)
	permitted(b, c)
	for _, n := range []int{8, 4096, 65536} {
		b.Run(fmt.Sprintf("child/%dB", n), func(b *testing.B) {
			v, buf := new(Vec), make([]byte, n)
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				if err := v.Read(c.Process.Pid, buf, c.addr); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
