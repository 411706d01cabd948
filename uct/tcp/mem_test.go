package tcp

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct"
)

// TestMemClose_WaitsForAccess: Close waits for accesses in progress. Accesses that begin later
// fail, and Close does not wait for them.
func TestMemClose_WaitsForAccess(t *testing.T) {
	md, err := New(Config{}).OpenMD(Name)
	require.NoError(t, err)
	m, err := md.Ext().Reg.Reg(make([]byte, 64), uct.AccessAll)
	require.NoError(t, err)
	mem := m.(*memory)
	require.True(t, mem.enter())
	testenv.Waits(t, func() { _ = m.Close() }, func() {
		testenv.ProgressWithin(t, testenv.Watchdog, func() bool { return mem.users.Load() >= memClosed })
		assert.False(t, mem.enter())
		mem.exit()
	})
	require.NoError(t, m.Close(), "again")
	assert.False(t, mem.enter())
	require.NoError(t, md.Close())
}
