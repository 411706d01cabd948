package memfd

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestCreate_MappingsInUse: the Go runtime keeps mappings when this package has as many as it may have.
func TestCreate_MappingsInUse(t *testing.T) {
	start := mappings.Load()
	one, err := Create("test", 4096, PeersRead)
	require.NoError(t, err)
	assert.Equal(t, start+1, mappings.Load())
	rest := maxMappings() - mappings.Load()
	mappings.Add(rest)
	_, err = Create("test", 4096, PeersRead)
	assert.ErrorIs(t, err, unix.ENOMEM)
	assert.ErrorContains(t, err, "raise it (sysctl -w vm.max_map_count=")
	require.NoError(t, one.Close())
	two, err := Create("test", 4096, PeersRead)
	require.NoError(t, err)
	mappings.Add(-rest)
	require.NoError(t, two.Close())
	assert.Equal(t, start, mappings.Load())
}
