package layer

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseMemory(t *testing.T) {
	for i, name := range MemoryNames() {
		m, err := ParseMemory(name)
		require.NoError(t, err)
		assert.Equal(t, Memory(i), m)
		assert.Equal(t, name, m.String())
	}
	_, err := ParseMemory("heap")
	assert.EqualError(t, err, `unknown memory "heap"; there are alloc, mapped, plain`)
	assert.Equal(t, "Memory(9)", Memory(9).String())
}
