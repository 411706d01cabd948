package ucp_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// sliceOf calls Slice after the EP has connected.
func sliceOf(t testing.TB, k *ucp.RKey) (mem []byte, err error) {
	t.Helper()
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
		mem, err = k.Slice()
		k.EP().Worker().Progress()
		return err != ucs.ErrBusy
	})
	return mem, err
}

// sliced is memory of one worker, and its key at another one.
type sliced struct {
	*idleWorld
	ep   *ucp.EP
	stop func()
}

// newSliced connects a worker to the served worker of a world; over self to itself.
func newSliced(t *testing.T, tls string) *sliced {
	t.Helper()
	x := &sliced{idleWorld: openIdleWorld(t, ucppair.FromEnv(t, "TLS="+tls)), stop: func() {}}
	from := x.w
	if tls != "self" {
		from = x.newWorker(t)
		x.stop = background(1, x.w.Serve)
		t.Cleanup(func() { x.stop() })
	}
	var err error
	x.ep, err = from.NewEP(x.w.Address(), ucp.EPConfig{})
	require.NoError(t, err)
	return x
}

func (x *sliced) unpack(t *testing.T, packed []byte) *ucp.RKey {
	t.Helper()
	key, err := x.ep.Unpack(packed)
	require.NoError(t, err)
	t.Cleanup(key.Close)
	return key
}

// TestSlice: the bytes are the memory of the peer, in both directions.
func TestSlice(t *testing.T) {
	for _, tls := range []string{"self", "sm", "all"} {
		t.Run(tls, func(t *testing.T) {
			x := newSliced(t, tls)
			m, err := x.ctx.MemAlloc(1 << 20)
			require.NoError(t, err)
			packed := m.Pack()
			key := x.unpack(t, packed)
			if tls == "sm" {
				_, err := key.Slice()
				require.Equal(t, ucs.ErrBusy, err, "it is not connected")
			}
			mem, err := sliceOf(t, key)
			require.NoError(t, err)
			require.Len(t, mem, 1<<20)
			again, err := key.Slice()
			require.NoError(t, err)
			assert.Same(t, &mem[0], &again[0])

			require.NoError(t, x.ep.PutWait(t.Context(), []byte("put"), key.Addr()+1000, key, nil))
			require.NoError(t, x.ep.FlushWait(t.Context()))
			assert.Equal(t, "put", string(mem[1000:1003]))
			mem[1<<20-1] = 7
			assert.Equal(t, byte(7), m.Bytes()[1<<20-1])
			got := make([]byte, 1)
			require.NoError(t, x.ep.GetWait(t.Context(), got, key.Addr()+1<<20-1, key, nil))
			assert.Equal(t, byte(7), got[0])

			require.NoError(t, m.Close())
			touch(mem) // it stays mapped
			_, err = sliceOf(t, x.unpack(t, packed))
			assert.ErrorIs(t, err, ucs.ErrRemoteAccess)
			x.stop()
			require.NoError(t, x.ep.Worker().Close())
			touch(mem)
			key.Close()
			_, err = key.Slice()
			assert.ErrorIs(t, err, uct.ErrInvalidRKey)
		})
	}
}

// touch reads and writes each page of mem.
func touch(mem []byte) {
	for i := 0; i < len(mem); i += 1 << 10 {
		mem[i]++
	}
}

// TestSlice_Errors: Slice returns an error for transports and memory that cannot be mapped.
func TestSlice_Errors(t *testing.T) {
	for _, tls := range []string{"tcp", "rc_mlx5"} {
		t.Run(tls, func(t *testing.T) {
			x := newSliced(t, tls)
			_, err := sliceOf(t, x.unpack(t, x.mem.Pack()))
			assert.ErrorIs(t, err, ucs.ErrUnsupported)
			assert.ErrorContains(t, err, "map 8 bytes")
			assert.ErrorContains(t, err, tls)
		})
	}
	t.Run("ud_mlx5", func(t *testing.T) {
		x := newSliced(t, "ud_mlx5")
		_, err := x.unpack(t, x.mem.Pack()).Slice()
		assert.ErrorIs(t, err, ucs.ErrUnsupported)
	})
	t.Run("registered", func(t *testing.T) {
		x := newSliced(t, "sm")
		m, err := x.ctx.MemMap(make([]byte, 4096))
		require.NoError(t, err)
		defer func() { require.NoError(t, m.Close()) }()
		_, err = sliceOf(t, x.unpack(t, m.Pack()))
		assert.ErrorIs(t, err, ucs.ErrUnsupported)
		assert.ErrorContains(t, err, "registered and not allocated")
	})
	t.Run("without the right", func(t *testing.T) {
		x := newSliced(t, "sm")
		m, err := x.ctx.MemAllocAccess(4096, uct.AccessAll&^uct.AccessRemoteRead)
		require.NoError(t, err)
		defer func() { require.NoError(t, m.Close()) }()
		_, err = sliceOf(t, x.unpack(t, m.Pack()))
		assert.ErrorIs(t, err, ucs.ErrRemoteAccess)
	})
}

// TestSlice_PeerDies: after a process has died its memory remains mapped until the key closes.
func TestSlice_PeerDies(t *testing.T) {
	x := startTarget(t, "sm")
	in := x.reach(t, "sm")
	require.NoError(t, in.ep.PutWait(in.ctx, testenv.Pattern(100, 1), in.key.Addr(), in.key, nil))
	mem, err := sliceOf(t, in.key)
	require.NoError(t, err)
	require.NoError(t, x.cmd.Process.Kill())
	_ = x.cmd.Wait() // returns the exit status
	assert.Equal(t, testenv.Pattern(100, 1), mem[:100])
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool { in.w.Progress(); return in.ep.Err() != nil })
	touch(mem)
	again, err := in.key.Slice()
	require.NoError(t, err)
	assert.Same(t, &mem[0], &again[0])
	require.NoError(t, in.ep.CloseWait(in.ctx, ucp.CloseForce))
	in.key.Close()
}

// TestSlice_RoleLost: Slice of an EP that has lost the lanes of puts and gets fails, and not with ErrBusy.
func TestSlice_RoleLost(t *testing.T) {
	p := ucppair.New(t, faketp.Set("like sm", faketp.LikeSM()), ucp.Config{}).Connect().Warm()
	p.A.EP.LoseLane(wireup.RMA, ucs.ErrTimedOut)
	_, err := p.A.Key.Slice()
	assert.ErrorIs(t, err, ucs.ErrTimedOut)
	assert.ErrorContains(t, err, "map ")
}
