package memprot

import (
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// pages maps four pages: writable, read-only, without rights, writable.
func pages(t testing.TB) (mem []byte, page int) {
	t.Helper()
	page = os.Getpagesize()
	mem, err := unix.Mmap(-1, 0, 4*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(mem)) })
	require.NoError(t, unix.Mprotect(mem[page:2*page], unix.PROT_READ))
	require.NoError(t, unix.Mprotect(mem[2*page:3*page], unix.PROT_NONE))
	return mem, page
}

var global = [64]byte{1: 1}

// TestCheck_Rights holds that both ways to ask the kernel say the same.
func TestCheck_Rights(t *testing.T) {
	mem, page := pages(t)
	heap := make([]byte, 3<<20)
	for _, tt := range []struct {
		name        string
		mem         []byte
		read, write bool
	}{
		{"empty", nil, true, true},
		{"heap", heap, true, true},
		{"one byte of the heap", heap[5:6], true, true},
		{"variable", global[:], true, true},
		{"writable", mem[:page], true, true},
		{"last writable byte", mem[page-1 : page], true, true},
		{"runs into read-only", mem[page-1 : page+1], true, false},
		{"read-only", mem[page : 2*page], true, false},
		{"runs into no rights", mem[2*page-1 : 2*page+1], false, false},
		{"no rights", mem[2*page+100 : 2*page+101], false, false},
		{"begins without rights", mem[2*page:], false, false},
		{"behind no rights", mem[3*page:], true, true},
		{"all", mem, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for write, allowed := range map[bool]bool{false: tt.read, true: tt.write} {
				refused(t, Check(tt.mem, write), allowed, write)
				need := readable
				if write {
					need |= writable
				}
				start := addrOf(tt.mem)
				refused(t, walk(textSource(os.ReadFile), start, start+uint64(len(tt.mem)), need), allowed, write)
			}
		})
	}
}

// refused holds that err is nil or what registration returns.
func refused(t *testing.T, err error, allowed, write bool) {
	t.Helper()
	if allowed {
		assert.NoError(t, err, "write %v", write)
		return
	}
	assert.ErrorIs(t, err, ucs.ErrInvalidParam, "write %v", write)
	assert.ErrorIs(t, err, unix.EFAULT, "write %v", write)
}

// A gap between mappings is refused, and so is what lies behind the last one.
func TestWalk_NotMapped(t *testing.T) {
	text := []byte("1000-3000 rw-p 00000000 00:00 0\n4000-5000 rw-s 00000000 00:05 17  /memfd:x (deleted)\n")
	s := textSource(func(string) ([]byte, error) { return text, nil })
	assert.NoError(t, walk(s, 0x1000, 0x3000, readable|writable))
	assert.NoError(t, walk(s, 0x4fff, 0x5000, readable|writable))
	for _, r := range [][2]uint64{{0xfff, 0x1001}, {0x2000, 0x4800}, {0x3000, 0x3001}, {0x4fff, 0x5001}} {
		assert.ErrorIs(t, walk(s, r[0], r[1], readable), unix.EFAULT, "%#x", r)
	}
}

// Where nothing tells, memory is taken as it was before there was a check.
func TestTextSource_Unreadable(t *testing.T) {
	s := textSource(func(string) ([]byte, error) { return nil, errors.New("no /proc") })
	assert.NoError(t, walk(s, 0x1000, 0x2000, readable|writable))
}

// Nothing is made resident by a check.
func TestCheck_FaultsNothingIn(t *testing.T) {
	const n = 1 << 30
	mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Munmap(mem)) }()
	require.NoError(t, Check(mem, true))
	resident := make([]byte, n/os.Getpagesize())
	require.NoError(t, mincore(mem, resident))
	for _, r := range resident {
		require.Zero(t, r&1)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("1000-3000 rw-p 00000000 00:00 0\n"))
	f.Add([]byte("zz\n\n-\n1-"))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, m := range parse(text) {
			assert.Zero(t, m.rights&^(readable|writable))
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	mem, page := pages(b)
	b.Run("ioctl", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = Check(mem[:page], true)
		}
	})
	b.Run("text", func(b *testing.B) {
		b.ReportAllocs()
		start := addrOf(mem)
		for b.Loop() {
			_ = walk(textSource(os.ReadFile), start, start+1, readable|writable)
		}
	})
}
