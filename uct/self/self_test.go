package self

import (
	"bytes"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

type packer []byte

func (k packer) Pack(dst []byte) int { return copy(dst, k) }

// grip is a handler that owns its messages.
type grip struct {
	got  []byte
	desc uct.Desc
}

func (g *grip) HandleAM(data []byte, d uct.Desc) bool {
	g.got, g.desc = data, d
	return d != nil
}

func TestRMA_EveryVariant(t *testing.T) {
	r := openRig(t)
	data, raddr := []byte("0123456789"), r.mem.Addr()
	require.NoError(t, r.ep.PutShort(data, raddr, r.key))
	require.NoError(t, r.ep.PutBcopy(data, raddr+100, r.key))
	pending, err := r.ep.PutZcopy([]uct.IOV{{Buf: data[:3]}, {}, {Buf: data[3:]}}, raddr+200, r.key, nil)
	require.NoError(t, err)
	assert.False(t, pending)
	for _, off := range []int{0, 100, 200} {
		assert.Equal(t, data, r.mem.Bytes()[off:off+10])
		assert.Zero(t, r.mem.Bytes()[off+10])
		got := make([]byte, 10)
		at := raddr + uint64(off)
		require.NoError(t, r.ep.GetShort(got, at, r.key))
		assert.Equal(t, data, got)
		clear(got)
		_, err = r.ep.GetBcopy(got, at, r.key, nil)
		require.NoError(t, err)
		assert.Equal(t, data, got)
		clear(got)
		_, err = r.ep.GetZcopy([]uct.IOV{{Buf: got[:9]}, {Buf: got[9:]}}, at, r.key, nil)
		require.NoError(t, err)
		assert.Equal(t, data, got)
	}
	assert.NoError(t, r.ep.PutShort(nil, raddr, r.key))
}

func TestAtomics(t *testing.T) {
	r := openRig(t)
	raddr, old := r.mem.Addr()+64, new(uint64)
	for _, size := range []int{4, 8} {
		clear(r.mem.Bytes()[64:72])
		word := uint64(0)
		for op := uct.AtomicAdd; op < uct.AtomicCSwap; op++ {
			_, err := r.ep.AtomicFetch(op, size, 0xf1, old, raddr, r.key, nil)
			require.NoError(t, err)
			assert.Equal(t, word, *old, "%v/%d", op, size)
			word = op.Apply(size, word, 0, 0xf1)
			require.NoError(t, r.ep.AtomicPost(op, size, 3, raddr, r.key))
			word = op.Apply(size, word, 0, 3)
		}
		for _, compare := range []uint64{word, word + 1} {
			_, err := r.ep.AtomicCSwap(size, compare, 9, old, raddr, r.key, nil)
			require.NoError(t, err)
			assert.Equal(t, word, *old)
			word = uct.AtomicCSwap.Apply(size, word, compare, 9)
		}
	}
	assert.Equal(t, uct.ErrInvalidParam, r.ep.AtomicPost(uct.AtomicAdd, 8, 1, raddr+4, r.key))
	assert.Equal(t, uct.ErrUnsupported, r.ep.AtomicPost(uct.AtomicCSwap, 8, 1, raddr, r.key))
}

func TestKeys_Rejected(t *testing.T) {
	r := openRig(t)
	readOnly, err := r.md.Reg(make([]byte, 64), uct.AccessRemoteRead)
	require.NoError(t, err)
	gone, err := r.md.Alloc(64, uct.AccessAll)
	require.NoError(t, err)
	stale := r.keyOf(t, gone)
	require.NoError(t, gone.Close())
	require.NoError(t, gone.Close(), "again")
	base, n := r.mem.Addr(), uint64(len(r.mem.Bytes()))
	for _, tc := range []struct {
		name  string
		raddr uint64
		key   uct.RKey
	}{
		{"no such key", base, r.key ^ 1<<40},
		{"zero key", base, 0},
		{"stale", gone.Addr(), stale},
		{"read only", readOnly.Addr(), r.keyOf(t, readOnly)},
		{"below", base - 1, r.key},
		{"above", base + n - 7, r.key},
		{"wraps", math.MaxUint64 - 3, r.key},
	} {
		buf := make([]byte, 8)
		assert.Equal(t, ucs.ErrRemoteAccess, r.ep.PutShort(buf, tc.raddr, tc.key), tc.name)
		assert.Equal(t, ucs.ErrRemoteAccess, r.ep.PutBcopy(buf, tc.raddr, tc.key), tc.name)
		_, err := r.ep.PutZcopy([]uct.IOV{{Buf: buf}}, tc.raddr, tc.key, nil)
		assert.Equal(t, ucs.ErrRemoteAccess, err, tc.name)
	}
	assert.Equal(t, make([]byte, n), r.mem.Bytes())
	assert.Equal(t, ucs.ErrRemoteAccess, r.ep.AtomicPost(uct.AtomicAdd, 8, 1, readOnly.Addr(), r.keyOf(t, readOnly)))
	assert.NoError(t, r.ep.GetShort(make([]byte, 8), readOnly.Addr(), r.keyOf(t, readOnly)))
	require.NoError(t, readOnly.Close())
}

func TestMD_RejectsInvalidMemory(t *testing.T) {
	r := openRig(t)
	_, err := r.md.Reg(nil, uct.AccessAll)
	assert.ErrorIs(t, err, uct.ErrInvalidParam)
	_, err = r.md.Alloc(0, uct.AccessAll)
	assert.ErrorIs(t, err, uct.ErrInvalidParam)
	_, err = r.md.Alloc(1, 1<<7)
	assert.ErrorIs(t, err, uct.ErrInvalidParam)
	assert.ErrorIs(t, r.md.Close(), uct.ErrBusy)
}

// TestDesc_OwnedByHandler: a segment that a handler owns is not reused before Release.
func TestDesc_OwnedByHandler(t *testing.T) {
	r := openRig(t)
	g := &grip{}
	require.NoError(t, r.iface.SetAMHandler(2, g))
	want := bytes.Repeat([]byte{7}, 500)
	_, err := r.ep.AMBcopy(2, packer(want))
	require.NoError(t, err)
	require.Equal(t, 1, r.iface.Progress())
	kept := g.got
	require.NoError(t, r.iface.SetAMHandler(2, nil))
	for range 3 * defaultFIFOSize {
		_, err := r.ep.AMBcopy(2, packer(make([]byte, 500)))
		require.NoError(t, err)
		r.iface.Progress()
	}
	assert.Equal(t, want, kept)
	g.desc.Release()
}

func TestPeerClosed_EPFailsOnce(t *testing.T) {
	r := openRig(t)
	group := new(Group)
	open := func() *iface {
		it, err := r.md.OpenIface(uct.IfaceParams{Transport: Name, Device: DeviceName, Config: Config{Group: group},
			OnError: func(_ uct.EP, err error) { r.errs = append(r.errs, err) }})
		require.NoError(t, err)
		return it.(*iface)
	}
	a, b := open(), open()
	ep, err := a.NewEP(uct.EPParams{DeviceAddr: b.DeviceAddr(nil), IfaceAddr: b.IfaceAddr(nil)})
	require.NoError(t, err)
	require.NoError(t, b.Close())
	for range 3 {
		a.Progress()
	}
	require.Len(t, r.errs, 1)
	assert.ErrorIs(t, r.errs[0], ucs.ErrPeerClosed)
	assert.ErrorIs(t, ep.(*endpoint).AMShort(0, 0, nil), uct.ErrEPFailed)
	ok, why := a.Reachable(r.iface.DeviceAddr(nil), r.iface.IfaceAddr(nil))
	assert.False(t, ok, "another group")
	assert.NotEmpty(t, why)
	require.NoError(t, a.Close())
	assert.Equal(t, uct.ErrClosed, ep.(*endpoint).AMShort(0, 0, nil))
}

func TestWake(t *testing.T) {
	r := openRig(t)
	require.NoError(t, r.iface.Arm(uct.EventRecv))
	assert.False(t, testenv.Readable(t, r.iface.EventFD(), 0))
	require.NoError(t, r.ep.AMShort(1, 1, nil))
	assert.True(t, testenv.Readable(t, r.iface.EventFD(), 0))
	assert.True(t, r.iface.EventPending())
	assert.Equal(t, uct.ErrBusy, r.iface.Arm(uct.EventRecv))
	r.iface.Progress()
	require.NoError(t, r.iface.Arm(uct.EventRecv))
	assert.False(t, testenv.Readable(t, r.iface.EventFD(), 0))
}

func TestDataPath_AllocatesNothing(t *testing.T) {
	r := openRig(t)
	require.NoError(t, r.iface.SetAMHandler(1, &counter{}))
	buf, word, raddr := make([]byte, 8), new(uint64), r.mem.Addr()
	long, iov := make([]byte, 300), []uct.IOV{{Buf: make([]byte, 300)}}
	var pack uct.Packer = packer(long)
	for name, op := range map[string]func() error{
		"am short":  func() error { return r.ep.AMShort(1, 1, buf) },
		"am words":  func() error { return r.ep.AMWords(1, 1, 2, buf) },
		"am bcopy":  func() error { _, err := r.ep.AMBcopy(1, pack); return err },
		"am zcopy":  func() error { _, err := r.ep.AMZcopy(1, buf, iov, nil); return err },
		"put short": func() error { return r.ep.PutShort(buf, raddr, r.key) },
		"put bcopy": func() error { return r.ep.PutBcopy(long, raddr, r.key) },
		"get bcopy": func() error { _, err := r.ep.GetBcopy(long, raddr, r.key, nil); return err },
		"fetch": func() error {
			_, err := r.ep.AtomicFetch(uct.AtomicXor, 8, 1, word, raddr, r.key, nil)
			return err
		},
	} {
		testenv.NoAllocs(t, name, func() {
			require.NoError(t, op())
			r.iface.Progress()
		})
	}
}
