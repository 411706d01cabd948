package tick

import (
	"os"
	"strings"
)

// clockSourceFile names the clock that the kernel itself keeps time with. The
// kernel leaves "tsc" when its watchdog finds the counters of the cores apart.
const clockSourceFile = "/sys/devices/system/clocksource/clocksource0/available_clocksource"

// kernelTrustsTSC reports whether the kernel still offers the TSC as a clock: it
// withdraws one that it has marked unstable. Without sysfs the CPUID bit decides.
func kernelTrustsTSC() bool {
	text, err := os.ReadFile(clockSourceFile)
	if err != nil {
		return true
	}
	return offersTSC(string(text))
}

// offersTSC looks for tsc in a list of clock sources separated by blanks.
func offersTSC(list string) bool {
	for _, name := range strings.Fields(list) {
		if name == "tsc" {
			return true
		}
	}
	return false
}
