package softhca

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSubnet(t *testing.T) {
	get := func(f Fabric) [subnetLen]byte {
		id, err := subnet(f)
		require.NoError(t, err)
		return id
	}
	assert.Equal(t, get(FabricShm), get(FabricShm), "devices of a host have the same subnet")
	assert.NotEqual(t, get(FabricLoop), get(FabricLoop), "loop devices have the same subnet")
	assert.NotEqual(t, get(FabricShm), get(FabricLoop))
}
