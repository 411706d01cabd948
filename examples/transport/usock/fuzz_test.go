package usock

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/uct"
)

// FuzzMessages gives both ends what a peer may send: nothing panics, and memory that no
// key was made for stays as it is.
func FuzzMessages(f *testing.F) {
	for kind := range byte(9) {
		m := make([]byte, headerLen+8)
		m[0], m[4] = kind, 8
		f.Add(m)
	}
	f.Fuzz(func(t *testing.T, m []byte) {
		if len(m) < headerLen || len(m) > headerLen+maxData {
			t.Skip("receive takes no such message")
		}
		md, err := New().OpenMD(Name)
		require.NoError(t, err)
		defer func() { assert.NoError(t, md.Close()) }()
		opened, err := md.OpenIface(uct.IfaceParams{Transport: Name, Device: Name})
		require.NoError(t, err)
		defer func() { assert.NoError(t, opened.Close()) }()
		mem, err := md.Ext().Alloc.Alloc(64, uct.AccessAll)
		require.NoError(t, err)
		defer func() { assert.NoError(t, mem.Close()) }()

		i := opened.(*iface)
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		require.NoError(t, err)
		in, e := &inbound{i.newConn(pair[0])}, &endpoint{conn: i.newConn(pair[1])}
		require.NoError(t, i.poll(pair[0], in))
		require.NoError(t, i.poll(pair[1], e))
		i.eps.Add(e)
		_, err = e.GetBcopy(make([]byte, 8), mem.Addr(), 1, &uct.Completion{Count: 1, Func: func(*uct.Completion) {}})
		require.NoError(t, err)
		in.handle(m)
		e.handle(m)
		assert.True(t, bytes.Equal(mem.Bytes(), make([]byte, 64)), "written without a key")
	})
}
