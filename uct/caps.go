package uct

import (
	"fmt"
	"strings"
)

// Caps are the operation variants and abilities that an iface claims. A variant
// is claimed iff calling it does not return [ErrUnsupported].
type Caps uint64

// Capability bits.
const (
	CapAMShort Caps = 1 << iota
	CapAMBcopy
	CapAMZcopy
	CapPutShort
	CapPutBcopy
	CapPutZcopy
	CapGetShort
	CapGetBcopy
	CapGetZcopy
	CapAtomic32     // atomics on 4-byte words; operations in AtomicAttr
	CapAtomic64     // atomics on 8-byte words
	CapPending      // EP.AddPending works
	CapConnectIface // EPs connect to an iface address, without a handshake
	CapConnectEP    // EPs connect to an EP address, both sides taking part
	CapErrPeer      // peer failure is detected and reported
	CapErrRemoteMem // a bad key, range or access right is detected and reported: see Putter
	CapEventFD      // Iface implements Waker
	CapInterNode    // peers may be on another host
	CapLossy        // messages may be lost below: never claimed by a conforming transport

	capEnd
)

// Groups of variants; a class interface is implemented iff one of its bits is set.
const (
	CapAM     = CapAMShort | CapAMBcopy | CapAMZcopy
	CapPut    = CapPutShort | CapPutBcopy | CapPutZcopy
	CapGet    = CapGetShort | CapGetBcopy | CapGetZcopy
	CapAtomic = CapAtomic32 | CapAtomic64
)

var capNames = [...]string{
	"am_short", "am_bcopy", "am_zcopy", "put_short", "put_bcopy", "put_zcopy",
	"get_short", "get_bcopy", "get_zcopy", "atomic32", "atomic64", "pending",
	"connect_to_iface", "connect_to_ep", "errhandle_peer_failure",
	"errhandle_remote_mem", "event_fd", "inter_node", "lossy",
}

// Has reports whether every bit of want is set.
func (c Caps) Has(want Caps) bool { return c&want == want }

// String lists the set bits by UCX's names, separated by '|'.
func (c Caps) String() string { return joinNames(uint64(c), capNames[:]) }

// joinNames joins the names of the set bits with '|'; bits without a name follow
// in hexadecimal.
func joinNames(set uint64, names []string) string {
	var b strings.Builder
	for i, name := range names {
		if set&(1<<i) == 0 {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('|')
		}
		b.WriteString(name)
	}
	if rest := set >> len(names) << len(names); rest != 0 {
		if b.Len() > 0 {
			b.WriteByte('|')
		}
		fmt.Fprintf(&b, "%#x", rest)
	}
	return b.String()
}
