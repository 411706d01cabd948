package attach

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
)

func inDir(dir string, uids ...uint32) func(*Config) {
	return func(c *Config) { c.SocketDir, c.AllowUIDs = dir, uids }
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	list := []string{}
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

func TestSocketDir(t *testing.T) {
	for _, tc := range []struct {
		name string
		uids []uint32
		mode os.FileMode
	}{{"own user", nil, 0o600}, {"other users too", []uint32{testenv.OtherUser}, 0o666}} {
		t.Run(tc.name, func(t *testing.T) {
			dir := testenv.SocketDir(t)
			a, b := newStation(t, inDir(dir, tc.uids...)), newStation(t, inDir(dir, tc.uids...))
			for _, name := range names(t, dir) {
				st, err := os.Lstat(filepath.Join(dir, name))
				require.NoError(t, err)
				assert.Equal(t, tc.mode|os.ModeSocket, st.Mode())
			}
			out := a.dial(t, b.gid)
			in := within(t, b.in, "inbound link")
			out.Seg.Bytes()[3] = 9
			assert.EqualValues(t, 9, in.Seg.Bytes()[3])
			_, err := a.Dial(context.Background(), [16]byte{1})
			assert.ErrorIs(t, err, ucs.ErrUnreachable)
			a.close(t)
			b.close(t)
			assert.Empty(t, names(t, dir), "left behind")
		})
	}
}

// TestSocketDir_OtherWay: who listens on a name is not found in a directory.
func TestSocketDir_OtherWay(t *testing.T) {
	a, b := newStation(t, nil), newStation(t, inDir(testenv.SocketDir(t)))
	_, err := b.Dial(context.Background(), a.gid)
	assert.ErrorIs(t, err, ucs.ErrUnreachable)
	_, err = a.Dial(context.Background(), b.gid)
	assert.ErrorIs(t, err, ucs.ErrUnreachable)
}

// TestSocketDir_Reclaim: of all that looks like a port's file, only what has no socket
// any more, and is not new, goes.
func TestSocketDir_Reclaim(t *testing.T) {
	dir := testenv.SocketDir(t)
	live := newStation(t, inDir(dir))
	dead := func(name string, age time.Duration) string {
		l, err := net.ListenUnix(network, &net.UnixAddr{Name: filepath.Join(dir, name), Net: network})
		require.NoError(t, err)
		l.SetUnlinkOnClose(false)
		require.NoError(t, l.Close())
		then := time.Now().Add(-age)
		require.NoError(t, os.Chtimes(filepath.Join(dir, name), then, then))
		return name
	}
	then := time.Now().Add(-time.Hour)
	for _, name := range names(t, dir) {
		require.NoError(t, os.Chtimes(filepath.Join(dir, name), then, then))
	}
	kept := names(t, dir)
	dead("gucx-test-old", 2*reclaimAge)
	kept = append(kept, dead("gucx-test-new", -time.Hour), dead("gucx-other-old", time.Hour), dead("else", time.Hour))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "gucx-test-file"), nil, 0o600))
	kept = append(kept, "gucx-test-file")

	s := newStation(t, inDir(dir))
	s.close(t)
	assert.ElementsMatch(t, kept, names(t, dir))
	assert.Equal(t, Stats{}, live.Stats(), "the living have not noticed")
}

// TestSocketDir_LongestPath: the path of a socket may have as many bytes as the kernel takes.
func TestSocketDir_LongestPath(t *testing.T) {
	const missing = "/missing"
	short := len(socketAddr(missing, testService, 0, [16]byte{}).Name)
	for _, n := range []int{maxPath, maxPath + 1} {
		err := checkSocketDir(missing+strings.Repeat("d", n-short), testService)
		require.Error(t, err)
		assert.Equal(t, n <= maxPath, errors.Is(err, os.ErrNotExist), "%d bytes: %v", n, err)
	}
}

func TestSocketDir_Unusable(t *testing.T) {
	file := filepath.Join(testenv.SocketDir(t), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for name, dir := range map[string]string{
		"missing": filepath.Join(testenv.SocketDir(t), "none"), "a file": file, "too long": "/" + strings.Repeat("d", maxPath-40),
	} {
		t.Run(name, func(t *testing.T) {
			s, err := openStation(inDir(dir))
			require.ErrorIs(t, err, ucs.ErrInvalidParam)
			assert.ErrorContains(t, err, "socket directory")
			assert.NoError(t, s.table.Close())
			assert.NoError(t, s.arena.Close())
			assert.NoError(t, s.wake.Close())
		})
	}
}
