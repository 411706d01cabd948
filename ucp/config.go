package ucp

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/gucx/gucx/ucp/internal/proto"
	"github.com/gucx/gucx/ucp/internal/regcache"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// Config configures a [Context]. The zero value is the default; [Config.Table]
// reads it from the environment.
type Config struct {
	TLS         config.List `env:"TLS" doc:"Transports to use, such as rc,sm. Aliases as in UCX: ib for all over InfiniBand devices, rc for rc (rc_v, rc_verbs) and rc_mlx5 (rc_x), ud for ud (ud_v, ud_verbs) and ud_mlx5 (ud_x), sm or shm for all over shared memory. A backslash means just the transport of that name: \\rc. Only who names it has xrc, for xrc (xrc_v, xrc_verbs) and xrc_mlx5 (xrc_x): rc with receive queues that peers send to by number. Naming one that is not there is an error."`
	NetDevices  config.List `env:"NET_DEVICES" doc:"Network devices to use, such as softhca0:1."`
	ShmDevices  config.List `env:"SHM_DEVICES" doc:"Shared-memory devices to use."`
	SelfDevices config.List `env:"SELF_DEVICES" doc:"Loopback devices to use."`

	// ZcopyThresh is the length in bytes from which put and get move registered
	// memory without a copy, when OpParams.Mem is set. The zero value means the length from which
	// that is faster, by the declared costs of the transport; EP.Explain shows it.
	ZcopyThresh config.MemSize `env:"ZCOPY_THRESH" default:"auto" doc:"Length from which put and get with registered memory are not copied; auto means where that is cheaper."`

	// WireupTimeout is how long an operation waits for progress of the
	// handshake before the EP fails with ErrTimedOut, and the time limit of a connection that a
	// peer requests. 0 means one minute, config.Infinite no
	// limit.
	WireupTimeout time.Duration `env:"WIREUP_TIMEOUT" default:"60s" doc:"An endpoint fails that needs a lane and whose peer does not answer the handshake for so long, and a connection that a peer asked for is forgotten that has not come about by then; inf waits for ever."`

	// MaxEPsPerPeer limits the EPs that one peer worker has made to this one. Further connections
	// are rejected. 0 means 4096. EPs that this side makes do not count.
	MaxEPsPerPeer int `env:"MAX_EPS_PER_PEER" default:"4096" doc:"How many endpoints a peer worker may make at a worker; more are rejected. Each may hold 5k of memory for messages that are not received, and more within PEER_BUDGET."`

	// KeepaliveInterval is the time between checks of the peer, over transports that detect a
	// dead peer only when this side sends; config.Infinite means never. 0 means 20 s
	// over transports where the device of the peer replies. Any other value applies to all such transports:
	// over ud, a peer without progress for 30 s (GUCX_UD_TIMEOUT) then counts as dead.
	KeepaliveInterval time.Duration `env:"KEEPALIVE_INTERVAL" default:"auto" doc:"How often an endpoint asks whether its peer lives, where the transport does not tell by itself; auto means every 20s where the peer's device answers (rc); another time includes ud, whose peers have to make progress then; inf means never."`

	// LaneRetryInterval is the time after which an EP tries a path again whose lane has failed, when it continues
	// over another lane. Each further pause is twice as long, up to 32 times the interval. When the path works,
	// operations return to it. Both sides must set it. 0 and config.Infinite mean never: the feature is new.
	LaneRetryInterval time.Duration `env:"LANE_RETRY_INTERVAL" default:"inf" doc:"When an endpoint tries a path again over which it had a better lane that failed; each further pause is twice as long, up to 32 times that; inf means never, and that a peer may not try either. The path is used again when a message has come over it. Both sides must set it."`

	// SpinPolls is the number of polls of a blocking call before it
	// parks. Negative means that it never parks; use that only if each waiter has a CPU, because otherwise
	// waiters use the CPU that their peers need. 0 adapts to the duration of recent waits, up to
	// some 100 us.
	SpinPolls int `env:"SPIN_POLLS" default:"0" doc:"How often a blocking call looks for progress before it sleeps; 0 adapts to how long waits take, negative never sleeps, which needs a CPU for each waiter."`

	// RndvThresh is the length of a message in bytes from which its data remains at the
	// sender until the receiver has a matching receive (rendezvous). The zero value means the length from which that
	// is not slower than eager, by the costs of the lanes, at most 128 KiB: half of
	// the default EagerWindow. EP.Explain shows the length.
	RndvThresh config.MemSize `env:"RNDV_THRESH" default:"auto" doc:"Length from which a message is announced and its data fetched by rendezvous; auto means where that takes less time, and 128k at the latest. A message for which the receiver has no room is announced whatever its length."`

	// RndvScheme determines how the data of a rendezvous message is transferred. get_zcopy: the
	// receiver gets it, if the sender's memory is registered. put_zcopy: the sender puts it, if
	// the receiver's memory is registered. am: in active messages, which is always possible,
	// and the fallback of the others. Empty means auto: by cost. A sender sends
	// keys only with get_zcopy and auto.
	RndvScheme string `env:"RNDV_SCHEME" default:"auto" enum:"auto,get_zcopy,put_zcopy,am" doc:"How the data of an announced message comes to its receiver, where that is possible: get_zcopy, the receiver gets it from registered memory; put_zcopy, the sender puts it into registered memory; am, in active messages; auto, by cost."`

	// Costs selects the costs for the choice between eager and rendezvous, and of the scheme:
	// measured on this machine (uct.Measurer), or declared by transports, which are
	// the same everywhere. The process measures once, when it sends the first message that needs more than one
	// call, or that has 1 KiB or more in registered memory. Empty means measured.
	// Lanes are always chosen by declared costs.
	Costs CostSource `env:"COSTS" default:"measured" enum:"measured,declared" doc:"By which costs messages choose when to be announced and how their data comes: measured on this machine, when the first long message is sent, or declared by the transports, and so the same everywhere."`

	// MaxRndvRails limits the lanes over different devices that share the data of a rendezvous
	// message, if both sides have them: 1 to 4. 0 means 2.
	MaxRndvRails int `env:"MAX_RNDV_RAILS" default:"2" doc:"Lanes over different devices that share the data of an announced message; at most 4."`

	// MaxRMARails limits the lanes over different devices that share a large put or get: 1 to 4. 0
	// means 1. With several lanes a flush and a fence take longer.
	MaxRMARails int `env:"MAX_RMA_RAILS" default:"1" doc:"Lanes over different devices that share a long put or get; at most 4."`

	// EagerWindow limits the bytes of messages that a peer may send to this process before they are
	// received; further and larger messages wait at the
	// sender. The zero value means 256 KiB; less than 16 KiB is 16 KiB.
	EagerWindow config.MemSize `env:"EAGER_WINDOW" default:"auto" doc:"Bytes of messages that each peer may have sent and that were not received; auto means 256k. Less than 16k is 16k."`

	// EagerBudget limits the sum of the windows of all peers of a worker, in bytes; beyond it, new
	// connections have 16 KiB each. The zero value means 64 MiB.
	EagerBudget config.MemSize `env:"EAGER_BUDGET" default:"auto" doc:"Bytes that the windows of all peers of a worker have together; auto means 64m."`

	// PeerBudget limits the memory, in bytes, of messages of one peer worker that were not
	// received, on all its connections including closed ones. A peer with many connections
	// gets smaller windows, down to 2 KiB each. The zero value means 32 MiB. The limit holds if it is at
	// least 5 KiB for each of MaxEPsPerPeer. The only connection of a peer has EagerWindow in any case.
	PeerBudget config.MemSize `env:"PEER_BUDGET" default:"auto" doc:"Bytes of memory that messages of one peer worker use at most that were not received; auto means 32m. A peer with many endpoints gets smaller windows."`

	// AuthToken is a secret that all processes of a job share, of 16 bytes or more. Listen and Dial
	// then require a proof that the other side has the same token before they send anything about this
	// side, and the worker rejects connections of workers that it knows neither from Dial or Listen nor from NewEP. The
	// tcp transport rejects connections of processes that do not have the same token.
	// It encrypts nothing. AuthTokenFile is a file with the token; white space
	// around the token is ignored. Set one of the two.
	AuthToken     config.Secret `env:"AUTH_TOKEN" doc:"Secret of 16 bytes or more that all processes of a job have: sockets of Listen and Dial, and connections of tcp, demand that the other side proves that it has it too. It encrypts nothing. AUTH_TOKEN_FILE is the better place."`
	AuthTokenFile string        `env:"AUTH_TOKEN_FILE" doc:"File with the secret of AUTH_TOKEN, which only its owner should be able to read."`

	// RCache configures memory that operations register themselves: see the package
	// documentation, "Registration of buffers".
	RCache RCacheConfig `env:"RCACHE"`

	// TagProto selects receive queues of the transport for tagged messages, if the transport
	// has some (TupleQ); empty or auto: none. See docs/design/0007-tupleq.md.
	TagProto string `env:"TAG_PROTO" default:"auto" enum:"auto,tupleq,tupleq_copy" doc:"How tagged messages go: auto, eager and by rendezvous; tupleq, also from the sender's buffer into the receive's through a queue for each tag, where the transport has queues; tupleq_copy, so, but what is up to 8k is copied by the sender."`

	// TupleqMax limits the tags of one worker that have a queue; the least recently used one is
	// evicted. 0 means 1024.
	TupleqMax int `env:"TUPLEQ_MAX" default:"1024" doc:"Tags that have a queue at the same time (tupleq)."`

	// TupleqMaxMessage is the maximum length of a message through a queue, in bytes. The zero
	// value means 1 MiB. The worker allocates as much memory for the rest of messages that are longer
	// than their receive.
	TupleqMaxMessage config.MemSize `env:"TUPLEQ_MAX_MESSAGE" default:"auto" doc:"Longest message that goes through a queue (tupleq); auto means 1m."`

	// TupleqNoWildcards promises that every receive has a full mask: a receive
	// with another mask then fails with ErrInvalidParam.
	TupleqNoWildcards bool `env:"TUPLEQ_NO_WILDCARDS" default:"n" doc:"Promises that all receives have a full mask (tupleq); others are refused."`

	Connect ConnectMode `env:"CONNECT" default:"lazy" enum:"lazy,eager" doc:"When endpoints connect: lazy, at the first operation that needs a lane, or eager, when they are created."`

	// LatencyStats counts how long operations, rendezvous and connecting take, and the replacement of lanes that
	// broke, in histograms below [Worker.Stats]. It makes an operation some 0.5 us slower.
	LatencyStats bool `env:"LATENCY_STATS" default:"n" doc:"Count in histograms how long operations, rendezvous, connecting and the replacement of broken lanes take. Operations get slower by some 0.5 us."`

	// Study has settings that only measurements need.
	Study Study `env:"STUDY"`
}

