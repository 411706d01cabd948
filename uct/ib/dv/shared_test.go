package dv

import (
	"encoding/binary"
	"errors"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// openSharedRegisters opens a device with four registers, of which the first accepts only doorbells
// and the last is for one queue. So all QPs but one of category Static share the other two.
func openSharedRegisters(t *testing.T) uct.MD {
	t.Helper()
	dev, err := softhca.NewDevice(softhca.Config{Name: "dev", Fabric: softhca.FabricLoop,
		Queues: mlx5.Config{TotalUUARs: 4, LowLatUUARs: 1}})
	require.NoError(t, err)
	var c RCConfig
	c.IB.Endpoints = ib.EndpointsStatic
	list := func() ([]*verbs.Device, error) { return []*verbs.Device{dev}, nil }
	md, err := ib.New(list, RC(c)).OpenMD("dev")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, md.Close()) })
	return md
}

// TestStatic_SharedRegisters: ifaces of several goroutines use the same registers, with BlueFlame
// and doorbells.
func TestStatic_SharedRegisters(t *testing.T) {
	const threads = 4
	puts := testenv.Rounds(5000, 50_000)
	md := openSharedRegisters(t)
	mem, err := md.Ext().Alloc.Alloc(4096, uct.AccessAll)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, mem.Close()) })
	packed, err := mem.PackRKey(nil)
	require.NoError(t, err)
	key, err := md.Ext().Keys.UnpackRKey(packed)
	require.NoError(t, err)

	far, _ := open(t, md, RCName, nil)
	var its [threads]uct.Iface
	var eps [threads]uct.EP
	for i := range its {
		its[i], eps[i] = open(t, md, RCName, nil)
		peer, err := far.NewEP(uct.EPParams{})
		require.NoError(t, err)
		require.NoError(t, errors.Join(connect(eps[i], far, peer), connect(peer, its[i], eps[i])))
	}
	shared := 0
	for _, it := range its {
		if it.(*rcIface).reg.shared != nil {
			shared++
		}
	}
	require.Equal(t, threads, shared)

	var wg sync.WaitGroup
	for i := range its {
		wg.Go(func() { putUpTo(t, its[i], eps[i].Ops().Put, mem.Addr()+uint64(i)*8, key, uint64(puts)) })
	}
	wg.Wait()
	for i := range threads {
		assert.EqualValues(t, puts, binary.LittleEndian.Uint64(mem.Bytes()[i*8:]))
	}
}

func connect(ep uct.EP, it uct.Iface, to uct.EP) error {
	return ep.Ops().Connect.Connect(it.Ext().Address.DeviceAddr(nil), to.Ops().Connect.EPAddr(nil))
}

// putUpTo puts the numbers 1 to n to one location and waits for their completion.
func putUpTo(t *testing.T, it uct.Iface, put uct.Putter, addr uint64, key uct.RKey, n uint64) {
	var word [8]byte
	for i := uint64(1); i <= n; {
		binary.LittleEndian.PutUint64(word[:], i)
		switch err := put.PutShort(word[:], addr, key); err {
		case nil:
			i++
		case uct.ErrNoResource:
			if it.Progress() == 0 {
				runtime.Gosched()
			}
		default:
			t.Error(err)
			return
		}
	}
	for {
		pending, err := it.Flush(nil)
		if err != nil || !pending {
			assert.NoError(t, err)
			return
		}
		if it.Progress() == 0 {
			runtime.Gosched()
		}
	}
}
