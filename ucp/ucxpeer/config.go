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
	// Device is the network device whose address peers use, such as "eth0". "" means "lo": only processes of this
	// host can connect.
	Device string
	// TCP is the configuration of the transport. Its Devices are not used.
	TCP ucxtcp.Config
	// AddressVersion is the version of the worker address that Address returns, 1 or 2. All releases of UCX since 1.12 read
	// both. Version 2 contains the size of the largest fragment that the transport receives efficiently. UCX sends fragments
	// of that size, so large messages from UCX take less time. 0 means 2.
	AddressVersion int
	// RndvThresh is the smallest length in bytes of a tagged or active message that is sent by
	// rendezvous: the peer requests the data when a receive is posted. Smaller messages are sent eagerly. 0 means 256 KiB,
	// a negative value means never.
	RndvThresh int
	// MaxActive limits, for each EP, the received bytes of incomplete active messages, which arrive in fragments. An EP
	// whose peer sends more fails. 0 means 64 MiB.
	MaxActive int
	// MaxBuffered limits, for each connection, the bytes of unexpected messages and delayed requests, which are copied. Above the limit
	// the worker does not read from the connection until receives have released half of the limit: all data of the peer on
	// that connection waits. 0 means 64 MiB.
	MaxBuffered int
	// MaxBufferedTotal limits the same bytes for all connections together, including connections that have ended but whose
	// messages were not received. Above the limit the worker reads no connection that sends more of them, until receives
	// have released half of the limit. If a message would exceed the limit by MaxBuffered, the worker breaks its connection. 0
	// means 16 times MaxBuffered.
	MaxBufferedTotal int
	// MaxPeerEPs limits the EPs that peers have created and that the program has neither returned from NewEP nor admitted
	// with EP.Admit. Further ones are not created: the endpoint of the peer fails, and Stats.Refused counts it. 0 means 1024.
	MaxPeerEPs int
	// MaxPeerEPsPerSource limits the same EPs for one source: an IPv4 address, or a network of IPv6 (/64). All processes of a
	// host are one source. 0 means 256, at most MaxPeerEPs.
	MaxPeerEPsPerSource int
	// KeepaliveInterval is the time between two checks of the peer's endpoint (UCX_KEEPALIVE_INTERVAL). Each EP with peer
	// error handling that was created from addresses sends them. An EP whose endpoint the peer has removed fails. 0 means
	// 20 s. A negative value means never; then only the end of a connection causes a check.
	KeepaliveInterval time.Duration
	// SpinPolls is the number of polls before a method that waits sleeps; 0 adapts it, a negative value never sleeps.
	SpinPolls int
}

const (
	loopback          = "lo"
	defaultRndvThresh = 256 << 10
	defaultMaxBytes   = 64 << 20
	bufferedTotal     = 16 // default of MaxBufferedTotal, as a multiple of MaxBuffered
	defaultPeerEPs    = 1024
	defaultPerSource  = 256
	defaultKeepalive  = 20 * time.Second
)

// withDefaults returns c with the defaults in place of zeros.
func (c Config) withDefaults() (Config, error) {
	if c.AddressVersion < 0 || c.AddressVersion > 2 || c.MaxActive < 0 || c.MaxBuffered < 0 || c.MaxBufferedTotal < 0 || c.MaxPeerEPs < 0 || c.MaxPeerEPsPerSource < 0 {
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
	set(&c.MaxBuffered, defaultMaxBytes)
	set(&c.MaxPeerEPs, defaultPeerEPs)
	if c.KeepaliveInterval == 0 {
		c.KeepaliveInterval = defaultKeepalive
	}
	set(&c.MaxPeerEPsPerSource, min(defaultPerSource, c.MaxPeerEPs))
	set(&c.MaxBufferedTotal, min(c.MaxBuffered, math.MaxInt/bufferedTotal)*bufferedTotal)
	return c, nil
}

// EPConfig tunes an EP.
type EPConfig struct {
	// PeerErrors must be true if and only if the endpoint of the peer has UCP_ERR_HANDLING_MODE_PEER: UCX rejects a peer
	// with another mode. Endpoints of Dial and Listen always have it.
	PeerErrors bool
}

// OpParams are the optional parameters of an operation.
type OpParams struct {
	// OnDone is called once, from Progress, when the operation has completed or failed. It is not called if
	// the operation returned no Request. It may start operations, and must not call Progress.
	OnDone func(err error)
	// Reply makes an active message carry the sender's endpoint, so that the receiver can reply.
	Reply bool
}

func (p *OpParams) onDone() func(error) {
	if p == nil {
		return nil
	}
	return p.OnDone
}

func (p *OpParams) reply() bool { return p != nil && p.Reply }
