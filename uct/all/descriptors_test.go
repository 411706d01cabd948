package all_test

import (
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/offheap"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/all"
)

// A process that has descriptors for a part of what an iface needs gets EMFILE, whichever
// descriptor is the first that it cannot open, and keeps none of the others.
func TestOpen_DescriptorsExhausted(t *testing.T) {
	for _, c := range all.Components() {
		for _, r := range resourcesOf(t, c) {
			t.Run(r.Transport+" "+r.Device, func(t *testing.T) {
				require.NoError(t, openOne(c, r), "without a limit")
				n, err := 0, error(nil)
				for ; n < most; n++ {
					files, bytes := openFiles(t), offheap.InUse()
					testenv.WithDescriptors(t, n, func() { err = openOne(c, r) })
					assert.Equal(t, files, openFiles(t), "open files after a try with %d descriptors: %v", n, err)
					assert.Equal(t, bytes, offheap.InUse(), "memory after a try with %d descriptors: %v", n, err)
					if err == nil {
						break
					}
					assert.ErrorIs(t, err, unix.EMFILE, "with %d descriptors", n)
				}
				require.NoError(t, err, "with %d descriptors", most)
				assert.Positive(t, n, "the limit does not work")
			})
		}
	}
}

// resourcesOf lists one resource for each transport of a component.
func resourcesOf(t *testing.T, c uct.Component) (list []uct.Resource) {
	t.Helper()
	mds, err := c.MDs()
	require.NoError(t, err)
	md, err := c.OpenMD(mds[0].Name)
	require.NoError(t, err)
	defer func() { require.NoError(t, md.Close()) }()
	found, err := md.Resources()
	require.NoError(t, err)
	seen := map[string]bool{}
	for _, r := range found {
		if !seen[r.Transport] {
			seen[r.Transport] = true
			list = append(list, r)
		}
	}
	return list
}

// openOne opens an MD, its resources, memory and an iface with its event descriptor, and closes
// them.
func openOne(c uct.Component, r uct.Resource) (err error) {
	mds, err := c.MDs()
	if err != nil {
		return err
	}
	md, err := c.OpenMD(mds[0].Name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, md.Close()) }()
	if _, err = md.Resources(); err != nil {
		return err
	}
	if alloc := md.Ext().Alloc; alloc != nil {
		mem, err := alloc.Alloc(4096, uct.AccessAll)
		if err != nil {
			return err
		}
		defer func() { _ = mem.Close() }()
	}
	it, err := md.OpenIface(uct.IfaceParams{Transport: r.Transport, Device: r.Device})
	if err != nil {
		return err
	}
	if w := it.Ext().Wake; w != nil && w.EventFD() < 0 {
		err = errors.New("no event descriptor")
	}
	return errors.Join(err, it.Close())
}

// openFiles lists the file descriptors of the process, by what they refer to.
func openFiles(t *testing.T) []string {
	t.Helper()
	const dir = "/proc/self/fd/"
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var list []string
	for _, e := range entries {
		if target, err := os.Readlink(dir + e.Name()); err == nil { // but that of the directory itself
			list = append(list, target)
		}
	}
	return list
}
