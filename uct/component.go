package uct

// Component is a family of memory domains. A transport of your own implements
// Component and is passed to ucp.NewContext. Methods may be called by any
// goroutine.
type Component interface {
	// Name is lowercase and at most 16 bytes: "ib", "self", "sm", "tcp".
	Name() string
	// MDs lists what OpenMD can open now. No device is not an error.
	MDs() ([]MDResource, error)
	// OpenMD opens the named memory domain. The caller closes it, after every
	// Iface and memory handle of it.
	OpenMD(name string) (MD, error)
}

// MDResource names a memory domain that can be opened.
type MDResource struct {
	Name string // unique within the component, such as "softhca0"
}

// Resource is one transport on one device of an MD.
type Resource struct {
	Transport string     // "rc", "ud", "sm", "tcp", "self"; at most 10 bytes
	Device    string     // "softhca0:1", "lo", "memory"; at most 32 bytes
	Kind      DeviceKind // which *_DEVICES list selects it
	// Explicit is set of a transport that is taken only if it is named: it does what
	// another one does at less cost, and something besides that most have no use for.
	Explicit bool
}

// DeviceKind groups devices for selection by configuration.
type DeviceKind uint8

// Device kinds, by the environment list that selects them.
const (
	DeviceNet  DeviceKind = iota // NET_DEVICES
	DeviceShm                    // SHM_DEVICES
	DeviceSelf                   // SELF_DEVICES
)

// String returns "net", "shm" or "self".
func (k DeviceKind) String() string {
	switch k {
	case DeviceNet:
		return "net"
	case DeviceShm:
		return "shm"
	case DeviceSelf:
		return "self"
	}
	return "unknown"
}
