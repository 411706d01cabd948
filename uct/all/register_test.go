package all_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// TestReg_MemoryWithoutTheRights: memory is refused at registration, by every domain, if
// what peers may do with it would end this process.
func TestReg_MemoryWithoutTheRights(t *testing.T) {
	c := loop()
	for _, comp := range c.Components() {
		found, err := comp.MDs()
		require.NoError(t, err)
		for _, m := range found {
			t.Run(m.Name, func(t *testing.T) {
				md, err := comp.OpenMD(m.Name)
				require.NoError(t, err)
				refusesWhatFaults(t, md.Ext().Reg)
				require.NoError(t, md.Close())
			})
		}
	}
}

func refusesWhatFaults(t *testing.T, md uct.Registrar) {
	t.Helper()
	page := os.Getpagesize()
	mem, err := unix.Mmap(-1, 0, 3*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Munmap(mem)) }()
	require.NoError(t, unix.Mprotect(mem[page:2*page], unix.PROT_READ))
	require.NoError(t, unix.Mprotect(mem[2*page:], unix.PROT_NONE))

	for _, access := range []uct.Access{uct.AccessLocalWrite, uct.AccessRemoteWrite, uct.AccessRemoteAtomic, uct.AccessAll} {
		refused(t, md, mem[:page+1], access)
	}
	refused(t, md, mem[page:], uct.AccessRemoteRead)
	refused(t, md, mem[2*page:], 0)
	for _, ok := range []struct {
		buf    []byte
		access uct.Access
	}{{mem[:page], uct.AccessAll}, {mem[:2*page], uct.AccessRemoteRead}, {mem[page : 2*page], 0}} {
		m, err := md.Reg(ok.buf, ok.access)
		require.NoError(t, err, "%d bytes, %v", len(ok.buf), ok.access)
		require.NoError(t, m.Close())
	}
}

func refused(t *testing.T, md uct.Registrar, buf []byte, access uct.Access) {
	t.Helper()
	m, err := md.Reg(buf, access)
	assert.ErrorIs(t, err, unix.EFAULT, "%d bytes, %v", len(buf), access)
	assert.ErrorIs(t, err, ucs.ErrInvalidParam, "%d bytes, %v", len(buf), access)
	if err == nil {
		require.NoError(t, m.Close())
	}
}
