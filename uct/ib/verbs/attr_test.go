package verbs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestMTU_Bytes(t *testing.T) {
	for m, want := range map[MTU]int{0: 0, MTU256: 256, MTU512: 512, MTU1024: 1024, MTU2048: 2048, MTU4096: 4096, 6: 0} {
		assert.Equal(t, want, m.Bytes())
	}
}

func TestAckTimeout(t *testing.T) {
	assert.Zero(t, AckTimeout(0), "forever")
	assert.Equal(t, 8192*time.Nanosecond, AckTimeout(1))
	assert.Equal(t, 67108864*time.Nanosecond, AckTimeout(14))
	assert.Equal(t, 4096*time.Nanosecond<<31, AckTimeout(31))
	assert.Zero(t, AckTimeout(32))
}

func TestNames(t *testing.T) {
	assert.Equal(t, "RC", QPTypeRC.String())
	assert.Equal(t, "UD", QPTypeUD.String())
	assert.Equal(t, "QPType(11)", QPType(11).String())
	assert.Equal(t, "RESET", QPStateReset.String())
	assert.Equal(t, "ERR", QPStateErr.String())
	assert.Equal(t, "QPState(7)", QPState(7).String())
}

func TestResources_Add(t *testing.T) {
	one := Resources{PDs: 1, MRs: 2, AHs: 3, TDs: 4, CQs: 5, SRQs: 6, QPs: 7, XRCDs: 8, UARPages: 8, UUARs: 9, UUARsUsed: 10, UUARsWasted: 11,
		Contexts: 12, Bytes: ResourceBytes{Contexts: 1, PDs: 2, MRs: 3, AHs: 4, TDs: 5, CQs: 6, SRQs: 7, QPs: 8, XRCDs: 11, UARs: 9, Reserved: 10}}
	sum := one
	sum.Add(one)
	assert.Equal(t, Resources{PDs: 2, MRs: 4, AHs: 6, TDs: 8, CQs: 10, SRQs: 12, QPs: 14, XRCDs: 16, UARPages: 16, UUARs: 18, UUARsUsed: 20, UUARsWasted: 22,
		Contexts: 24, Bytes: ResourceBytes{Contexts: 2, PDs: 4, MRs: 6, AHs: 8, TDs: 10, CQs: 12, SRQs: 14, QPs: 16, XRCDs: 22, UARs: 18, Reserved: 20}}, sum)
	assert.Equal(t, int64(112), sum.Bytes.Total())
}
