package memfd

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/testenv"
)

func create(t testing.TB, size int, sharing Sharing) *Segment {
	t.Helper()
	s, err := Create("memfd-test", size, sharing)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

// dup is what a peer gets: another descriptor of the same open file.
func dup(t testing.TB, fd int) int {
	t.Helper()
	d, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	require.NoError(t, err)
	return d
}

func isClosed(fd int) bool {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	return err == unix.EBADF
}

func TestCreate_RoundsUpAndIsZero(t *testing.T) {
	page := os.Getpagesize()
	for _, tt := range []struct{ size, want int }{{1, page}, {page, page}, {page + 1, 2 * page}} {
		s := create(t, tt.size, PeersWrite)
		assert.Len(t, s.Bytes(), tt.want)
		assert.Equal(t, make([]byte, tt.want), s.Bytes())
	}
}

// needRoom skips the test where the user's limits leave no room for size bytes, whether they are
// used or not.
func needRoom(t testing.TB, size uint64) {
	t.Helper()
	for name, id := range map[string]int{"ulimit -v": unix.RLIMIT_AS, "ulimit -f": unix.RLIMIT_FSIZE} {
		var limit unix.Rlimit
		require.NoError(t, unix.Getrlimit(id, &limit))
		if limit.Cur/2 < size {
			t.Skipf("needs %d bytes, and %s allows %d", size, name, limit.Cur)
		}
	}
}

func TestCreate_Sparse(t *testing.T) {
	const size = 64 << 30
	needRoom(t, size)
	s := create(t, size, PeersWrite)
	s.Bytes()[0], s.Bytes()[size-1] = 1, 2
	var st unix.Stat_t
	require.NoError(t, unix.Fstat(s.FD(), &st))
	assert.EqualValues(t, size, st.Size)
	assert.LessOrEqual(t, st.Blocks*512, int64(16<<20), "memory taken for two bytes, in bytes")
}

func TestCreate_BadSize(t *testing.T) {
	for _, size := range []int{0, -1, math.MinInt, math.MaxInt} {
		_, err := Create("x", size, PeersRead)
		assert.ErrorIs(t, err, ErrSize, "%d", size)
	}
}

func TestCreate_NoRoomInAddressSpace(t *testing.T) {
	before := testenv.OpenFiles(t)
	_, err := Create("x", 1<<48, PeersWrite) // all that a process has on amd64, and more
	assert.ErrorIs(t, err, unix.ENOMEM)
	assert.ErrorContains(t, err, "address space")
	assert.Equal(t, before, testenv.OpenFiles(t))
}

// TestCreate_FileSizeLimit runs in a child, since the limit is the process's.
func TestCreate_FileSizeLimit(t *testing.T) {
	const env = "MEMFD_TEST_FSIZE"
	if os.Getenv(env) == "" {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestCreate_FileSizeLimit$")
		cmd.Env = append(os.Environ(), env+"=1", "GORACE=atexit_sleep_ms=0")
		out, err := cmd.CombinedOutput()
		assert.NoError(t, err, "%s", out)
		return
	}
	const limit = 1 << 20
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: limit, Max: limit}))
	_, err := Create("x", limit+1, PeersWrite)
	assert.ErrorIs(t, err, ErrSize)
	assert.ErrorContains(t, err, "RLIMIT_FSIZE")
	create(t, limit, PeersWrite)
}

func TestSeals_LengthIsFixed(t *testing.T) {
	for _, sharing := range []Sharing{PeersRead, PeersWrite} {
		s := create(t, 4*os.Getpagesize(), sharing)
		fd := reopen(t, s.FD())
		assert.ErrorIs(t, unix.Ftruncate(fd, 0), unix.EPERM, "shrink")
		assert.ErrorIs(t, unix.Ftruncate(fd, 1<<20), unix.EPERM, "grow")
		assert.ErrorIs(t, addSeals(fd, unix.F_SEAL_WRITE), unix.EPERM, "more seals")
	}
}

// reopen opens the file again for writing, which its owner may always do.
func reopen(t testing.TB, fd int) int {
	t.Helper()
	rw, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDWR|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, unix.Close(rw)) })
	return rw
}