// Study has slower alternatives for measurements. Programs use the zero value.
type Study struct {
	KeyResolve   KeyResolve `env:"KEY_RESOLVE" default:"unpack" enum:"unpack,op" doc:"When the lane of a remote key and its form there are looked up: at unpack, or again at each operation (for measurements)."`
	ProgressIdle bool       `env:"PROGRESS_IDLE" default:"n" doc:"Progress also interfaces on which nothing is connected (for measurements)."`
}

// RCacheConfig configures the registration cache: UCP registers buffers of large operations by
// itself and caches the registrations for later ones. The limits apply to idle registrations, which
// no operation uses. The zero value is the default.
type RCacheConfig struct {
	// Enable permits registrations by UCP itself; No disables them and the cache. Empty
	// means Try.
	Enable config.Ternary `env:"ENABLE" default:"try" doc:"Register memory of the caller for operations where that pays, and keep it registered; n leaves it as it is: only memory that the caller has registered is not copied."`
	// Overhead is the cost that registration adds to an operation, for the choice between registering and
	// copying. 0 means a lookup in the cache, and a share of the cost of one registration.
	Overhead time.Duration `env:"OVERHEAD" default:"auto" doc:"What it is taken to cost an operation that its buffer is registered for it; auto is a lookup, 40 ns, and 1/64 of what registering costs once, as buffers are used again."`
	// MaxSize is in bytes. With MemZero nothing is cached.
	MaxSize config.MemSize `env:"MAX_SIZE" default:"64m" doc:"Bytes of memory that stay registered while no operation uses them; 0 deregisters at once."`
	// MaxRegions is a number of entries; 0 means 256.
	MaxRegions int `env:"MAX_REGIONS" default:"256" doc:"Regions of memory that stay registered while no operation uses them."`
}

