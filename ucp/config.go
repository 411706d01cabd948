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
	"github.com/gucx/gucx/ucp/internal/selection"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
)

// Config configures a [Context]. The zero value is the default; [Config.Table]
// reads it from the environment.
type Config struct {
	TLS         config.List `env:"TLS" doc:"Transports to use, such as rc,sm. Naming a transport that does not exist is an error. Aliases as in UCX. ib: all over InfiniBand devices. rc: rc (rc_v, rc_verbs) and rc_mlx5 (rc_x). ud: ud (ud_v, ud_verbs) and ud_mlx5 (ud_x). sm, shm: all over shared memory. xrc: xrc (xrc_v, xrc_verbs) and xrc_mlx5 (xrc_x), which is rc with receive queues that peers send to by number; all does not include it. A backslash selects the transport of exactly that name: \\rc."`
	NetDevices  config.List `env:"NET_DEVICES" doc:"Network devices to use, by name, such as softhca0:1."`
	ShmDevices  config.List `env:"SHM_DEVICES" doc:"Shared-memory devices to use, by name."`
	SelfDevices config.List `env:"SELF_DEVICES" doc:"Loopback devices to use, by name."`

	// ZcopyThresh is the length in bytes from which put and get move registered
	// memory without a copy, when OpParams.Mem is set. The zero value means the length from which
	// that is faster, by the declared costs of the transport; EP.Explain shows it.
	ZcopyThresh config.MemSize `env:"ZCOPY_THRESH" default:"auto" doc:"Minimum length in bytes of a put or get with registered memory that uses zcopy. auto: the length from which zcopy costs less than bcopy."`

	// WireupTimeout is how long an operation waits for progress of the
	// handshake before the EP fails with ErrTimedOut, and the time limit of a connection that a
	// peer requests. 0 means one minute, config.Infinite no
	// limit.
	WireupTimeout time.Duration `env:"WIREUP_TIMEOUT" default:"60s" doc:"Maximum time that an endpoint waits for a reply to its handshake. Then an endpoint that needs a lane fails, and a connection that a peer has requested is dropped. inf: no limit."`

	// MaxEPsPerPeer limits the EPs that one peer worker has made to this one. Further connections
	// are rejected. 0 means 4096. EPs that this side makes do not count.
	MaxEPsPerPeer int `env:"MAX_EPS_PER_PEER" default:"4096" doc:"Maximum number of endpoints that one peer worker can create to a worker; further ones are rejected. Each can use 5k of memory for unreceived messages, and more within PEER_BUDGET."`

	// KeepaliveInterval is the time between checks of the peer, over transports that detect a
	// dead peer only when this side sends; config.Infinite means never. 0 means 20 s
	// over transports where the device of the peer replies. Any other value applies to all such transports:
	// over ud, a peer without progress for 30 s (GUCX_UD_TIMEOUT) then counts as dead.
	KeepaliveInterval time.Duration `env:"KEEPALIVE_INTERVAL" default:"auto" doc:"Time between checks of a peer, for transports that do not report a dead peer. auto: 20s where the device of the peer replies (rc). Any other time also applies to ud, where the peer itself must make progress to reply. inf: no checks."`

	// LaneRetryInterval is the time after which an EP tries a path again whose lane has failed, when it continues
	// over another lane. Each further pause is twice as long, up to 32 times the interval. When the path works,
	// operations return to it. Both sides must set it. 0 and config.Infinite mean never. It is off by default because
	// the feature is new.
	LaneRetryInterval time.Duration `env:"LANE_RETRY_INTERVAL" default:"inf" doc:"Time after which an endpoint tries a path again after its lane has failed, if the path is better than the present one. Each further interval is twice as long, up to 32 times. The endpoint uses the path again after a message has arrived over it. Both sides must set it. inf: never."`

	// EPIdleTimeout is the time without operations and messages after which an EP closes its lanes, when the peer has none
	// either. The next operation of either side connects again. The program sees only the delay, and that the EP detects
	// the death of its peer later: see docs/design/0020-idle-lanes.md. As at the first operation, the EP fails if its peer
	// then makes no progress for WireupTimeout. Both sides must set it. 0 and config.Infinite mean never.
	EPIdleTimeout time.Duration `env:"EP_IDLE_TIMEOUT" default:"inf" doc:"Time without operations after which an endpoint closes its connections (descriptors, QPs, memory). Its next operation connects again. Both sides must set it. An endpoint without connections detects that its peer has died at its next operation, and at intervals of 16 times this time, at which it connects. inf: never."`

	// SpinPolls is the number of polls of a blocking call before it
	// parks. Negative means that it never parks; use that only if each waiter has a CPU, because otherwise
	// waiters use the CPU that their peers need. 0 adapts to the duration of recent waits, up to
	// some 100 us.
	SpinPolls int `env:"SPIN_POLLS" default:"0" doc:"Number of polls of a blocking call before it sleeps. 0: adapt to the duration of recent waits. Negative: never sleep; each waiting thread then needs a CPU."`

	// RndvThresh is the length of a message in bytes from which its data remains at the
	// sender until the receiver has a matching receive (rendezvous). The zero value means the length from which that
	// is not slower than eager, by the costs of the lanes, and at most 128 KiB, which is half of the default EagerWindow.
	// EP.Explain shows the length.
	RndvThresh config.MemSize `env:"RNDV_THRESH" default:"auto" doc:"Minimum length in bytes of a message that uses rendezvous. auto: the length from which rendezvous takes less time than eager, at most 128k. If there is no credit for a message, it uses rendezvous at any length."`

	// RndvScheme determines how the data of a rendezvous message is transferred. get_zcopy: the
	// receiver gets it, if the sender's memory is registered. put_zcopy: the sender puts it, if
	// the receiver's memory is registered. am: in active messages, which is always possible,
	// and the fallback of the others. Empty means auto: by cost. A sender sends
	// keys only with get_zcopy and auto.
	RndvScheme string `env:"RNDV_SCHEME" default:"auto" enum:"auto,get_zcopy,put_zcopy,am" doc:"How the data of a rendezvous message is transferred. get_zcopy: the receiver reads the sender's registered memory. put_zcopy: the sender writes to the receiver's registered memory. am: active messages, also the fallback of the other two. auto: the scheme with the least cost."`

	// Costs selects the costs for the choice between eager and rendezvous, and of the scheme:
	// measured on this machine (uct.Measurer), or declared by transports, which are
	// the same everywhere. The process measures once, when it sends the first message that needs more than one
	// call, or that has 1 KiB or more in registered memory. Empty means measured.
	// Lanes are always chosen by declared costs.
	Costs CostSource `env:"COSTS" default:"measured" enum:"measured,declared" doc:"Costs that select eager or rendezvous and the rendezvous scheme. measured: on this machine, when the process sends its first large message. declared: by the transports, the same on every machine."`

	// MaxRndvRails limits the lanes over different devices that share the data of a rendezvous
	// message, if both sides have them: 1 to 4. 0 means 2.
	MaxRndvRails int `env:"MAX_RNDV_RAILS" default:"2" doc:"Maximum number of lanes over different devices that share the data of a rendezvous message; 1 to 4."`

	// MaxRMARails limits the lanes over different devices that share a large put or get: 1 to 4. 0
	// means 1. With several lanes a flush and a fence take longer.
	MaxRMARails int `env:"MAX_RMA_RAILS" default:"1" doc:"Maximum number of lanes over different devices that share a large put or get; 1 to 4."`

	// EagerWindow limits the bytes of messages that a peer may send to this process before they are
	// received; further and larger messages wait at the
	// sender. The zero value means 256 KiB, and 2 MiB for a peer that has sent 2 MiB, if its messages are received as they
	// arrive and the windows of all peers use at most a quarter of EagerBudget. Less than 16 KiB is 16 KiB.
	EagerWindow config.MemSize `env:"EAGER_WINDOW" default:"auto" doc:"Bytes of messages that a peer can send before they are received; at least 16k. auto: 256k, and up to 2m for peers that send much. Further messages wait at the sender."`

	// EagerBudget limits the sum of the windows of all peers of a worker, in bytes; beyond it, new
	// connections have 16 KiB each. The zero value means 64 MiB.
	EagerBudget config.MemSize `env:"EAGER_BUDGET" default:"auto" doc:"Sum of the windows (EAGER_WINDOW) of all peers of a worker, in bytes. auto: 64m. Beyond it, new connections get 16k each."`

	// PeerBudget limits the memory, in bytes, of messages of one peer worker that were not
	// received, on all its connections including closed ones. A peer with many connections
	// gets smaller windows, down to 2 KiB each. The zero value means 32 MiB. The limit holds if it is at
	// least 5 KiB for each of MaxEPsPerPeer. The only connection of a peer has EagerWindow in any case.
	PeerBudget config.MemSize `env:"PEER_BUDGET" default:"auto" doc:"Maximum memory in bytes for unreceived messages of one peer worker. auto: 32m. A peer with many endpoints gets smaller windows."`

	// AuthToken is a secret that all processes of a job share, of 16 bytes or more. Listen and Dial
	// then require a proof that the other side has the same token before they send anything about this
	// side, and the worker rejects connections of workers that it knows neither from Dial or Listen nor from NewEP. The
	// tcp transport rejects connections of processes that do not have the same token.
	// It encrypts nothing. AuthTokenFile is a file with the token; white space
	// around the token is ignored. Set one of the two.
	AuthToken     config.Secret `env:"AUTH_TOKEN" doc:"Secret of at least 16 bytes that all processes of a job share. Sockets of Listen and Dial and tcp connections require a proof that the other side has the same secret. It does not encrypt anything. AUTH_TOKEN_FILE is safer."`
	AuthTokenFile string        `env:"AUTH_TOKEN_FILE" doc:"File with the secret of AUTH_TOKEN. Only its owner should be able to read it."`

	// RCache configures the registration cache, which has buffers that gucx has registered for operations: see the
	// package documentation, "Registration of buffers".
	RCache RCacheConfig `env:"RCACHE"`

	// TagProto selects TupleQ: tagged messages use receive queues of the transport, if the transport has such queues.
	// Empty or auto means that they do not. See docs/design/0007-tupleq.md.
	TagProto string `env:"TAG_PROTO" default:"auto" enum:"auto,tupleq,tupleq_copy" doc:"How tagged messages are sent. auto: eager or rendezvous. tupleq: also directly from the sender's buffer to the receive buffer through one queue per tag, where the transport has queues. tupleq_copy: as tupleq, but the sender copies messages of up to 8k."`

	// TupleqMax limits the tags of one worker that have a queue; the least recently used one is
	// evicted. 0 means 1024.
	TupleqMax int `env:"TUPLEQ_MAX" default:"1024" doc:"Maximum number of tags of a worker that have a queue at the same time, if TAG_PROTO selects queues. The least recently used one is evicted."`

	// TupleqMaxMessage is the maximum length of a message through a queue, in bytes. The zero
	// value means 1 MiB. The worker allocates as much memory for the rest of messages that are longer
	// than their receive.
	TupleqMaxMessage config.MemSize `env:"TUPLEQ_MAX_MESSAGE" default:"auto" doc:"Maximum length in bytes of a message through a queue, if TAG_PROTO selects queues. auto: 1m."`

	// TupleqNoWildcards promises that every receive has a full mask: a receive
	// with another mask then fails with ErrInvalidParam.
	TupleqNoWildcards bool `env:"TUPLEQ_NO_WILDCARDS" default:"n" doc:"The program promises that every tagged receive has a full mask; a receive with another mask fails."`

	Connect ConnectMode `env:"CONNECT" default:"lazy" enum:"lazy,eager" doc:"When an endpoint connects. lazy: at the first operation that needs a lane. eager: when it is created."`

	// LatencyStats counts how long operations, rendezvous and connecting take, and the replacement of lanes that
	// broke, in histograms below [Worker.Stats]. It makes an operation some 0.5 us slower.
	LatencyStats bool `env:"LATENCY_STATS" default:"n" doc:"Record the duration of operations, rendezvous, connection setup and lane replacement in histograms. Each operation takes some 0.5 us longer."`

	// Study has settings that only measurements need.
	Study Study `env:"STUDY"`
}

