package uct

// Component is a family of memory domains. A program can pass its own
// implementation to ucp.NewContext. Any goroutine may call its methods.
type Component interface {
	// Name returns a lowercase name of at most 16 bytes: "ib", "self", "sm", "tcp".
	Name() string
	// MDs lists the memory domains that OpenMD can open now. An empty list is not an error.
	MDs() ([]MDResource, error)
	// OpenMD opens the memory domain with that name. The caller must close it, after it has closed every
	// Iface and Mem of the domain.
	OpenMD(name string) (MD, error)
}

// MDResource describes a memory domain that can be opened.
type MDResource struct {
	Name string // unique within the component, for example "softhca0"
}

// Resource is one transport on one device of an MD.
type Resource struct {
	Transport string     // "rc", "ud", "sm", "tcp", "self"; at most 10 bytes
	Device    string     // "softhca0:1", "lo", "memory"; at most 32 bytes
	Kind      DeviceKind // the *_DEVICES list that selects the device
	// Explicit means that the transport is used only if the configuration lists it: another transport
	// costs less, but lacks a feature that few programs need.
	Explicit bool
}

// DeviceKind is the type of a device, for selection by configuration.
type DeviceKind uint8

// Types of devices, with the environment list that selects them.
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
