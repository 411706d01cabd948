package testenv

import (
	"os"
	"testing"
)

// socketDirLen is how long a directory for sockets may be: the path of a socket has 107 bytes at
// most (sun_path of unix(7)), and names of ports take up to 50.
const socketDirLen = 56

// SocketDir makes a directory for sockets that ends with the test. TB.TempDir is too long for some
// where TMPDIR is long, as its name has that of the test.
func SocketDir(t testing.TB) string {
	t.Helper()
	return socketDir(t, os.TempDir(), "/tmp")
}

// socketDir makes it below the first of parents where it is short enough and can be made.
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