// Validate checks ranges. ErrInvalidParam.
func (c *RCacheConfig) Validate() error { return (*regcache.Config)(c).Validate() }

// CostSource is the source of costs.
type CostSource string

// Sources of costs; empty means measured.
const (
	CostsMeasured CostSource = "measured"
	CostsDeclared CostSource = "declared"
)

// ConnectMode determines when an EP connects its lanes.
type ConnectMode string

// Connect modes; empty means lazy.
const (
	ConnectLazy  ConnectMode = "lazy"
	ConnectEager ConnectMode = "eager"
)

// KeyResolve determines when the lane of a remote key, and its form for the transport, are resolved.
type KeyResolve string

// Ways to bind keys; empty means at unpack.
const (
	ResolveAtUnpack KeyResolve = "unpack"
	ResolveAtOp     KeyResolve = "op"
)

// Table is the configuration for config.FromEnv, without a prefix of its own:
// GUCX_TLS, GUCX_NET_DEVICES and so on.
func (c *Config) Table() config.Table {
	return config.Table{Doc: "Context: transports, protocols and connections", Config: c}
}

// Validate checks all values except RCache, which has its own Validate. The error is
// ErrInvalidParam, with the name of the variable in the environment.
func (c *Config) Validate() error {
	if _, ok := proto.ParseScheme(c.RndvScheme); !ok {
		return invalidSetting("RNDV_SCHEME", c.RndvScheme, "one of auto, get_zcopy, put_zcopy, am")
	}
	return cmp.Or(
		checkWord("CONNECT", c.Connect, "", ConnectLazy, ConnectEager),
		checkWord("STUDY_KEY_RESOLVE", c.Study.KeyResolve, "", ResolveAtUnpack, ResolveAtOp),
		checkWord("COSTS", c.Costs, "", CostsMeasured, CostsDeclared),
		checkWord("TAG_PROTO", c.TagProto, "", tagProtoAuto, tagProtoTupleq, tagProtoCopy),
		checkRange("MAX_RNDV_RAILS", c.MaxRndvRails, wireup.MaxRails),
		checkRange("MAX_RMA_RAILS", c.MaxRMARails, wireup.MaxRails),
		checkRange("TUPLEQ_MAX", c.TupleqMax, math.MaxInt),
		checkRange("MAX_EPS_PER_PEER", c.MaxEPsPerPeer, math.MaxInt32),
		checkRange("WIREUP_TIMEOUT", c.WireupTimeout, config.Infinite),
		checkRange("KEEPALIVE_INTERVAL", c.KeepaliveInterval, config.Infinite),
		checkRange("LANE_RETRY_INTERVAL", c.LaneRetryInterval, config.Infinite),
	)
}

