package uct

// MD is an open memory domain. Methods may be called by any goroutine.
//
// Optional: [Registrar] (registers memory of the caller), [Allocator] (allocates
// memory that every transport of the MD reaches best), [RKeyUnpacker].
type MD interface {
	Attr() *MDAttr // immutable after open; never nil
	// Resources lists the transports that OpenIface can open.
	Resources() ([]Resource, error)
	// OpenIface opens one transport. Blocking: it creates device objects.
	OpenIface(p IfaceParams) (Iface, error)
	// Close releases the domain. It returns an error, and stays open, while an
	// Iface or a Mem of it is still open.
	Close() error
}

// MDAttr says what a memory domain can do.
type MDAttr struct {
	Component string // name of the component
	Name      string // name of the MD
	// RKeyLen is the packed length of a remote key in bytes; 0 if the MD's
	// memory needs no key to be reached.
	RKeyLen int
	// NeedMemH is set when zcopy buffers need a memory handle in IOV.Mem.
	NeedMemH bool
	// Endpoints is set when ifaces take IfaceParams.Endpoints.
	Endpoints bool
	// MaxReg is the largest region in bytes that can be registered; 0 means
	// that the MD registers nothing.
	MaxReg uint64
}

// Access are the rights that a registration grants. Local read is implied.
type Access uint8

// Rights. AccessRemoteWrite and AccessRemoteAtomic imply AccessLocalWrite.
const (
	AccessLocalWrite Access = 1 << iota
	AccessRemoteRead
	AccessRemoteWrite
	AccessRemoteAtomic

	AccessAll = AccessLocalWrite | AccessRemoteRead | AccessRemoteWrite | AccessRemoteAtomic
)

var accessNames = [...]string{"local_write", "remote_read", "remote_write", "remote_atomic"}

// String lists the rights, separated by '|'.
func (a Access) String() string { return joinNames(uint64(a), accessNames[:]) }

// Registrar is implemented by an MD that registers memory of the caller.
type Registrar interface {
	// Reg registers buf, which must not be empty and not lie on a goroutine's
	// stack. The MD keeps buf reachable and unmoved until Mem.Close.
	Reg(buf []byte, access Access) (Mem, error)
}

// Allocator is implemented by an MD that can allocate memory. On transports that
// move bytes themselves (shared memory, the software HCA) such memory is reached
// by peers without help of this process.
type Allocator interface {
	// Alloc returns registered zeroed memory of at least n bytes, aligned to the
	// page size; Mem.Bytes has exactly n bytes.
	Alloc(n int, access Access) (Mem, error)
}

// Mem is registered memory. Methods may be called by any goroutine.
type Mem interface {
	Bytes() []byte // the registered range; owned by the caller for Reg, by the Mem for Alloc
	// Addr is the address that peers name in put, get and atomics for Bytes()[0].
	Addr() uint64
	// PackRKey appends the remote key to b and returns the extended slice.
	PackRKey(b []byte) ([]byte, error)
	// Close deregisters and, for Alloc, frees. Idempotent. After it no peer
	// reaches the memory: a key that was handed out is refused. Operations in
	// flight that use the Mem as a local buffer must have completed.
	Close() error
}

// RKeyUnpacker is implemented by an MD whose peers hand out remote keys.
type RKeyUnpacker interface {
	// UnpackRKey checks b, which may come from a stranger, and returns the key
	// in the form that data calls take. ErrInvalidRKey if b is malformed.
	UnpackRKey(b []byte) (RKey, error)
}

// RKey is an unpacked remote key: a value that one MD's EPs understand.
type RKey struct {
	// Handle is the key as the transport wants it: an InfiniBand rkey, or an
	// index into a table of the MD.
	Handle uint64
	// Release frees what unpacking allocated; nil if nothing. Call it once,
	// after the last operation with the key has completed.
	Release func()
}
