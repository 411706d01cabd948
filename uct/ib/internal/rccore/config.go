package rccore

import (
	"cmp"
	"fmt"
	"time"

	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/base"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/internal/rcwire"
)

// Config is the configuration of the transport. The zero value selects the defaults.
type Config struct {
	TxDepth     int            `env:"TX_QUEUE_LEN" default:"256" doc:"Length of the send queue of an endpoint, in work requests; 1 to 32768."`
	TxCQDepth   int            `env:"TX_CQ_LEN" default:"4096" doc:"Maximum number of outstanding work requests of all endpoints together; 1 to 1048576."`
	TxBuffers   int            `env:"TX_BUFS" default:"256" doc:"Number of bounce buffers of SEG_SIZE bytes for bcopy (UCX: TX_MAX_BUFS); 1 to 1048576."`
	TxMaxInline config.MemSize `env:"TX_MAX_INLINE" default:"auto" doc:"Maximum length of a short operation, in bytes (UCX: TX_MIN_INLINE); 8 to SEG_SIZE. auto: 220 over rc_mlx5, else 128."`
	TxMaxSGE    int            `env:"TX_MAX_SGE" default:"5" doc:"Maximum number of scatter-gather entries of a send work request, including the header of a zcopy message (UCX: TX_MIN_SGE); 2 to 16."`
	Moderation  int            `env:"TX_CQ_MODERATION" default:"64" doc:"Maximum number of work requests of an endpoint between two signaled ones; 1 to 32768."`
	MaxPoll     int            `env:"MAX_POLL" default:"16" doc:"Maximum number of completions per progress call (UCX: TX_MAX_POLL and RX_MAX_POLL); 1 to 1024."`
	RxDepth     int            `env:"RX_QUEUE_LEN" default:"1024" doc:"Number of receive buffers, which all endpoints share; 4 to 32768."`
	SegSize     config.MemSize `env:"SEG_SIZE" default:"8256" doc:"Size of bounce and receive buffers, and maximum length of a bcopy operation and an active message, in bytes; 8 to 1m. Peers must use the same value."`
	FCWindow    int            `env:"FC_WND_SIZE" default:"128" doc:"Number of active messages that a peer can send before it gets credit back; 1 to 65535, and at most half of RX_QUEUE_LEN."`
	Timeout     time.Duration  `env:"TIMEOUT" default:"1s" doc:"Timeout of an unacknowledged packet before it is sent again; rounded up to 4.096us * 2^n."`
	RetryCount  int            `env:"RETRY_COUNT" default:"7" doc:"Number of retransmissions of an unacknowledged packet; 1 to 7."`
	RNRTimeout  time.Duration  `env:"RNR_TIMEOUT" default:"1ms" doc:"Time that the peer waits before it sends again if no receive buffer is posted."`
	MaxRDAtomic int            `env:"MAX_RD_ATOMIC" default:"16" doc:"Maximum number of outstanding reads and atomics of an endpoint in each direction; 1 to 255."`
	IB          ib.PathConfig  `env:"IB"`
}

// Defaults and limits.
const (
	defaultTxDepth     = 256
	defaultTxCQDepth   = 4096
	defaultTxBuffers   = 256
	defaultTxMaxInline = 128
	defaultTxMaxSGE    = 5
	defaultModeration  = 64
	defaultMaxPoll     = 16 // as in UCX
	defaultRxDepth     = 1024
	defaultSegSize     = 8<<10 + 64 // as in UCX: 8 KiB and the headers of ucp
	defaultFCWindow    = 128
	defaultTimeout     = time.Second
	defaultRetryCount  = 7
	defaultRNRTimeout  = time.Millisecond
	defaultMaxRDAtomic = 16

	minRxDepth = 4 // two messages, and one message with credits from each side
	minInline  = 8 // the header of a short message
	maxSegSize = 1 << 20
	maxSGE     = 16
)

// withDefaults replaces zero values with defaults and checks ranges.
func (c Config) withDefaults() (Config, error) {
	err := cmp.Or(
		base.SetDefault("TX_QUEUE_LEN", &c.TxDepth, defaultTxDepth, 1, 1<<15),
		base.SetDefault("TX_CQ_LEN", &c.TxCQDepth, defaultTxCQDepth, 1, 1<<20),
		base.SetDefault("TX_BUFS", &c.TxBuffers, defaultTxBuffers, 1, 1<<20),
		base.SetDefault("TX_MAX_SGE", &c.TxMaxSGE, defaultTxMaxSGE, 2, maxSGE),
		base.SetDefault("TX_CQ_MODERATION", &c.Moderation, defaultModeration, 1, 1<<15),
		base.SetDefault("MAX_POLL", &c.MaxPoll, defaultMaxPoll, 1, 1<<10),
		base.SetDefault("RX_QUEUE_LEN", &c.RxDepth, defaultRxDepth, minRxDepth, 1<<15),
		base.SetDefault("FC_WND_SIZE", &c.FCWindow, defaultFCWindow, 1, rcwire.MaxCredits),
		base.SetDefault("RETRY_COUNT", &c.RetryCount, defaultRetryCount, 1, 7),
		base.SetDefault("MAX_RD_ATOMIC", &c.MaxRDAtomic, defaultMaxRDAtomic, 1, 255),
		base.SetDefault("SEG_SIZE", &c.SegSize, defaultSegSize, minInline, maxSegSize),
		base.SetDefault("TX_MAX_INLINE", &c.TxMaxInline, defaultTxMaxInline, minInline, maxSegSize),
	)
	if err != nil {
		return c, err
	}
	if c.TxMaxInline > c.SegSize {
		return c, fmt.Errorf("%w: TX_MAX_INLINE %v above SEG_SIZE %v", uct.ErrInvalidParam, c.TxMaxInline, c.SegSize)
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.RNRTimeout == 0 {
		c.RNRTimeout = defaultRNRTimeout
	}
	return c, c.IB.Validate()
}

// Validate checks the ranges. config.FromEnv calls it.
func (c *Config) Validate() error {
	_, err := c.withDefaults()
	return err
}