func TestPeersRead_PeerCannotWrite(t *testing.T) {
	s := create(t, 1, PeersRead)
	s.Bytes()[0] = 7

	_, err := unix.Mmap(s.FD(), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	assert.ErrorIs(t, err, unix.EACCES, "map the descriptor")
	_, err = unix.Pwrite(s.FD(), []byte{1}, 0)
	assert.ErrorIs(t, err, unix.EBADF, "write to the descriptor")

	rw := reopen(t, s.FD())
	_, err = unix.Mmap(rw, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	assert.ErrorIs(t, err, unix.EPERM, "map after opening again")
	_, err = unix.Pwrite(rw, []byte{1}, 0)
	assert.ErrorIs(t, err, unix.EPERM, "write after opening again")
	err = unix.Fallocate(rw, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 4096)
	assert.ErrorIs(t, err, unix.EPERM, "punch a hole after opening again")

	peer, err := Adopt(dup(t, s.FD()), ReadOnly, 1, 1<<20)
	require.NoError(t, err)
	defer func() { assert.NoError(t, peer.Close()) }()
	assert.ErrorIs(t, unix.Mprotect(peer.Bytes(), unix.PROT_READ|unix.PROT_WRITE), unix.EACCES)

	s.Bytes()[0] = 8
	assert.EqualValues(t, 8, peer.Bytes()[0], "the creator still writes, the peer sees it")

	_, err = Adopt(dup(t, s.FD()), ReadWrite, 1, 1<<20)
	assert.ErrorIs(t, err, unix.EACCES, "adopt for writing")
}

func TestAdopt_SharesMemory(t *testing.T) {
	s := create(t, 3*os.Getpagesize(), PeersWrite)
	fd := dup(t, s.FD())
	peer, err := Adopt(fd, ReadWrite, len(s.Bytes()), len(s.Bytes()))
	require.NoError(t, err)
	assert.True(t, isClosed(fd))
	assert.Equal(t, -1, peer.FD())
	peer.Bytes()[len(s.Bytes())-1] = 9
	assert.EqualValues(t, 9, s.Bytes()[len(s.Bytes())-1])
	require.NoError(t, peer.Close())
	require.NoError(t, peer.Close(), "second close")
}

func TestAdopt_Refuses(t *testing.T) {
	const size = 8192
	unsealed := func(flags int) func(t *testing.T) int {
		return func(t *testing.T) int {
			fd, err := unix.MemfdCreate("x", unix.MFD_CLOEXEC|flags)
			if err != nil && flags&unix.MFD_HUGETLB != 0 {
				t.Skipf("no huge pages: %v", err)
			}
			require.NoError(t, err)
			if flags&unix.MFD_HUGETLB == 0 {
				require.NoError(t, unix.Ftruncate(fd, size))
			}
			return fd
		}
	}
	partly := func(seals int) func(t *testing.T) int {
		return func(t *testing.T) int {
			fd := unsealed(unix.MFD_ALLOW_SEALING)(t)
			require.NoError(t, addSeals(fd, seals))
			return fd
		}
	}
	for _, tt := range []struct {
		name string
		fd   func(t *testing.T) int
		want error
	}{
		{"memfd without seals", unsealed(unix.MFD_ALLOW_SEALING), ErrUnsealed},
		{"memfd that cannot have seals", unsealed(0), ErrUnsealed},
		{"only shrink sealed", partly(unix.F_SEAL_SHRINK), ErrUnsealed},
		{"only grow sealed", partly(unix.F_SEAL_GROW), ErrUnsealed},
		{"huge pages", unsealed(unix.MFD_HUGETLB), ErrUnsealed},
		{"file", func(t *testing.T) int { return tempFile(t, t.TempDir(), size) }, nil},
		{"file on tmpfs", func(t *testing.T) int { return tempFile(t, "/dev/shm", size) }, ErrUnsealed},
		{"eventfd", func(t *testing.T) int { return must(unix.Eventfd(0, unix.EFD_CLOEXEC))(t) }, ErrKind},
		{"directory", func(t *testing.T) int { return must(unix.Open("/proc", unix.O_DIRECTORY|unix.O_CLOEXEC, 0))(t) }, ErrKind},
		{"closed descriptor", func(*testing.T) int { return 1 << 20 }, unix.EBADF},
		{"too small", func(t *testing.T) int { return dup(t, create(t, size/2, PeersWrite).FD()) }, ErrSize},
		{"too large", func(t *testing.T) int { return dup(t, create(t, size+1, PeersWrite).FD()) }, ErrSize},
		{"empty", func(t *testing.T) int {
			fd := must(unix.MemfdCreate("x", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING))(t)
			require.NoError(t, addSeals(fd, fixedLen))
			return fd
		}, ErrSize},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fd := tt.fd(t)
			s, err := Adopt(fd, ReadOnly, size, size)
			assert.Nil(t, s)
			if tt.want != nil {
				assert.ErrorIs(t, err, tt.want)
			}
			assert.Error(t, err)
			assert.True(t, isClosed(fd), "descriptor taken over")
		})
	}
	_, err := Adopt(partly(fixedLen)(t), ReadOnly, 0, 0)
	assert.ErrorIs(t, err, ErrSize)
}

func must(fd int, err error) func(t *testing.T) int {
	return func(t *testing.T) int {
		t.Helper()
		require.NoError(t, err)
		return fd
	}
}

// tempFile has no name, so nothing is left behind.
func tempFile(t *testing.T, dir string, size int64) int {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		t.Skipf("unnamed file in %s: %v", dir, err)
	}
	require.NoError(t, unix.Ftruncate(fd, size))
	return fd
}

func TestClose_ReleasesEverything(t *testing.T) {
	before := testenv.OpenFiles(t)
	for _, sharing := range []Sharing{PeersRead, PeersWrite} {
		s, err := Create("x", 1, sharing)
		require.NoError(t, err)
		require.NoError(t, s.DropFD())
		require.NoError(t, s.DropFD(), "second drop")
		assert.Equal(t, -1, s.FD())
		s.Bytes()[0] = 1
		require.NoError(t, s.Close())
		require.NoError(t, s.Close(), "second close")
	}
	assert.Equal(t, before, testenv.OpenFiles(t))
}
