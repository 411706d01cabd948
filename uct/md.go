package uct

import (
	"crypto/tls"
	"net/netip"
	"time"
)

// MD is an open memory domain. Methods may be called by any goroutine.
type MD interface {
	Attr() *MDAttr // immutable after open; never nil
	// Ext is what the domain can do besides; never nil. It may allocate: read it once.
	Ext() *MDExt
	// Resources lists the transports that OpenIface can open.
	Resources() ([]Resource, error)
	// OpenIface opens one transport. Blocking: it creates device objects. An error for
	// a transport or device that does not exist, ErrInvalidParam for a field of p
	// outside its documented range.
	OpenIface(p IfaceParams) (Iface, error)
	// Close releases the domain. While an Iface or a Mem of it is open, it returns an error and
	// does nothing.
	Close() error
}

// MDExt are the abilities of a memory domain that are optional, nil where it lacks
// one. The struct does not change. A wrapper copies it and replaces what it changes.
type MDExt struct {
	Reg   Registrar    // iff MDAttr.MaxReg > 0
	Alloc Allocator    // may be nil
	Keys  RKeyUnpacker // iff MDAttr.RKeyLen > 0
	TLS   TLSOpener    // iff connections to other processes are made through TLS
	Net   NetOpener    // iff devices of networks are opened only when the program asks for the network
}

// NetOpener is an MD that offers devices which lead to other hosts only when the program listens on,
// or connects from, an address of theirs.
type NetOpener interface {
	// ResourcesAt lists the transports on the devices that have an address of this host which is
	// not loopback; of an unspecified one (0.0.0.0 or ::), those on all devices that lead to other
	// hosts. OpenIface opens them though Resources does not list them. None is no error.
	ResourcesAt(local netip.Addr) ([]Resource, error)
}

// TLSOpener is an MD whose configuration demands TLS. The layer above then uses TLS with the
// same certificates and rules for its own connections to other hosts.
type TLSOpener interface {
	// OpenTLS reads the certificates. protocol is the application protocol (ALPN) of the
	// connections. ErrInvalidParam if the configuration is incomplete or wrong.
	OpenTLS(protocol string) (TLSConfigs, error)
}

// TLSConfigs makes configurations that demand a certificate of the peer and verify it. Methods
// may be called by any goroutine.
type TLSConfigs interface {
	// Client is for the side that connects to a peer at an address.
	Client(peer netip.Addr) *tls.Config
	// Server is for the side that accepts a connection from a peer at an address.
	Server(peer netip.Addr) *tls.Config
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
	// MaxReg is the largest region in bytes that can be registered; 0 means
	// that the MD registers nothing.
	MaxReg uint64
	// RegCost is what registering takes: Send for the call, Bandwidth for what grows with
	// the length. Zero if the MD registers nothing.
	RegCost Cost
	// RegReach is the cost of a put or get to memory of a peer that was registered, and not
	// allocated by the MD, where that is more than IfaceAttr.Costs; zero if there is no
	// difference.
	RegReach Cost
	// AllocReach is how long a peer of this host takes for a put of 8 bytes to memory
	// from Alloc, if that is less than to memory that was only registered; 0 if there is
	// no difference. The layer above allocates where it is least.
	AllocReach time.Duration
}

// Access are the rights that a registration grants. Local read is implied.
type Access uint8

// Rights, which travel in packed keys. AccessRemoteWrite and AccessRemoteAtomic imply
// AccessLocalWrite.
const (
	AccessLocalWrite   Access = 1 << 0
	AccessRemoteRead   Access = 1 << 1
	AccessRemoteWrite  Access = 1 << 2
	AccessRemoteAtomic Access = 1 << 3

	AccessAll = AccessLocalWrite | AccessRemoteRead | AccessRemoteWrite | AccessRemoteAtomic
)

var accessNames = [...]string{"local_write", "remote_read", "remote_write", "remote_atomic"}

// String lists the rights, separated by '|'.
func (a Access) String() string { return joinNames(uint64(a), accessNames[:]) }

// Writes reports whether the rights need memory that this process may write to.
func (a Access) Writes() bool {
	return a&(AccessLocalWrite|AccessRemoteWrite|AccessRemoteAtomic) != 0
}

// Registrar registers memory of the caller.
type Registrar interface {
	// Reg registers buf, which must not be empty and not lie on a goroutine's
	// stack. The garbage collector does not free or move buf before Mem.Close. The error is
	// ErrInvalidParam and unix.EFAULT if this process may not read buf, or may not write to it
	// although access permits transports or peers to write.
	Reg(buf []byte, access Access) (Mem, error)
}

// Allocator allocates memory that every transport of the MD can access in the fastest way. On
// transports that copy bytes with CPUs (shared memory, the software HCA) peers access such memory
// without help of this process.
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
	// PackRKey appends the remote key, MDAttr.RKeyLen bytes that stay the same while
	// the Mem is open, to b and returns the extended slice.
	PackRKey(b []byte) ([]byte, error)
	// Close deregisters the memory, and frees it if it is from Alloc. After Close has returned nil,
	// no peer and no transport accesses the memory, and its keys are invalid. No access begins after
	// Close was called; Close waits for accesses that began before. Memory from Reg: Close returns
	// ucs.InUseError if an access has not ended within ucs.RevokeLimit; the Mem is then still open,
	// and Close may be called again. Memory from Alloc: Close does not wait that long; if a peer
	// is still accessing the memory, the transport quarantines it until the access ends or the peer is
	// dead. After Close has returned nil, further calls do nothing. Operations in flight that use the
	// Mem as a local buffer must have completed.
	Close() error
}

// RKeyUnpacker unpacks remote keys of peers.
type RKeyUnpacker interface {
	// UnpackRKey validates b, which may come from an untrusted peer, and returns the key in the form
	// that operations of EPs of the MD take. ErrInvalidRKey if b is malformed.
	UnpackRKey(b []byte) (RKey, error)
	// ReleaseRKey releases a key from UnpackRKey. Call it once for each UnpackRKey, after the
	// last operation with the key has completed: a released value may be reused for another key.
	ReleaseRKey(RKey)
}

// RKey is a remote key in the form that the EPs of one MD understand: the key itself,
// or its place in a table of the MD. Where MDAttr.RKeyLen is 0 it is not looked at.
type RKey uint64
