package result

// CounterSource is the source of counted kernel events.
type CounterSource struct {
	Name string `json:"name"` // of package counters
	// Refused lists the better sources, with the reasons why they are not available.
	Refused []string `json:"refused,omitempty"`
}

// Counters are the kernel events per operation, by thread.
type Counters struct {
	// Ops is the number of counted operations.
	Ops int `json:"ops"`
	// Caller is the thread that runs the operations.
	Caller Usage `json:"caller"`
	// Rest are the other threads of its process: those of the Go runtime, and those of a target in
	// the same process.
	Rest Usage `json:"rest"`
	// Target is the target process; nil if there is none.
	Target *Usage `json:"target,omitempty"`
}

// Usage is the use of the kernel by threads, per operation.
type Usage struct {
	// Events by name; an event that the source does not count is missing.
	Events map[string]float64 `json:"events,omitempty"`
	// Calls are the system calls by name.
	Calls map[string]float64 `json:"calls,omitempty"`
}

// Names of events.
const (
	Syscalls   = "syscalls"
	Switches   = "switches"   // of context, away from the thread
	Faults     = "faults"     // page faults
	Transmits  = "transmits"  // packets passed to a network device
	Receives   = "receives"   // packets received from a device
	Migrations = "migrations" // to another CPU
	CPUTime    = "cpu_ns"     // CPU time
)

// EventNames lists them in the order of columns.
func EventNames() []string {
	return []string{Syscalls, Switches, Faults, Transmits, Receives, Migrations, CPUTime}
}
