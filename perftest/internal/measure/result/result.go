// Package result defines the results of a run of perftest, independent of the form of output.
package result

import (
	"fmt"
	"slices"
)

// Run describes the conditions under which records were taken.
type Run struct {
	Machine  Machine  `json:"machine"`
	Commit   string   `json:"commit"`
	Clock    Clock    `json:"clock"`
	Settings Settings `json:"settings"`
	// Counters is the source of the counters of the records; nil if they have none.
	Counters *CounterSource `json:"counters,omitempty"`
	// Load is the load by other threads during the run; nil if the kernel does not report it.
	Load *Load `json:"load,omitempty"`
	Partial
}

// Partial is part of the conditions of results of which some may be missing.
type Partial struct {
	// Incomplete is the reason why results are missing; empty if none are.
	Incomplete string `json:"incomplete,omitempty"`
}

// Lines describes what is missing; none if nothing is.
func (p Partial) Lines() []string {
	if p.Incomplete == "" {
		return nil
	}
	return []string{"INCOMPLETE, without what was not measured to its end: " + p.Incomplete}
}

// Load is the time in which the threads of a measurement were ready but did not run, as shares of the time of the
// measurement.
type Load struct {
	Initiator float64 `json:"initiator_waited"` // the thread that runs the operations
	Target    float64 `json:"target_waited"`    // all threads of the target process; 0 without one on this host
}

// Worse returns the greater of each share of two runs; nil is no load.
func (l *Load) Worse(other *Load) *Load {
	switch {
	case l == nil:
		return other
	case other == nil:
		return l
	}
	return &Load{Initiator: max(l.Initiator, other.Initiator), Target: max(l.Target, other.Target)}
}

// Machine is the computer and the runtime.
type Machine struct {
	CPU        string `json:"cpu"`
	Cores      int    `json:"cores"`
	Kernel     string `json:"kernel"`
	Arch       string `json:"arch"`
	Go         string `json:"go"`
	GOMAXPROCS int    `json:"gomaxprocs"`
	GOGC       string `json:"gogc"`
	// ProbeNS is the time in nanoseconds in which a cache line moved between the two CPUs, one way; 0 if not measured.
	ProbeNS float64 `json:"probe_ns,omitempty"`
}

// String returns one line: hardware and kernel, then Go.
func (m Machine) String() string {
	cores := "cores"
	if m.Cores == 1 {
		cores = "core"
	}
	return fmt.Sprintf("%s, %d %s, Linux %s, %s %s", m.CPU, m.Cores, cores, m.Kernel, m.Go, m.Arch)
}

// Clock describes the clock of the intervals.
type Clock struct {
	Source       string  `json:"source"`
	TicksPerNS   float64 `json:"ticks_per_ns"`
	ResolutionNS float64 `json:"resolution_ns"`
	CostNS       float64 `json:"cost_ns"`
}

// Settings are the settings of the user.
type Settings struct {
	Device     string   `json:"device"`
	Transport  string   `json:"transport"`
	Fabric     string   `json:"fabric"`
	Layers     []string `json:"layers"`
	Tests      []string `json:"tests"`
	Sizes      []int    `json:"sizes"`
	Iterations int      `json:"iterations"`
	Warmup     int      `json:"warmup"`
	Rounds     int      `json:"rounds"`
	Window     int      `json:"window"`
	Variant    string   `json:"variant,omitempty"` // selected variant, or layouts of messages
	CPUs       []int    `json:"cpus"`
	Memory     string   `json:"memory,omitempty"` // class: alloc, mapped or plain
	Wait       string   `json:"wait,omitempty"`   // sleep if both sides sleep between messages; empty if they poll
	StopPeer   bool     `json:"stop_peer"`
	Rank       float64  `json:"rank,omitempty"` // selected percentile; 0 for none
}

