package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gucx/gucx/perftest/internal/measure/result"
)

const (
	// skewed is the ratio of mean to median of a latency from which interruptions are reported.
	skewed = 2
	// loaded is the share of a run that its threads wait for their CPUs from which load is reported.
	loaded = 0.01
	// copied is the size in bytes from which the copy of the data is most of a transfer.
	copied = 4 << 10
)

// warnings returns reasons to doubt the results, a sentence each.
func warnings(run result.Run, records []result.Record) []string {
	all := []string{warnOfMeans(records), warnOfLoad(run), warnOfSharedCPU(run), warnOfCopies(run, records)}
	all = slices.DeleteFunc(all, func(text string) bool { return text == "" })
	for i := range all {
		all[i] = "Warning: " + all[i]
	}
	return all
}

// warnOfMeans warns of latencies whose mean differs much from the median.
func warnOfMeans(records []result.Record) string {
	rows := 0
	var worst *result.Record
	for i := range records {
		r := &records[i]
		if !r.Latency() || r.P50NS <= 0 || r.LoopNS < skewed*r.P50NS {
			continue
		}
		rows++
		if worst == nil || r.LoopNS*worst.P50NS > worst.LoopNS*r.P50NS {
			worst = r
		}
	}
	if worst == nil {
		return ""
	}
	return fmt.Sprintf("in %s the Mean is at least twice the median, as in %s of %s (%s): %.1f times. Something interrupts the operations; do not compare these Means.",
		count(rows, "row"), worst.Test, sizeText(worst.Size), worst.Layer, worst.LoopNS/worst.P50NS)
}

// count formats a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// warnOfLoad warns of other threads on the CPUs of the measurement.
func warnOfLoad(run result.Run) string {
	l := run.Load
	if l == nil || max(l.Initiator, l.Target) < loaded {
		return ""
	}
	return fmt.Sprintf("other threads used the CPUs of the measurement: the initiator waited for its own for %.0f %% of the time, the target for %.0f %%.",
		100*l.Initiator, 100*l.Target)
}

// warnOfSharedCPU warns of two processes on one CPU.
func warnOfSharedCPU(run result.Run) string {
	if c := run.Settings.CPUs; len(c) == 2 && c[0] == c[1] {
		return "initiator and target share a CPU: where the target takes part, times are those of the scheduler."
	}
	return ""
}

// softDevice is the prefix of device names of the software HCA.
const softDevice = "softhca"

// warnOfCopies warns of bandwidths that are not those of an adapter.
func warnOfCopies(run result.Run, records []result.Record) string {
	fast := func(r result.Record) bool { return !r.Latency() && r.Size >= copied && r.Fabric != "" }
	if !strings.Contains(run.Settings.Device, softDevice) || !slices.ContainsFunc(records, fast) {
		return ""
	}
	return fmt.Sprintf("%s is software: from %s on MiB/s is how fast a CPU copies memory, not the bandwidth of an adapter.", softDevice, sizeText(copied))
}
