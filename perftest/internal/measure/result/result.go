// Package result holds what a run of perftest found out, for any form of output.
package result

import (
	"fmt"
	"slices"
)

// Run describes under which conditions records were taken.
type Run struct {
	Machine  Machine  `json:"machine"`
	Commit   string   `json:"commit"`
	Clock    Clock    `json:"clock"`
	Settings Settings `json:"settings"`
	// Counters tells where those of the records are from; nil if they have none.
	Counters *CounterSource `json:"counters,omitempty"`
	// Load is what other threads took from the run; nil if the kernel does not say.
	Load *Load `json:"load,omitempty"`
	Partial
}

// Partial is among the conditions of results, of which some may be missing.
type Partial struct {
	// Incomplete is why there are not all results that were asked for; empty if there are.
	Incomplete string `json:"incomplete,omitempty"`
}

// Lines tell people what is missing; none if nothing is.
func (p Partial) Lines() []string {
	if p.Incomplete == "" {
		return nil
	}
	return []string{"INCOMPLETE, without what was not measured to its end: " + p.Incomplete}
}

// Load is how long the threads of a measurement were ready to run while others had their CPUs, as
// shares of its time.
type Load struct {
	Initiator float64 `json:"initiator_waited"` // the thread that runs the operations
	Target    float64 `json:"target_waited"`    // all threads of the target process; 0 without one on this host
}

// Worse is the greater of each share of two runs; nil is no load.
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
	// ProbeNS is what one hand-over of a cache line between the two processors
	// took, one way; 0 when not probed.
	ProbeNS float64 `json:"probe_ns,omitempty"`
}

// String is a line for people: hardware and kernel, then Go.
func (m Machine) String() string {
	cores := "cores"
	if m.Cores == 1 {
		cores = "core"
	}
	return fmt.Sprintf("%s, %d %s, Linux %s, %s %s", m.CPU, m.Cores, cores, m.Kernel, m.Go, m.Arch)
}

// Clock says what intervals were measured with.
type Clock struct {
	Source       string  `json:"source"`
	TicksPerNS   float64 `json:"ticks_per_ns"`
	ResolutionNS float64 `json:"resolution_ns"`
	CostNS       float64 `json:"cost_ns"`
}

// Settings are the choices of the user.
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
	Variant    string   `json:"variant,omitempty"` // asked for, or layouts of messages
	CPUs       []int    `json:"cpus"`
	Memory     string   `json:"memory,omitempty"` // class: alloc, mapped or plain
	Wait       string   `json:"wait,omitempty"`   // sleep if both sides sleep between messages; empty if they poll
	StopPeer   bool     `json:"stop_peer"`
	Rank       float64  `json:"rank,omitempty"` // percentile asked for; 0 for none
}

// Record is the result of one test of one layer at one size. All times are
// nanoseconds for one operation, without the cost of the measuring loop itself;
// with a window they are those of a window divided by its operations.
type Record struct {
	Layer     string `json:"layer"`
	Transport string `json:"transport"`
	Fabric    string `json:"fabric"`
	Test      string `json:"test"`
	Size      int    `json:"size"`
	// Variant of uct that moved the bytes: short, bcopy or zcopy; empty where there
	// is none, or the layer does not say.
	Variant string `json:"variant"`
	Window  int    `json:"window"`
	// Ops is how many operations were timed.
	Ops int `json:"ops"`

	// P50NS, P99NS, P999NS and MaxNS are percentiles of post and flush together.
	P50NS  float64 `json:"p50_ns"`
	P99NS  float64 `json:"p99_ns"`
	P999NS float64 `json:"p999_ns"` // 99.9 percent
	MaxNS  float64 `json:"max_ns"`
	// RankNS is the percentile of Settings.Rank, likewise.
	RankNS float64 `json:"rank_ns,omitempty"`
	// Histogram is the distribution of the same times, if it was asked for.
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
	// LeastNS is the least of these: of all figures the one that other load on the machine changes
	// least.
	LeastNS float64 `json:"least_ns,omitempty"`
	// RoundsNS are the values of the rounds, in their order; LoopNS is their median.
	RoundsNS []float64 `json:"rounds_ns,omitempty"`
	// LoopCostNS is what the empty loop takes for an operation: it was taken off
	// LoopNS. Programs that do not do so measure the sum.
	LoopCostNS float64 `json:"loop_cost_ns"`

	MsgPerS float64 `json:"msg_per_s"`
	MiBPerS float64 `json:"mib_per_s"` // 2^20 bytes

	// Over names the layer below, or the one that this layer is a variant of, and OverNS and OverPct what
	// this one adds to it: the median over rounds of the difference of LoopNS. Empty and 0 for the
	// lowest layer measured.
	Over    string  `json:"over,omitempty"`
	OverNS  float64 `json:"over_ns,omitempty"`
	OverPct float64 `json:"over_pct,omitempty"`
	// OverLoNS and OverHiNS bound OverNS with a confidence of 95 percent; both are 0 if the run had
	// too few rounds for that.
	OverLoNS float64 `json:"over_lo_ns,omitempty"`
	OverHiNS float64 `json:"over_hi_ns,omitempty"`

	// Counters is what one operation asked of the kernel, in a pass of its own; nil
	// if that was not wanted.
	Counters *Counters `json:"counters,omitempty"`
}

// Bin is how many windows took at least LoNS and less than HiNS for one operation.
type Bin struct {
	LoNS  float64 `json:"lo_ns"`
	HiNS  float64 `json:"hi_ns"`
	Count int64   `json:"count"`
}

// Added reports whether the layer differs from the one below by more than the rounds differ from each
// other: the interval of OverNS does not contain 0.
func (r *Record) Added() bool { return r.Over != "" && (r.OverLoNS > 0 || r.OverHiNS < 0) }

// MiB is the unit of bandwidth, as in ucx_perftest.
const MiB = 1 << 20

// Latency reports whether each operation was flushed by itself, so that the split
// into posting and flushing means something.
func (r *Record) Latency() bool { return r.Window == 1 }

// Tests, Transports and Layers list those of records, in their order, each once.
func Tests(records []Record) []string {
	return distinct(records, func(r *Record) string { return r.Test })
}

// Transports: see Tests.
func Transports(records []Record) []string {
	return distinct(records, func(r *Record) string { return r.Transport })
}

// Layers: see Tests.
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
