package rccore

import (
	"encoding/binary"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/race"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
)

func TestConfig_RejectsInvalid(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		md := over.newMD(t)
		for name, c := range map[string]any{
			"depth":          Config{TxDepth: -1},
			"depth too long": Config{TxDepth: 1 << 20},
			"rx":             Config{RxDepth: 1},
			"inline":         Config{TxMaxInline: 4},
			"inline > seg":   Config{TxMaxInline: 4096, SegSize: 1024},
			"seg":            &Config{SegSize: 1 << 30},
			"retry":          Config{RetryCount: 8},
			"type":           42,
		} {
			_, err := md.OpenIface(uct.IfaceParams{Transport: over.Name(), Device: "dev:1", Config: c})
			assert.ErrorIs(t, err, uct.ErrInvalidParam, name)
		}
	})
}

func TestConfig_FromEnvironment(t *testing.T) {
	var c Config
	table := config.Table{Prefix: "RC", Doc: "rc", Config: &c}
	require.NoError(t, config.FromEnv([]string{
		"GUCX_RC_TX_QUEUE_LEN=32", "GUCX_RC_SEG_SIZE=4k", "GUCX_RC_TIMEOUT=20ms", "GUCX_RC_IB_SL=3",
	}, table))
	assert.Equal(t, 32, c.TxDepth)
	assert.EqualValues(t, 4096, c.SegSize)
	assert.EqualValues(t, 3, c.IB.SL)
	assert.Error(t, config.FromEnv([]string{"GUCX_RC_RETRY_COUNT=9"}, table), "Validate is asked")
	require.NoError(t, config.Print(io.Discard, config.PrintOptions{}, table), "defaults are in the fields' grammar")
}

// arm calls Progress of s until Arm succeeds.
func arm(t *testing.T, s *side) {
	until(t, func() bool {
		err := s.it.Arm(uct.EventRecv | uct.EventSendComp)
		if err != nil {
			require.Equal(t, uct.ErrBusy, err)
			s.it.Progress()
		}
		return err == nil
	})
}

func TestWaker(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b, ab, _ := over.pair(t, Config{})
		got := &counter{t: t}
		require.NoError(t, b.it.SetAMHandler(0, got))
		for i := range uint64(20) {
			arm(t, b)
			assert.False(t, b.it.EventPending())
			assert.False(t, testenv.Readable(t, b.it.EventFD(), 0))
			require.NoError(t, ab.AMShort(0, i, nil))
			until(t, func() bool { return testenv.Readable(t, b.it.EventFD(), 0) }, a)
			assert.True(t, b.it.EventPending())
			until(t, func() bool { return got.n == i+1 }, b)
		}
	})
}

func TestWaker_ArmFindsCompletion(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b, ab, _ := over.pair(t, Config{})
		arm(t, b)
		require.NoError(t, ab.AMShort(0, 0, nil))
		until(t, b.it.EventPending, a)
		progressUntilIdle(a, b)
		require.NoError(t, ab.AMShort(0, 0, nil))
		flush(t, ab, a) // the message has arrived
		assert.Equal(t, uct.ErrBusy, b.it.Arm(uct.EventRecv), "a message came after the last Progress")
	})
}

func TestWaker_FailureWakes(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b, ab, _ := over.pair(t, Config{})
		arm(t, b)
		require.NoError(t, ab.PutShort([]byte{1}, b.mem.Addr(), 0))
		until(t, func() bool { return testenv.Readable(t, b.it.EventFD(), 0) }, a)
		assert.True(t, b.it.EventPending())
		assert.Equal(t, uct.ErrBusy, b.it.Arm(uct.EventRecv))
		until(t, func() bool { return len(b.errs) == 1 }, b)
		arm(t, b)
		assert.False(t, testenv.Readable(t, b.it.EventFD(), 0))
	})
}

func TestKeptBuffers(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		md := over.newMD(t)
		a := over.newSide(t, md, Config{})
		b := &side{md: md}
		it, err := md.OpenIface(uct.IfaceParams{
			Transport: over.Name(), Device: "dev:1", Config: Config{RxDepth: 8},
		})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, it.Close()) })
		b.it = asIface(it)
		ab, _ := join(t, a, b)
		var kept []uct.Desc
		var data [][]byte
		require.NoError(t, b.it.SetAMHandler(0, uct.AMHandlerFunc(func(d []byte, desc uct.Desc) bool {
			kept, data = append(kept, desc), append(data, d)
			return true
		})))
		for round := range byte(5) {
			sent := byte(0)
			until(t, func() bool { // credits of the previous round may be in flight
				for sent < 4 && ab.AMShort(0, uint64(round)<<8|uint64(sent), []byte{sent}) == nil {
					sent++
				}
				return len(kept) == 4
			}, a, b)
			for i, d := range kept {
				assert.Equal(t, []byte{byte(i), round, 0, 0, 0, 0, 0, 0, byte(i)}, data[i])
				assert.Zero(t, address(data[i])%64, "the payload is on a cache line")
				d.Release()
			}
			kept, data = nil, nil
		}
	})
}

