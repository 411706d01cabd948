package ib

import (
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// domainMD opens an MD on its own device.
func domainMD(t testing.TB) *MD {
	t.Helper()
	dev, err := softhca.NewDevice(softhca.Config{Name: "dev"})
	require.NoError(t, err)
	md, err := New(func() ([]*verbs.Device, error) { return []*verbs.Device{dev}, nil }).OpenMD("dev")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, md.Close()) })
	return md.(*MD)
}

// TestOpenDomain_SharedByFile: devices that open the same file are in one domain with one ID, until
// the last one closes it. A domain without a file is private.
func TestOpenDomain_SharedByFile(t *testing.T) {
	a, b := domainMD(t), domainMD(t)
	file := DomainFile(t.TempDir(), "dev")
	var before [16]byte
	for range 3 {
		x, err := a.OpenDomain(file)
		require.NoError(t, err)
		again, err := a.OpenDomain(file)
		require.NoError(t, err)
		require.Same(t, x, again)
		y, err := b.OpenDomain(file)
		require.NoError(t, err)
		require.Equal(t, x.ID, y.ID)
		require.NotEqual(t, before, x.ID, "the ID of the previous domain")
		before = x.ID
		qp, err := x.XRCD.CreateQP(verbs.QPInitAttr{Type: verbs.QPTypeXRCRecv})
		require.NoError(t, err)
		same, err := y.XRCD.OpenQP(qp.Number())
		require.NoError(t, err)
		private, err := a.OpenDomain("")
		require.NoError(t, err)
		require.NotEqual(t, x.ID, private.ID)
		_, err = private.XRCD.OpenQP(qp.Number())
		require.ErrorIs(t, err, ucs.ErrInvalidParam)
		for _, c := range []io.Closer{qp, same, x, private, y, again} {
			require.NoError(t, c.Close())
		}
	}
	st, err := os.Stat(file)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), st.Mode())
	assert.EqualValues(t, 16, st.Size(), "the file remains")
}

// TestOpenDomain_Concurrent: of concurrent calls, the first one makes the domain and the others
// join it.
func TestOpenDomain_Concurrent(t *testing.T) {
	file := DomainFile(t.TempDir(), "dev")
	mds := make([]*MD, 4)
	for i := range mds {
		mds[i] = domainMD(t)
	}
	for range 3 {
		domains := make([]*Domain, len(mds))
		var wg sync.WaitGroup
		for i, md := range mds {
			wg.Go(func() {
				var err error
				domains[i], err = md.OpenDomain(file)
				assert.NoError(t, err)
			})
		}
		wg.Wait()
		for _, d := range domains {
			assert.Equal(t, domains[0].ID, d.ID)
			require.NoError(t, d.Close())
		}
	}
}

// TestOpenDomain_RejectsFileOfOthers: a file that other users could have made or can write is
// rejected.
func TestOpenDomain_RejectsFileOfOthers(t *testing.T) {
	for name, make := range map[string]func(t *testing.T, path string){
		"rights of others": func(t *testing.T, path string) {
			require.NoError(t, os.WriteFile(path, nil, 0o600))
			require.NoError(t, os.Chmod(path, 0o620))
		},
		"two links": func(t *testing.T, path string) {
			require.NoError(t, os.WriteFile(path+"x", nil, 0o600))
			require.NoError(t, os.Link(path+"x", path))
		},
		"symbolic link": func(t *testing.T, path string) {
			require.NoError(t, os.WriteFile(path+"x", nil, 0o600))
			require.NoError(t, os.Symlink(path+"x", path))
		},
		"directory": func(t *testing.T, path string) { require.NoError(t, os.Mkdir(path, 0o700)) },
	} {
		t.Run(name, func(t *testing.T) {
			md, path := domainMD(t), filepath.Join(t.TempDir(), "domain")
			make(t, path)
			_, err := md.OpenDomain(path)
			require.Error(t, err)
			require.Empty(t, md.domains)
		})
	}
}

// TestDomainFile: the default directory is private to the user.
func TestDomainFile(t *testing.T) {
	run, tmp := t.TempDir(), t.TempDir()
	require.NoError(t, os.Chmod(run, 0o700))
	t.Setenv("TMPDIR", tmp)
	t.Setenv("XDG_RUNTIME_DIR", run)
	assert.Equal(t, run, filepath.Dir(DomainFile("", "dev")))
	assert.Equal(t, tmp, filepath.Dir(DomainFile(tmp, "dev")))
	assert.NotEqual(t, DomainFile("", "dev"), DomainFile("", "dev2"))
	assert.Equal(t, run, filepath.Dir(DomainFile("", "a/../b")))
	require.NoError(t, os.Chmod(run, 0o755))
	assert.Equal(t, tmp, filepath.Dir(DomainFile("", "dev")), "other users can access the runtime directory")
	t.Setenv("XDG_RUNTIME_DIR", filepath.Join(run, "none"))
	assert.Equal(t, tmp, filepath.Dir(DomainFile("", "dev")))
}
