//go:build !race && !purego

package bulk

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestStringMin checks that the length from which REP MOVSB copies depends on the CPU.
func TestStringMin(t *testing.T) {
	const zen3 = 0x19
	assert.Equal(t, 4<<10, stringMinOf(zen5))
	assert.Equal(t, stringMax, stringMinOf(zen3))
	assert.Equal(t, stringMax, stringMinOf(0))
}

// TestCopy_ByString repeats TestCopy_EveryLengthAndNothingBeside with REP MOVSB from the least minimum of any CPU.
func TestCopy_ByString(t *testing.T) {
	before := stringMin
	t.Cleanup(func() { stringMin = before })
	stringMin = stringMinOf(zen5)
	TestCopy_EveryLengthAndNothingBeside(t)
}