// checkWord returns an error unless a setting has one of the values. The first value is
// the default.
func checkWord[T ~string](name string, value T, values ...T) error {
	if slices.Contains(values, value) {
		return nil
	}
	words := make([]string, len(values)-1)
	for i, v := range values[1:] {
		words[i] = string(v)
	}
	return invalidSetting(name, string(value), "one of "+strings.Join(words, ", "))
}

// checkRange returns an error unless a setting is from 0 to most.
func checkRange[T int | time.Duration](name string, value, most T) error {
	switch {
	case value < 0:
		return invalidSetting(name, value, "0 or more")
	case value > most:
		return invalidSetting(name, value, fmt.Sprintf("at most %v", most))
	}
	return nil
}

// invalidSetting returns the error of a setting with an invalid value.
func invalidSetting(name string, value any, want string) error {
	return fmt.Errorf("%w: %s %v, want %s", ucs.ErrInvalidParam, name, value, want)
}

// defaultWireupTimeout is twice the 30 s after which ud fails a connection without replies,
// so that the handshake can continue over another transport.
const defaultWireupTimeout = time.Minute

const defaultMaxEPsPerPeer = 4096

func (c *Config) maxEPsPerPeer() int { return cmp.Or(c.MaxEPsPerPeer, defaultMaxEPsPerPeer) }

