package uct

import (
	"crypto/tls"
	"net/netip"
	"time"
)

// MD is an open memory domain. Methods may be called by any goroutine.
type MD interface {
	Attr() *MDAttr // immutable after open; never nil
	// Ext returns the optional features of the domain; never nil. It may allocate: the caller should call it once.
	Ext() *MDExt
	// Resources lists the transports that OpenIface can open.
	Resources() ([]Resource, error)
	// OpenIface opens one transport. It may block, because it creates device objects. It fails for
	// a transport or device that does not exist, with ErrInvalidParam for a field of p
	// outside its documented range.
	OpenIface(p IfaceParams) (Iface, error)
	// Close releases the domain. While an Iface or a Mem of it is open, it returns an error and
	// has no effect.
	Close() error
}

// MDExt are the optional features of a memory domain; a field is nil if the domain does not have the
// feature. The struct does not change. A wrapper copies it and replaces fields.
type MDExt struct {
	Reg   Registrar    // iff MDAttr.MaxReg > 0
	Alloc Allocator    // may be nil
	Keys  RKeyUnpacker // iff MDAttr.RKeyLen > 0
	TLS   TLSOpener    // iff connections to other processes use TLS
	Net   NetOpener    // iff Resources omits network devices until the program uses their network
}

// NetOpener is an MD that offers network devices only when the program listens on,
// or connects from, one of their addresses.
type NetOpener interface {
	// ResourcesAt lists the transports on the devices with the local address, which is
	// not loopback. For an unspecified address (0.0.0.0 or ::) it lists those on all network
	// devices. OpenIface opens them although Resources does not list them. An empty list is not an error.
	ResourcesAt(local netip.Addr) ([]Resource, error)
}

// TLSOpener is an MD whose configuration requires TLS. The layer above then uses TLS with the
// same certificates and rules for its own connections to other hosts.
type TLSOpener interface {
	// OpenTLS reads the certificates. protocol is the application protocol (ALPN) of the
	// connections. ErrInvalidParam if the configuration is incomplete or wrong.
	OpenTLS(protocol string) (TLSConfigs, error)
}

// TLSConfigs returns configurations that require and verify a certificate of the peer. Any goroutine may call its
// methods.
type TLSConfigs interface {
	// Client is for the side that connects to a peer at an address.
	Client(peer netip.Addr) *tls.Config
	// Server is for the side that accepts a connection from a peer at an address.
	Server(peer netip.Addr) *tls.Config
}

// MDAttr describes a memory domain.
type MDAttr struct {
	Component string // name of the component
	Name      string // name of the MD
	// RKeyLen is the packed length of a remote key in bytes; 0 if access to the MD's
	// memory needs no key.
	RKeyLen int
	// NeedMemH is set when zcopy buffers need a memory handle in IOV.Mem.
	NeedMemH bool
	// MaxReg is the largest region in bytes that can be registered; 0 means
	// that the MD cannot register memory.
	MaxReg uint64
	// RegCost is the cost of a registration: Send for the call, Bandwidth for the part that grows with
	// the length. Zero if the MD cannot register memory.
	RegCost Cost
	// RegReach is the cost of a put or get to memory of a peer that was registered, and not
	// allocated by the MD, if that is higher than IfaceAttr.Costs; zero if there is no
	// difference.
	RegReach Cost
	// AllocReach is the time of a put of 8 bytes by a peer on this host to memory
	// from Alloc, if that is less than to registered memory; 0 if there is
	// no difference. The layer above allocates from the MD with the smallest value.
	AllocReach time.Duration
}

// Access is the set of access rights that a registration grants. Local read is always included.
type Access uint8

// Access rights. Packed keys contain these values. AccessRemoteWrite and AccessRemoteAtomic imply
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

// Writes reports whether the rights require that this process may write to the memory.
func (a Access) Writes() bool {
	return a&(AccessLocalWrite|AccessRemoteWrite|AccessRemoteAtomic) != 0
}

// Registrar registers memory of the caller.
type Registrar interface {
	// Reg registers buf, which must not be empty and not be on a goroutine's
	// stack. The garbage collector does not free or move buf before Mem.Close. The error matches
	// ErrInvalidParam and unix.EFAULT if this process may not read buf, or if access permits transports or peers
	// to write and this process may not write to buf.
	Reg(buf []byte, access Access) (Mem, error)
}

// Allocator allocates memory that every transport of the MD can access fastest. Over
// transports that copy bytes with CPUs (shared memory, the software HCA), peers access such memory
// without CPU time of this process.
type Allocator interface {
	// Alloc returns registered zeroed memory of at least n bytes, aligned to the
	// page size; Mem.Bytes has exactly n bytes.
	Alloc(n int, access Access) (Mem, error)
}

// Mem is registered memory. Methods may be called by any goroutine.
type Mem interface {
	Bytes() []byte // the registered range; the caller owns it after Reg, the Mem after Alloc
	// Addr returns the address of Bytes()[0] for put, get and atomics of peers.
	Addr() uint64
	// PackRKey appends the remote key to b and returns the extended slice. The key has MDAttr.RKeyLen bytes, which do
	// not change while the Mem is open.
	PackRKey(b []byte) ([]byte, error)
	// Close deregisters the memory, and frees it if it is from Alloc. After Close has returned nil,
	// no peer and no transport accesses the memory, and its keys are invalid. No access begins after
	// Close was called; Close waits for accesses that began before. Memory from Reg: Close returns
	// ucs.InUseError if an access has not ended within ucs.RevokeLimit; the Mem is then still open,
	// and Close may be called again. Memory from Alloc: Close does not wait that long; if a peer
	// is still accessing the memory, the transport quarantines it until the access ends or the peer is
	// dead. After Close has returned nil, further calls have no effect. The caller must not call Close before operations
	// that use the Mem as a local buffer have completed.
	Close() error
}

// RKeyUnpacker unpacks remote keys of peers.
type RKeyUnpacker interface {
	// UnpackRKey validates b, which may come from an untrusted peer, and returns the key for
	// operations of EPs of the MD. ErrInvalidRKey if b is malformed.
	UnpackRKey(b []byte) (RKey, error)
	// ReleaseRKey releases a key from UnpackRKey. The caller must call it once for each UnpackRKey, after all
	// operations with the key have completed: a released value may be reused for another key.
	ReleaseRKey(RKey)
}

// RKey is an unpacked remote key for the EPs of one MD: the key itself,
// or its index in a table of the MD. If MDAttr.RKeyLen is 0 it is not used.
type RKey uint64
