package tick

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestOffersTSC(t *testing.T) {
	assert.True(t, offersTSC("kvm-clock tsc acpi_pm\n"))
	assert.True(t, offersTSC("tsc"))
	assert.False(t, offersTSC("hpet acpi_pm\n"))
	assert.False(t, offersTSC("tsc-early hpet\n"))
	assert.False(t, offersTSC(""))
}

func TestSource_FallsBackToTheMonotonicClock(t *testing.T) {
	saved := useTSC
	t.Cleanup(func() { useTSC = saved })
	useTSC = false

	assert.Equal(t, "monotonic", source())
	a := Now()
	assert.GreaterOrEqual(t, Now(), a)
}
