package udcore

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/base"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/internal/dgram"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// Config tunes the transport. The zero value is ready to use.
type Config struct {
	TxDepth     int            `env:"TX_QUEUE_LEN" default:"256" doc:"Length of the send queue, in datagrams; 1 to 32768."`
	TxBuffers   int            `env:"TX_BUFS" default:"1024" doc:"Maximum number of unacknowledged datagrams of all endpoints together (UCX: TX_MAX_BUFS); 1 to 1048576."`
	TxMaxInline config.MemSize `env:"TX_MAX_INLINE" default:"128" doc:"Maximum length of an inline datagram including its header of 8 bytes (UCX: TX_MIN_INLINE); at most 1k."`
	TxMaxSGE    int            `env:"TX_MAX_SGE" default:"5" doc:"Maximum number of scatter-gather entries of a datagram, including the header (UCX: TX_MIN_SGE); 2 to 16."`
	Moderation  int            `env:"TX_CQ_MODERATION" default:"64" doc:"Maximum number of inline datagrams between two signaled ones; 1 to 32768."`
	Window      int            `env:"WINDOW" default:"256" doc:"Maximum number of unacknowledged datagrams of one endpoint (UCX: MAX_WINDOW); 1 to 4096."`
	MaxPoll     int            `env:"MAX_POLL" default:"16" doc:"Maximum number of completions per progress call (UCX: TX_MAX_POLL and RX_MAX_POLL); 1 to 1024."`
	RxDepth     int            `env:"RX_QUEUE_LEN" default:"1024" doc:"Number of receive buffers; 4 to 32768."`
	Timeout     time.Duration  `env:"TIMEOUT" default:"30s" doc:"Time without an acknowledgement after which a peer counts as dead."`
	RTO         time.Duration  `env:"TIMER_RTO" default:"10ms" doc:"Time after which an unacknowledged datagram is sent again; it doubles with each retransmission. At most TIMER_MAX_RTO and TIMEOUT."`
	MaxRTO      time.Duration  `env:"TIMER_MAX_RTO" default:"300ms" doc:"Maximum time between two retransmissions of a datagram."`
	MaxConns    int            `env:"MAX_CONNS" default:"65536" doc:"Maximum number of connections, including those that peers request."`
	IB          ib.PathConfig  `env:"IB"`
}

// Defaults and limits.
const (
	defaultTxDepth     = 256
	defaultTxBuffers   = 1024
	defaultTxMaxInline = 128
	defaultTxMaxSGE    = 5
	defaultModeration  = 64
	defaultWindow      = 256
	defaultMaxPoll     = 16
	defaultRxDepth     = 1024
	defaultTimeout     = 30 * time.Second
	defaultRTO         = 10 * time.Millisecond
	defaultMaxRTO      = 300 * time.Millisecond
	defaultMaxConns    = 1 << 16

	// minInline is the length of the longest control packet; control packets are sent inline.
	minInline = dgram.HeaderLen + dgram.CreqLen
	maxInline = 1 << 10
	maxSGE    = 16
)

// withDefaults replaces zeros and checks ranges.
func (c Config) withDefaults() (Config, error) {
	err := cmp.Or(
		base.SetDefault("TX_QUEUE_LEN", &c.TxDepth, defaultTxDepth, 1, 1<<15),
		base.SetDefault("TX_BUFS", &c.TxBuffers, defaultTxBuffers, 1, 1<<20),
		base.SetDefault("TX_MAX_SGE", &c.TxMaxSGE, defaultTxMaxSGE, 2, maxSGE),
		base.SetDefault("TX_CQ_MODERATION", &c.Moderation, defaultModeration, 1, 1<<15),
		base.SetDefault("WINDOW", &c.Window, defaultWindow, 1, dgram.MaxWindow),
		base.SetDefault("MAX_POLL", &c.MaxPoll, defaultMaxPoll, 1, 1<<10),
		base.SetDefault("RX_QUEUE_LEN", &c.RxDepth, defaultRxDepth, 4, 1<<15),
		base.SetDefault("MAX_CONNS", &c.MaxConns, defaultMaxConns, 1, maxConns),
		base.SetDefault("TX_MAX_INLINE", &c.TxMaxInline, defaultTxMaxInline, minInline, maxInline),
		base.SetDefault("TIMEOUT", &c.Timeout, defaultTimeout, 1, math.MaxInt64),
		base.SetDefault("TIMER_RTO", &c.RTO, defaultRTO, 1, math.MaxInt64),
		base.SetDefault("TIMER_MAX_RTO", &c.MaxRTO, defaultMaxRTO, 1, math.MaxInt64),
	)
	if err != nil {
		return c, err
	}
	if c.RTO > min(c.MaxRTO, c.Timeout) {
		return c, fmt.Errorf("%w: TIMER_RTO %v above TIMER_MAX_RTO %v or TIMEOUT %v", uct.ErrInvalidParam, c.RTO, c.MaxRTO, c.Timeout)
	}
	return c, c.IB.Validate()
}

// Validate checks the ranges, for config.FromEnv.
func (c *Config) Validate() error {
	_, err := c.withDefaults()
	return err
}

// fit reduces the configuration to the limits of the device. ErrUnsupported if control packets
// cannot be sent inline.
func (c Config) fit(dev verbs.DeviceAttr) (Config, error) {
	limit := func(v *int, n int) {
		if n > 0 {
			*v = min(*v, n)
		}
	}
	limit(&c.TxDepth, dev.MaxQPWR)
	limit(&c.RxDepth, min(dev.MaxQPWR, dev.MaxCQE-c.TxDepth))
	limit(&c.TxMaxSGE, dev.MaxSGE)
	c.TxMaxInline = min(c.TxMaxInline, config.MemSize(dev.MaxInline))
	if c.TxMaxInline < minInline {
		return c, fmt.Errorf("%w: the device sends %d bytes inline, datagrams need %d",
			uct.ErrUnsupported, dev.MaxInline, minInline)
	}
	c.Moderation = min(c.Moderation, max(c.TxDepth/4, 1))
	return c, nil
}
