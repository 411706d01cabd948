package invariants

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAssert(t *testing.T) {
	assert.NotPanics(t, func() { Assert(true, "never told") })
	broken := func() { Assert(false, "head %d passed tail %d", 3, 2) }
	if !Enabled {
		assert.NotPanics(t, broken)
		return
	}
	assert.PanicsWithValue(t, "broken invariant: head 3 passed tail 2", broken)
}
