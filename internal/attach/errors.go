package attach

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/ucs"
)

// ErrForeignUser: the process at the other end belongs to a user that is neither
// this one nor in Config.AllowUIDs.
var ErrForeignUser = errors.New("peer belongs to another user")

// ErrProtocol: the process at the other end does not use this handshake. At a
// dialer it means that another program listens under the peer's name.
var ErrProtocol = errors.New("handshake violated")

// Reason is why an acceptor refuses a link.
type Reason uint32

// Reasons; the values are part of the handshake.
const (
	ReasonVersion  Reason = 1 + iota // handshake version
	ReasonLayout                     // Config.Layout or LinkLen differ
	ReasonAddress                    // the GID dialed is not the acceptor's
	ReasonSegments                   // the descriptors are not valid segments
	ReasonLimit                      // MaxLinks reached, or this process has no memory or descriptors left
	ReasonOwner                      // OnLink returned an error
)

// String returns the reason in words.
func (r Reason) String() string {
	switch r {
	case ReasonVersion:
		return "handshake version differs"
	case ReasonLayout:
		return "segment layout differs"
	case ReasonAddress:
		return "not the owner of the address"
	case ReasonSegments:
		return "segments not acceptable"
	case ReasonLimit:
		return "no room for another link: the peer has as many as it accepts, or no memory, descriptors (ulimit -n) or mappings (vm.max_map_count)"
	case ReasonOwner:
		return "device does not take links"
	}
	return fmt.Sprintf("reason %d", uint32(r))
}

// RefusedError is an acceptor's refusal. errors.Is(err, ucs.ErrRejected) holds.
type RefusedError struct{ Reason Reason }

// Error returns the text.
func (e *RefusedError) Error() string { return "refused: " + e.Reason.String() }

// Is makes the error match ucs.ErrRejected.
func (e *RefusedError) Is(target error) bool { return target == ucs.ErrRejected }

// outOfRoom reports that this process, or its host, has no memory or descriptors left.
func outOfRoom(err error) bool {
	return errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE)
}
