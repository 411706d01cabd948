package softhca

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/mlx5/provider"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// pagesOnly is a context of a device that implements only UAR pages.
type pagesOnly struct {
	prm.Hardware // other methods panic
	pool         *uarPool
}

func (h *pagesOnly) AllocUAR(prm.UARType) (prm.UAR, error) {
	index, err := h.pool.get()
	return prm.UAR{Index: index}, err
}

func (h *pagesOnly) FreeUAR(u prm.UAR) error                { h.pool.put(u.Index); return nil }
func (h *pagesOnly) QueryDevice() (verbs.DeviceAttr, error) { return verbs.DeviceAttr{}, nil }
func (h *pagesOnly) SetAsyncSink(_ prm.AsyncSink)           {}
func (h *pagesOnly) Close() error                           { return nil }

// Contexts with one thread domain each, as in the endpoints study on a ConnectX-4: 907 fit on a device.
// Each has 18 micro-UARs, of which one is used.
func TestUARPool_NaiveContexts(t *testing.T) {
	cfg, err := Config{}.withDefaults()
	require.NoError(t, err)
	pool := &uarPool{limit: uint32(cfg.UARPages)}
	dev := verbs.NewDevice("pages", func() (verbs.Provider, error) {
		return provider.New(&pagesOnly{pool: pool}, cfg.Queues)
	})
	var sum verbs.Resources
	for err == nil {
		var ctx *verbs.Context
		if ctx, err = dev.Open(); err != nil {
			break
		}
		var td *verbs.TD
		if td, err = ctx.AllocTD(verbs.TDInitAttr{Sharing: 1}); err != nil {
			require.NoError(t, ctx.Close())
			break
		}
		r, ok := ctx.Resources()
		require.True(t, ok)
		sum.Add(r)
		t.Cleanup(func() {
			require.NoError(t, td.Close())
			require.NoError(t, ctx.Close())
		})
	}
	require.ErrorIs(t, err, ucs.ErrNoMemory)
	assert.ErrorContains(t, err, "all 8168 UAR pages of the device are in use")
	assert.Equal(t, 907, sum.Contexts)
	assert.Equal(t, 907*18, sum.UUARs)
	assert.Equal(t, 907, sum.UUARsUsed)
	assert.InDelta(t, 0.94, float64(sum.UUARsWasted)/float64(sum.UUARs), 0.005)
}

// A freed page is allocated again, and no two pages have the same number.
func TestUARPool_Numbers(t *testing.T) {
	p := &uarPool{limit: 3}
	for want := range uint32(3) {
		got, err := p.get()
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	_, err := p.get()
	require.ErrorIs(t, err, ucs.ErrNoMemory)
	p.put(1)
	got, err := p.get()
	require.NoError(t, err)
	assert.Equal(t, uint32(1), got)
}