// The receive queue loses no buffer if buffers return in another order than they were posted, also
// after the wrap of its 16-bit counter. With the race detector the test stops before the wrap,
// which it need not check.
func TestRefill_Wraps(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		const depth = 32
		total := uint64(1<<16 + 1000)
		if race.Enabled {
			total = 1000
		}
		a, b, ab, _ := over.pair(t, Config{RxDepth: depth, FCWindow: depth / 2})
		type buffer struct {
			data []byte
			desc uct.Desc
			n    uint64
		}
		var kept []buffer
		got := uint64(0)
		require.NoError(t, b.it.SetAMHandler(0, uct.AMHandlerFunc(func(data []byte, desc uct.Desc) bool {
			if binary.LittleEndian.Uint64(data) != got || len(data) != 8+int(got%5) {
				t.Errorf("message %d is %x", got, data)
			}
			got++
			if got%3 != 0 {
				return false
			}
			kept = append(kept, buffer{data, desc, got - 1})
			return true
		})))
		release := func(i int) {
			assert.Equal(t, kept[i].n, binary.LittleEndian.Uint64(kept[i].data), "not written while kept")
			kept[i].desc.Release()
			kept = append(kept[:i], kept[i+1:]...)
		}
		sent, payload := uint64(0), make([]byte, 5)
		until(t, func() bool {
			for sent < total && ab.AMShort(0, sent, payload[:sent%5]) == nil {
				sent++
			}
			for len(kept) > depth/4 {
				release(int(got*7) % len(kept))
			}
			return got == total
		}, a, b)
		for len(kept) > 0 {
			release(0)
		}
		assert.Empty(t, append(a.errs, b.errs...))
	})
}

func TestAllocs(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		if race.Enabled {
			t.Skip("the race detector allocates")
		}
		a, b, ab, _ := over.pair(t, Config{})
		require.NoError(t, b.it.SetAMHandler(0, uct.AMHandlerFunc(func([]byte, uct.Desc) bool { return false })))
		buf := make([]byte, 8)
		pack, long := &fill{100}, make([]byte, 100)
		iov := []uct.IOV{{Buf: a.mem.Bytes()[:512], Mem: a.mem}}
		var result uint64
		c := &uct.Completion{Func: func(*uct.Completion) {}}
		raddr := b.mem.Addr()
		for _, tc := range []struct {
			name string
			f    func() error
		}{
			{"put short", func() error { return ab.PutShort(buf, raddr, b.key) }},
			{"put bcopy", func() error { return ab.PutBcopy(long, raddr, b.key) }},
			{"put zcopy", func() error { _, err := ab.PutZcopy(iov, raddr, b.key, c); return err }},
			{"get bcopy", func() error { _, err := ab.GetBcopy(buf, raddr, b.key, c); return err }},
			{"get zcopy", func() error { _, err := ab.GetZcopy(iov, raddr, b.key, c); return err }},
			{"add", func() error { return ab.AtomicPost(uct.AtomicAdd, 8, 1, raddr, b.key) }},
			{"fetch add", func() error {
				_, err := ab.AtomicFetch(uct.AtomicAdd, 8, 1, &result, raddr, b.key, c)
				return err
			}},
			{"compare and swap", func() error {
				_, err := ab.AtomicCSwap(8, 1, 2, &result, raddr, b.key, c)
				return err
			}},
			{"am short", func() error { return ab.AMShort(0, 1, buf) }},
			{"am bcopy", func() error { _, err := ab.AMBcopy(0, pack); return err }},
			{"am zcopy", func() error { _, err := ab.AMZcopy(0, buf, iov, c); return err }},
			{"flush", func() error { _, err := ab.Flush(c); return err }},
			{"flush iface", func() error { _, err := a.it.Flush(c); return err }},
		} {
			run := func() {
				c.Count = 1
				if err := tc.f(); err != nil && err != uct.ErrNoResource {
					t.Error(tc.name, err)
				}
				for range 4 {
					a.it.Progress()
					b.it.Progress()
				}
			}
			run()
			assert.Zero(t, testing.AllocsPerRun(300, run), tc.name)
		}
		progressUntilIdle(a, b)
		assert.Empty(t, a.errs)
	})
}

func TestAtomic_Supported(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b, ab, _ := over.pair(t, Config{})
		var r uint64
		addr := b.mem.Addr()
		second := func(_ bool, err error) error { return err }
		assert.ErrorIs(t, ab.AtomicPost(uct.AtomicAdd, 4, 1, addr, b.key), uct.ErrUnsupported)
		assert.ErrorIs(t, ab.AtomicPost(uct.AtomicAnd, 8, 1, addr, b.key), uct.ErrUnsupported)
		assert.ErrorIs(t, ab.AtomicPost(uct.AtomicAdd, 8, 1, addr+4, b.key), uct.ErrInvalidParam)
		assert.ErrorIs(t, ab.AtomicPost(uct.AtomicAdd, 2, 1, addr, b.key), uct.ErrInvalidParam)
		assert.ErrorIs(t, second(ab.AtomicFetch(uct.AtomicSwap, 8, 1, &r, addr, b.key, nil)), uct.ErrUnsupported)
		assert.ErrorIs(t, second(ab.AtomicCSwap(4, 0, 1, &r, addr, b.key, nil)), uct.ErrUnsupported)
		for range 3 {
			require.NoError(t, ab.AtomicPost(uct.AtomicAdd, 8, 5, addr, b.key))
		}
		_, err := ab.AtomicFetch(uct.AtomicAdd, 8, 1, &r, addr, b.key, nil)
		require.NoError(t, err)
		flush(t, ab, a)
		assert.EqualValues(t, 15, r)
		_, err = ab.AtomicCSwap(8, 16, 99, &r, addr, b.key, nil)
		require.NoError(t, err)
		flush(t, ab, a)
		assert.EqualValues(t, 16, r)
		assert.EqualValues(t, 99, b.mem.Bytes()[0])
	})
}
