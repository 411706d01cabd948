package uct

import (
	"fmt"
	"strings"
)

// Caps are the operation variants and capabilities that an iface claims. A variant
// is claimed iff calling it does not return [ErrUnsupported].
type Caps uint64

// Capability bits. A bit never changes its meaning.
const (
	CapAMShort      Caps = 1 << 0
	CapAMBcopy      Caps = 1 << 1
	CapAMZcopy      Caps = 1 << 2
	CapPutShort     Caps = 1 << 3
	CapPutBcopy     Caps = 1 << 4
	CapPutZcopy     Caps = 1 << 5
	CapGetShort     Caps = 1 << 6
	CapGetBcopy     Caps = 1 << 7
	CapGetZcopy     Caps = 1 << 8
	CapAtomic32     Caps = 1 << 9  // atomics on 4-byte words; operations in AtomicAttr
	CapAtomic64     Caps = 1 << 10 // atomics on 8-byte words
	CapPending      Caps = 1 << 11 // EP.AddPending works
	CapConnectIface Caps = 1 << 12 // EPs connect to an iface address, without a handshake
	CapConnectEP    Caps = 1 << 13 // EPs connect to an EP address; both sides must call Connect
	CapErrPeer      Caps = 1 << 14 // peer failure is detected and reported
	CapErrRemoteMem Caps = 1 << 15 // a bad key, range or access right is detected and reported: see Putter
	CapEventFD      Caps = 1 << 16 // IfaceExt has a Waker
	CapInterNode    Caps = 1 << 17 // peers may be on another host
	CapLossy        Caps = 1 << 18 // messages may be lost; a conforming transport never claims this
	// CapErrPeerIdle: the death of a peer's process is reported also on an idle EP, without Ops.Check.
	CapErrPeerIdle Caps = 1 << 19
	// CapQueue: the iface has receive queues to which peers send by number; see Queue.
	CapQueue Caps = 1 << 20
	// CapNotify: EPs put and notify the peer in one operation; see Notifier.
	CapNotify Caps = 1 << 21
	// CapCheckDevice: the peer's device replies to Ops.Check, also while the peer makes no progress.
	CapCheckDevice Caps = 1 << 22
	// CapAMWords: EPs send two 64-bit header words and a payload in one call; see AMWordSender.
	CapAMWords Caps = 1 << 23
)

// Groups of variants; an EP has a class in its Ops iff one of its bits is set.
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
	"errhandle_remote_mem", "event_fd", "inter_node", "lossy", "errhandle_peer_idle", "queue",
	"put_notify", "check_device", "am_words",
}

// Has reports whether every bit of want is set.
func (c Caps) Has(want Caps) bool { return c&want == want }

// String lists UCX's names of the set bits, separated by '|'.
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