// wireupTimeout returns WireupTimeout for wireup, where 0 means no limit.
func (c *Config) wireupTimeout() time.Duration {
	switch c.WireupTimeout {
	case 0:
		return defaultWireupTimeout
	case config.Infinite:
		return 0
	}
	return c.WireupTimeout
}

// devices returns the list that selects devices of a class, and the name of its setting.
func (c *Config) devices(kind uct.DeviceKind) (config.List, string) {
	switch kind {
	case uct.DeviceShm:
		return c.ShmDevices, "SHM_DEVICES"
	case uct.DeviceSelf:
		return c.SelfDevices, "SELF_DEVICES"
	default:
		return c.NetDevices, "NET_DEVICES"
	}
}

// WorkerConfig configures a [Worker]. The zero value is the default.
type WorkerConfig struct {
	// SpinPolls is the number of polls of a blocking call before it parks on
	// the worker's descriptor; negative means that it never parks. 0 means Config.SpinPolls.
	SpinPolls int
}

// Default limits of messages, in bytes.
const (
	defaultRndvThresh  = defaultEagerWindow / 2
	defaultEagerWindow = 256 << 10
	defaultEagerBudget = 64 << 20
	defaultPeerBudget  = 32 << 20

	// The values of UCX.
	defaultRndvRails = 2
	defaultRMARails  = 1
	// Minimum part of a transfer that one of several lanes transfers, in bytes; the value of UCX.
	minRndvChunk = 16 << 10
	minRMAChunk  = 8 << 10
)

// lengthOf returns a configured length in bytes. For inf it returns the maximum credit of a peer.
func lengthOf(m config.MemSize, auto uint64) int64 { return int64(min(m.Bytes(auto), maxCredit)) }

// rndvThresh returns at least 1, because messages without data never use rendezvous.
func (c *Config) rndvThresh() int { return int(max(lengthOf(c.RndvThresh, defaultRndvThresh), 1)) }

// zcopyThresh returns ZcopyThresh for package proto, where 0 means auto.
func (c *Config) zcopyThresh() int {
	if c.ZcopyThresh == config.MemAuto {
		return 0
	}
	return int(max(lengthOf(c.ZcopyThresh, 0), 1))
}

// rndvScheme returns the configured scheme. Validate has rejected other names.
func (c *Config) rndvScheme() proto.Scheme {
	s, _ := proto.ParseScheme(c.RndvScheme)
	return s
}

// sharing is the maximum number of lanes that share a large transfer, and the minimum part of one of them in bytes.
type sharing struct{ rails, chunk int }

func (c *Config) rndvSharing() sharing {
	return sharing{cmp.Or(c.MaxRndvRails, defaultRndvRails), minRndvChunk}
}

func (c *Config) rmaSharing() sharing {
	return sharing{cmp.Or(c.MaxRMARails, defaultRMARails), minRMAChunk}
}

// sharedFrom returns the minimum length of a transfer that lanes share, in bytes.
func (c *Config) sharedFrom() int {
	least := math.MaxInt
	for _, s := range []sharing{c.rndvSharing(), c.rmaSharing()} {
		if s.rails > 1 {
			least = min(least, 2*s.chunk)
		}
	}
	return least
}

// rails returns the number of lanes that connections need for both settings.
func (c *Config) rails() wireup.Rails {
	return wireup.Rails{RMA: max(c.rndvSharing().rails, c.rmaSharing().rails)}
}

func (c *Config) eagerWindow() int64 { return lengthOf(c.EagerWindow, defaultEagerWindow) }
func (c *Config) eagerBudget() int64 { return lengthOf(c.EagerBudget, defaultEagerBudget) }
func (c *Config) peerBudget() int64  { return lengthOf(c.PeerBudget, defaultPeerBudget) }

// maxMessage is the maximum length of a message, in bytes. It is larger than the memory of
// any process, and sums of lengths do not overflow.
const maxMessage = 1 << 48

// maxCredit is the maximum credit that one message can grant, in bytes.
const maxCredit = 1 << 40

// Values of Config.TagProto.
const (
	tagProtoAuto   = "auto"
	tagProtoTupleq = "tupleq"
	tagProtoCopy   = "tupleq_copy"
)
