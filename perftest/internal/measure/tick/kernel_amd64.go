package tick

import (
	"os"
	"strings"
)

// clockSourceFile contains the name of the clock that the kernel uses. The kernel stops using "tsc"
// if its watchdog detects different counters of the cores.
const clockSourceFile = "/sys/devices/system/clocksource/clocksource0/available_clocksource"

// kernelTrustsTSC reports whether the kernel offers the TSC as a clock: it removes a TSC that it
// has marked unstable. Without sysfs the CPUID bit decides.
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
