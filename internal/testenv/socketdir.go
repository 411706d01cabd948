package testenv

import (
	"os"
	"testing"
)

// socketDirLen is the maximum length of a directory for sockets: the path of a socket has at most 107 bytes (sun_path
// of unix(7)), and names of ports up to 50.
const socketDirLen = 56

// SocketDir makes a directory for sockets, which is removed at the end of the test. TB.TempDir can be too long, because
// it has TMPDIR and the name of the test.
func SocketDir(t testing.TB) string {
	t.Helper()
	return socketDir(t, os.TempDir(), "/tmp")
}

// socketDir makes a directory in the first of parents in which it is short enough and can be made.
func socketDir(t testing.TB, parents ...string) string {
	t.Helper()
	var err error
	for _, parent := range parents {
		var dir string
		if dir, err = os.MkdirTemp(parent, "gucx"); err != nil {
			continue
		}
		t.Cleanup(func() {
			if err := os.RemoveAll(dir); err != nil {
				t.Errorf("directory for sockets: %v", err)
			}
		})
		if len(dir) <= socketDirLen {
			return dir
		}
	}
	t.Skipf("no directory with a name short enough for sockets (%v)", err)
	return ""
}