// Record is the result of one test of one layer at one size. All times are nanoseconds per operation, without the cost
// of the measuring loop; with a window, the time of a window divided by its operations.
type Record struct {
	Layer     string `json:"layer"`
	Transport string `json:"transport"`
	Fabric    string `json:"fabric"`
	Test      string `json:"test"`
	Size      int    `json:"size"`
	// Variant is the variant of uct in use: short, bcopy or zcopy; empty if there is none or the layer does not report
	// it.
	Variant string `json:"variant"`
	Window  int    `json:"window"`
	// Ops is the number of timed operations.
	Ops int `json:"ops"`

	// P50NS, P99NS, P999NS and MaxNS are percentiles of post and flush together.
	P50NS  float64 `json:"p50_ns"`
	P99NS  float64 `json:"p99_ns"`
	P999NS float64 `json:"p999_ns"` // 99.9 percent
	MaxNS  float64 `json:"max_ns"`
	// RankNS is the percentile selected by Settings.Rank, of the same times.
	RankNS float64 `json:"rank_ns,omitempty"`
	// Histogram is the distribution of the same times, if selected.
	Histogram []Bin `json:"histogram,omitempty"`
	// PostNS and PostP99NS are percentiles of the time in the posting call.
	PostNS    float64 `json:"post_ns"`
	PostP99NS float64 `json:"post_p99_ns"`
	// FlushNS and FlushP99NS are percentiles of the time until remote completion
	// after that.
	FlushNS    float64 `json:"flush_ns"`
	FlushP99NS float64 `json:"flush_p99_ns"`
	// LoopNS is the mean of a loop without clock readings in it: the median over
	// rounds.
	LoopNS float64 `json:"loop_ns"`
	// LeastNS is the smallest of these: load of other programs changes it less than any other value.
	LeastNS float64 `json:"least_ns,omitempty"`
	// RoundsNS are the values of the rounds, in their order; LoopNS is their median.
	RoundsNS []float64 `json:"rounds_ns,omitempty"`
	// LoopCostNS is the time of the empty loop per operation, which was subtracted from LoopNS. Programs that do not
	// subtract it report the sum.
	LoopCostNS float64 `json:"loop_cost_ns"`

	MsgPerS float64 `json:"msg_per_s"`
	MiBPerS float64 `json:"mib_per_s"` // 2^20 bytes

	// Over is the layer below, or the layer of which this one is a variant. OverNS and OverPct are the cost that this
	// layer adds to it: the median over rounds of the difference of LoopNS. Empty and 0 for the lowest measured layer.
	Over    string  `json:"over,omitempty"`
	OverNS  float64 `json:"over_ns,omitempty"`
	OverPct float64 `json:"over_pct,omitempty"`
	// OverLoNS and OverHiNS are the bounds of OverNS with a confidence of 95 percent; both are 0 if there were too few
	// rounds.
	OverLoNS float64 `json:"over_lo_ns,omitempty"`
	OverHiNS float64 `json:"over_hi_ns,omitempty"`

	// Counters are the kernel events per operation, counted in a separate pass; nil if not selected.
	Counters *Counters `json:"counters,omitempty"`
}

// Bin is the number of windows with a time per operation of at least LoNS and less than HiNS.
type Bin struct {
	LoNS  float64 `json:"lo_ns"`
	HiNS  float64 `json:"hi_ns"`
	Count int64   `json:"count"`
}

// Added reports whether the difference to the layer below is significant: the interval of OverNS does not contain 0.
func (r *Record) Added() bool { return r.Over != "" && (r.OverLoNS > 0 || r.OverHiNS < 0) }

// MiB is the unit of bandwidth, as in ucx_perftest.
const MiB = 1 << 20

// Latency reports whether each operation was flushed alone, so that post and flush have times of their own.
func (r *Record) Latency() bool { return r.Window == 1 }

// Tests returns the tests of records, in their order, each once.
func Tests(records []Record) []string {
	return distinct(records, func(r *Record) string { return r.Test })
}

// Transports returns the transports of records, in their order, each once.
func Transports(records []Record) []string {
	return distinct(records, func(r *Record) string { return r.Transport })
}

// Layers returns the layers of records, in their order, each once.
func Layers(records []Record) []string {
	return distinct(records, func(r *Record) string { return r.Layer })
}

func distinct(records []Record, name func(*Record) string) (all []string) {
	for i := range records {
		if n := name(&records[i]); !slices.Contains(all, n) {
			all = append(all, n)
		}
	}
	return all
}