// Study has slower alternatives for measurements. Programs use the zero value.
type Study struct {
	KeyResolve   KeyResolve `env:"KEY_RESOLVE" default:"unpack" enum:"unpack,op" doc:"When the lane of a remote key is looked up. unpack: once. op: at each operation (only for measurements)."`
	ProgressIdle bool       `env:"PROGRESS_IDLE" default:"n" doc:"Poll also interfaces without connections (only for measurements)."`
}

// RCacheConfig configures the registration cache: UCP registers buffers of large operations by
// itself and caches the registrations for later ones. The limits apply to idle registrations, which
// no operation uses. The zero value is the default.
type RCacheConfig struct {
	// Enable permits registrations by UCP itself; No disables them and the cache. Empty
	// means Try.
	Enable config.Ternary `env:"ENABLE" default:"try" doc:"Register buffers of the caller where that makes an operation faster, and cache the registrations. n: operations use zcopy only with memory that the caller has registered."`
	// Overhead is the cost that registration adds to an operation, for the choice between registering and
	// copying. 0 means a lookup in the cache, and a share of the cost of one registration.
	Overhead time.Duration `env:"OVERHEAD" default:"auto" doc:"Assumed cost of a registration per operation. auto: a lookup in the cache, 40 ns, and 1/64 of the cost of one registration, because buffers are used again."`
	// MaxSize is in bytes. With MemZero nothing is cached.
	MaxSize config.MemSize `env:"MAX_SIZE" default:"64m" doc:"Maximum memory in bytes that remains registered while no operation uses it. 0: deregister at once."`
	// MaxRegions is a number of entries; 0 means 256.
	MaxRegions int `env:"MAX_REGIONS" default:"256" doc:"Maximum number of regions that remain registered while no operation uses them."`
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

// Values of Study.KeyResolve; empty means that a key is resolved when it is unpacked.
const (
	ResolveAtUnpack KeyResolve = "unpack"
	ResolveAtOp     KeyResolve = "op"
)

// Table returns the table for config.FromEnv. It has no prefix: the variables are GUCX_TLS, GUCX_NET_DEVICES and so on.
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
		checkRange("MAX_RNDV_RAILS", c.MaxRndvRails, selection.MaxRails),
		checkRange("MAX_RMA_RAILS", c.MaxRMARails, selection.MaxRails),
		checkRange("TUPLEQ_MAX", c.TupleqMax, math.MaxInt),
		checkRange("MAX_EPS_PER_PEER", c.MaxEPsPerPeer, math.MaxInt32),
		checkRange("WIREUP_TIMEOUT", c.WireupTimeout, config.Infinite),
		checkRange("KEEPALIVE_INTERVAL", c.KeepaliveInterval, config.Infinite),
		checkRange("LANE_RETRY_INTERVAL", c.LaneRetryInterval, config.Infinite),
		checkRange("EP_IDLE_TIMEOUT", c.EPIdleTimeout, config.Infinite),
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

// wireupTimeout returns WireupTimeout for handshake.Conn, where 0 means no limit.
func (c *Config) wireupTimeout() time.Duration {
	switch c.WireupTimeout {
	case 0:
		return defaultWireupTimeout
	case config.Infinite:
		return 0
	}
	return c.WireupTimeout
}

// defaultKeepalive is that of UCX (UCX_KEEPALIVE_INTERVAL).
const defaultKeepalive = 20 * time.Second

// keepalive is KeepaliveInterval, 0 for never.
func (c *Config) keepalive() time.Duration {
	switch c.KeepaliveInterval {
	case 0:
		return defaultKeepalive
	case config.Infinite:
		return 0
	}
	return c.KeepaliveInterval
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
func (c *Config) rails() selection.Rails {
	return selection.Rails{RMA: max(c.rndvSharing().rails, c.rmaSharing().rails)}
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
