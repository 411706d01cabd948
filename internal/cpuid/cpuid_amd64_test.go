package cpuid

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestAMDFamily_Signatures has signatures of AMD's revision guides.
func TestAMDFamily_Signatures(t *testing.T) {
	intel := [3]uint32{0x756e6547, 0x49656e69, 0x6c65746e}
	for _, tc := range []struct {
		name      string
		vendor    [3]uint32
		signature uint32
		want      uint32
	}{
		{"Opteron 6100 (K10)", authenticAMD, 0x100f91, 0x10},
		{"EPYC 7003 (Zen 3)", authenticAMD, 0xa00f11, 0x19},
		{"EPYC 9004 (Zen 4)", authenticAMD, 0xa10f11, 0x19},
		{"EPYC 9005 (Zen 5)", authenticAMD, 0xb00f21, 0x1a},
		{"Athlon (K7), no extended family", authenticAMD, 0x660, 6},
		{"Xeon", intel, 0x806f8, 0},
	} {
		assert.Equal(t, tc.want, amdFamily(tc.vendor, tc.signature), tc.name)
	}
}

// TestAMDFamily compares the family of this CPU with what the kernel says.
func TestAMDFamily(t *testing.T) {
	vendor, family := kernelSays(t)
	if vendor != "AuthenticAMD" {
		assert.Zero(t, AMDFamily())
		return
	}
	assert.EqualValues(t, family, AMDFamily())
}

// kernelSays returns the vendor and the family of the first CPU in /proc/cpuinfo.
func kernelSays(t *testing.T) (vendor string, family int) {
	text, err := os.ReadFile("/proc/cpuinfo")
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(name) {
		case "vendor_id":
			vendor = value
		case "cpu family":
			family, err = strconv.Atoi(value)
			require.NoError(t, err)
			return vendor, family
		}
	}
	return vendor, family
}
