package ucxpeer

import (
	"fmt"
	"math"
	"time"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ucxtcp"
)

// Config tunes a worker. The zero value is ready to use.
type Config struct {
	// Device is the network device whose address peers use, such as "eth0". "": "lo", so that only processes of this
	// host connect.
	Device string
	// TCP is the configuration of the transport. Its Devices are not used.
	TCP ucxtcp.Config
	// AddressVersion is the version of the worker address that Address returns, 1 or 2. All releases from 1.12 on read both.
	// Version 2 contains the longest message that the transport receives in one piece without a small rest, and UCX sends
	// such pieces: large messages of UCX take less time. 0: 2.
	AddressVersion int
	// RndvThresh is the length in bytes from which on a tagged or active message is sent by
	// rendezvous: the peer fetches it when a receive is posted. Shorter ones are sent at once. 0: 256 KiB.
	// Negative: never.
	RndvThresh int
	// MaxActive bounds, for each EP, the bytes of active messages in several pieces of which pieces are
	// missing. An EP whose peer sends more fails. 0: 64 MiB.
	MaxActive int
	// MaxHeld bounds, for each connection, the bytes of messages without a receive that are copied and held. Above it
	// the connection is not read until receives have released half of it: the peer waits, with all that it sends
	// over that connection. 0: 64 MiB.
	MaxHeld int
	// MaxHeldTotal bounds the same for all connections together, also of those that have ended, whose messages remain to
	// be received. Above it no connection is read that sends more of them, until receives have released half of it. A
	// message that would exceed it by MaxHeld breaks its connection. 0: 16 times MaxHeld.
	MaxHeldTotal int
	// MaxPeerEPs bounds the EPs that peers have made and that the program has neither asked for by NewEP nor admitted by
	// EP.Admit. One more is not made: the endpoint of the peer fails, and Stats.Refused counts it. 0: 1024.
	MaxPeerEPs int
	// MaxPeerEPsPerSource bounds the same for one source: an IPv4 address, or a network of IPv6 (/64). All processes of a
	// host are one source. 0: 256, at most MaxPeerEPs.
	MaxPeerEPsPerSource int
	// KeepaliveInterval is the time between two checks of the peer's endpoint (UCX_KEEPALIVE_INTERVAL) of each EP with peer error
	// handling that was made by addresses. An EP whose endpoint the peer has removed fails. 0: 20 s. Negative: never; then only the end
	// of a connection causes a check.
	KeepaliveInterval time.Duration
	// SpinPolls is how often a method that waits polls before it sleeps; 0 adapts, negative never sleeps.
	SpinPolls int
}

const (
	loopback          = "lo"
	defaultRndvThresh = 256 << 10
	defaultMaxBytes   = 64 << 20
	heldTotal         = 16 // default of MaxHeldTotal, in MaxHeld
	defaultPeerEPs    = 1024
	defaultPerSource  = 256
	defaultKeepalive  = 20 * time.Second
)

// withDefaults returns c with the defaults in place of zeros.
func (c Config) withDefaults() (Config, error) {
	if c.AddressVersion < 0 || c.AddressVersion > 2 || c.MaxActive < 0 || c.MaxHeld < 0 || c.MaxHeldTotal < 0 || c.MaxPeerEPs < 0 || c.MaxPeerEPsPerSource < 0 {
		return c, fmt.Errorf("ucxpeer: configuration: %w", ucs.ErrInvalidParam)
	}
	set := func(v *int, to int) {
		if *v == 0 {
			*v = to
		}
	}
	if c.Device == "" {
		c.Device = loopback
	}
	set(&c.AddressVersion, 2)
	set(&c.RndvThresh, defaultRndvThresh)
	set(&c.MaxActive, defaultMaxBytes)
	set(&c.MaxHeld, defaultMaxBytes)
	set(&c.MaxPeerEPs, defaultPeerEPs)
	if c.KeepaliveInterval == 0 {
		c.KeepaliveInterval = defaultKeepalive
	}
	set(&c.MaxPeerEPsPerSource, min(defaultPerSource, c.MaxPeerEPs))
	set(&c.MaxHeldTotal, min(c.MaxHeld, math.MaxInt/heldTotal)*heldTotal)
	return c, nil
}

// EPConfig tunes an EP.
type EPConfig struct {
	// PeerErrors must be true iff the endpoint of the peer has UCP_ERR_HANDLING_MODE_PEER: UCX refuses a peer
	// that differs. Endpoints of sockets always have it.
	PeerErrors bool
}

// OpParams are the optional parameters of an operation.
type OpParams struct {
	// OnDone is called once, from Progress, when the operation has completed or failed. It is not called if
	// the operation returned no Request. It may start operations, and must not call Progress.
	OnDone func(err error)
	// Reply asks, of an active message, that the receiver gets an endpoint by which it can reply.
	Reply bool
}

func (p *OpParams) onDone() func(error) {
	if p == nil {
		return nil
	}
	return p.OnDone
}

func (p *OpParams) reply() bool { return p != nil && p.Reply }
