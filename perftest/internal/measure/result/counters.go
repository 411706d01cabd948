package result

// CounterSource is what counted events in the kernel.
type CounterSource struct {
	Name string `json:"name"` // of package counters
	// Refused are the better sources, and why they could not be had.
	Refused []string `json:"refused,omitempty"`
}

// Counters are events in the kernel for one operation, by the threads to which they
// happened.
type Counters struct {
	// Ops is over how many operations was counted.
	Ops int `json:"ops"`
	// Caller is the thread that runs the operations.
	Caller Usage `json:"caller"`
	// Rest are the other threads of its process: those of the Go runtime, and of a
	// target in the same process.
	Rest Usage `json:"rest"`
	// Target is the target process; nil if there is none.
	Target *Usage `json:"target,omitempty"`
}

// Usage is what threads asked of the kernel for one operation.
type Usage struct {
	// Events by name; one that the source does not count is not in it.
	Events map[string]float64 `json:"events,omitempty"`
	// Calls are the system calls by name.
	Calls map[string]float64 `json:"calls,omitempty"`
}

// Names of events.
const (
	Syscalls   = "syscalls"
	Switches   = "switches"   // of context, away from the thread
	Faults     = "faults"     // page faults
	Transmits  = "transmits"  // packets handed to a network device
	Receives   = "receives"   // packets that a device handed up
	Migrations = "migrations" // to another processor
	CPUTime    = "cpu_ns"     // processor time
)

// EventNames lists them in the order of columns.
func EventNames() []string {
	return []string{Syscalls, Switches, Faults, Transmits, Receives, Migrations, CPUTime}
}
