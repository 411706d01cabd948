package xrcdomain

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/memfd"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
)

// FuzzDirectory: for arbitrary contents of the directory, methods return and access only the directory.
func FuzzDirectory(f *testing.F) {
	f.Add([]byte{}, uint32(0), uint32(0))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff"), uint32(0xffffff), uint32(0xfffffff))
	f.Add([]byte("\xff\x07\x00\x00\xff\x07\x00\x00"), uint32(1<<17|1), uint32(1))
	path := domainFile(f)
	d, err := joinPath(path, 1)
	require.NoError(f, err)
	f.Cleanup(func() { require.NoError(f, d.Close()) })
	f.Fuzz(func(t *testing.T, fill []byte, number, end uint32) {
		mem := d.dir.seg.Bytes()
		slot := max(1, number%64)
		for _, at := range []int{membersAt, slotsAt + int(slot)*slotLen, qpsAt, qpsAt + int(number%maxQPs)*qpLen} {
			copy(mem[at:], fill[:min(len(fill), 4*qpLen)])
		}
		d.dir.header().qpsEnd.Store(end % 64)
		d.dir.header().slotsEnd.Store(end % 1024)
		if place, ok := d.SRQPlace(number); ok {
			assert.Less(t, place, MaxPlaces)
		}
		d.SRQOwner(number)
		d.Referred(number, noneDead)
		d.EachArea(func(a *Area) { assert.NotNil(t, a) })
		if n, err := d.AddSRQ(slot); err == nil {
			require.NoError(t, d.RemoveSRQ(n))
		}
		q, err := d.AddQP()
		require.NoError(t, err)
		require.True(t, d.Referred(q, noneDead))
		gone, err := d.CloseQP(q)
		require.NoError(t, err)
		require.True(t, gone)
		d.clearSRQs(d.place, srqDied)
	})
}

// TestFetch_FullBacklog: fetch waits for a member whose accept queue is full, so that no second directory is
// created.
func TestFetch_FullBacklog(t *testing.T) {
	path := domainFile(t)
	f, err := os.Open(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	id, err := identify(int(f.Fd()))
	require.NoError(t, err)
	l, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	require.NoError(t, unix.Bind(l, &unix.SockaddrUnix{Name: socketAddr(id, 0).Name}))
	require.NoError(t, unix.Listen(l, 0))
	waiting, err := net.DialUnix(network, nil, socketAddr(id, 0))
	require.NoError(t, err)
	fd, busy, err := requestFD(id)
	require.NoError(t, err)
	assert.Equal(t, []int{-1, 1}, []int{fd, busy})
	require.NoError(t, unix.Close(l))
	require.NoError(t, waiting.Close())
	fd, busy, err = requestFD(id)
	require.NoError(t, err)
	assert.Equal(t, []int{-1, 0}, []int{fd, busy})
}

// identifyPath returns the inode of a file.
func identifyPath(path string) (inode, error) {
	f, err := os.Open(path)
	if err != nil {
		return inode{}, err
	}
	defer func() { _ = f.Close() }()
	return identify(int(f.Fd()))
}

// TestFetch_NoFreeDescriptor: fetch returns an error if a member has sent the directory and this process has
// no free descriptor for it, so that no second directory is created.
func TestFetch_NoFreeDescriptor(t *testing.T) {
	path := domainFile(t)
	id, err := identifyPath(path)
	require.NoError(t, err)
	startMember(t, path)
	for _, room := range []bool{true, false} {
		dial := dialer{fd: -1}
		conn, err := dial.dial(id, 0)
		require.NoError(t, err)
		dial.close()
		r, fd := requests{responses: make(chan response, 1)}, -1
		ask := func() {
			r.add(conn)
			fd = r.wait(testenv.Watchdog)
		}
		if room {
			ask()
		} else {
			testenv.WithoutDescriptors(t, ask)
		}
		require.Zero(t, r.pending)
		if room {
			require.NoError(t, r.failed)
			require.NoError(t, unix.Close(fd))
			continue
		}
		assert.Equal(t, -1, fd)
		assert.ErrorIs(t, r.failed, unix.EMFILE)
	}
}

func TestOpen_NoDirectory(t *testing.T) {
	path := domainFile(t)
	f, err := os.Open(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	id, err := identify(int(f.Fd()))
	require.NoError(t, err)
	short, err := memfd.Create("short", 4096, memfd.PeersWrite)
	require.NoError(t, err)
	defer func() { require.NoError(t, short.Close()) }()
	blank, err := memfd.Create("blank", layoutLen, memfd.PeersWrite)
	require.NoError(t, err)
	defer func() { require.NoError(t, blank.Close()) }()
	for name, tt := range map[string]struct {
		message []byte
		fds     []int
		want    error
	}{
		"too short":       {[]byte{layoutVersion}, []int{short.FD()}, memfd.ErrSize},
		"not formatted":   {[]byte{layoutVersion}, []int{blank.FD()}, ucs.ErrInvalidAddr},
		"not a memfd":     {[]byte{layoutVersion}, []int{int(f.Fd())}, memfd.ErrKind},
		"other version":   {[]byte{layoutVersion + 1}, []int{blank.FD()}, ucs.ErrUnreachable},
		"no descriptor":   {[]byte{layoutVersion}, nil, ucs.ErrUnreachable},
		"two descriptors": {[]byte{layoutVersion}, []int{blank.FD(), blank.FD()}, ucs.ErrUnreachable},
		"long message":    {[]byte{layoutVersion, 0}, []int{blank.FD()}, ucs.ErrUnreachable},
		"nothing":         {nil, nil, ucs.ErrUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			stop := impostor(t, id, tt.message, tt.fds)
			defer stop()
			_, err := Open(Key{id.dev, id.ino})
			if tt.want == memfd.ErrKind {
				require.Error(t, err) // a read-only file may fail to open again
				return
			}
			require.ErrorIs(t, err, tt.want)
		})
	}
}

// impostor listens at the first place and sends a message to each process that connects.
func impostor(t testing.TB, id inode, message []byte, fds []int) (stop func()) {
	t.Helper()
	l, err := net.ListenUnix(network, socketAddr(id, 0))
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() {
		for {
			conn, err := l.AcceptUnix()
			if err != nil {
				done <- err
				return
			}
			if len(message) > 0 {
				var oob []byte
				if len(fds) > 0 {
					oob = unix.UnixRights(fds...)
				}
				_, _, _ = conn.WriteMsgUnix(message, oob, nil)
			}
			_ = conn.Close()
		}
	}()
	return func() {
		require.NoError(t, l.Close())
		require.True(t, errors.Is(<-done, net.ErrClosed))
	}
}

// TestJoin_SkipsOccupiedAddress: if the address of a place is in use, the member gets another place.
func TestJoin_SkipsOccupiedAddress(t *testing.T) {
	path := domainFile(t)
	f, err := os.Open(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	id, err := identify(int(f.Fd()))
	require.NoError(t, err)
	stop := impostor(t, id, []byte{0xff}, nil)
	defer stop()
	a, b := join(t, path, 1), join(t, path, 2)
	n := addSRQ(t, a)
	_, ok := b.SRQOwner(n)
	require.True(t, ok)
}

func TestWords(t *testing.T) {
	g := gidFor(0x1234)
	w := words(g)
	assert.Equal(t, g, gidOf(w))
	assert.Equal(t, binary.NativeEndian.Uint64(g[:8]), w[0], fmt.Sprint(w))
}
