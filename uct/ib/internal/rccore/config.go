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

// Config tunes the transport. The zero value is ready to use.
type Config struct {
	TxDepth     int            `env:"TX_QUEUE_LEN" default:"256" doc:"Send queue of an endpoint, in work requests."`
	TxCQDepth   int            `env:"TX_CQ_LEN" default:"4096" doc:"Work requests in flight on all endpoints together."`
	TxBuffers   int            `env:"TX_BUFS" default:"256" doc:"Bounce buffers of SEG_SIZE for bcopy operations."`
	TxMaxInline config.MemSize `env:"TX_MAX_INLINE" default:"128" doc:"Longest short operation."`
	TxMaxSGE    int            `env:"TX_MAX_SGE" default:"5" doc:"Pieces of memory in one send work request, including the header of a zero-copy message."`
	Moderation  int            `env:"TX_CQ_MODERATION" default:"64" doc:"At most so many work requests of a busy endpoint go without completion."`
	MaxPoll     int            `env:"MAX_POLL" default:"16" doc:"Completions that one progress takes."`
	RxDepth     int            `env:"RX_QUEUE_LEN" default:"1024" doc:"Receive buffers, shared by all endpoints."`
	SegSize     config.MemSize `env:"SEG_SIZE" default:"8k" doc:"Bounce and receive buffers: longest bcopy operation and active message. Peers must agree."`
	FCWindow    int            `env:"FC_WND_SIZE" default:"128" doc:"Credits: active messages that a peer may send before it hears back. Not more than half the receive queue is granted."`
	Timeout     time.Duration  `env:"TIMEOUT" default:"1s" doc:"Local acknowledgement timeout of one attempt; rounded up to 4.096us * 2^n."`
	RetryCount  int            `env:"RETRY_COUNT" default:"7" doc:"Attempts after the first that an unanswered packet gets."`
	RNRTimeout  time.Duration  `env:"RNR_TIMEOUT" default:"1ms" doc:"Time that a peer is asked to wait when no receive buffer is posted."`
	MaxRDAtomic int            `env:"MAX_RD_ATOMIC" default:"16" doc:"Reads and atomics of an endpoint in flight in each direction."`
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
	defaultSegSize     = 8 << 10
	defaultFCWindow    = 128
	defaultTimeout     = time.Second
	defaultRetryCount  = 7
	defaultRNRTimeout  = time.Millisecond
	defaultMaxRDAtomic = 16

	minRxDepth = 4 // two messages and the credits that each side returns
	minInline  = 8 // the header of a short message
	maxSegSize = 1 << 20
	maxSGE     = 16
)

// withDefaults replaces zeros and checks ranges.
func (c Config) withDefaults() (Config, error) {
	err := cmp.Or(
		base.Settle("TX_QUEUE_LEN", &c.TxDepth, defaultTxDepth, 1, 1<<15),
		base.Settle("TX_CQ_LEN", &c.TxCQDepth, defaultTxCQDepth, 1, 1<<20),
		base.Settle("TX_BUFS", &c.TxBuffers, defaultTxBuffers, 1, 1<<20),
		base.Settle("TX_MAX_SGE", &c.TxMaxSGE, defaultTxMaxSGE, 2, maxSGE),
		base.Settle("TX_CQ_MODERATION", &c.Moderation, defaultModeration, 1, 1<<15),
		base.Settle("MAX_POLL", &c.MaxPoll, defaultMaxPoll, 1, 1<<10),
		base.Settle("RX_QUEUE_LEN", &c.RxDepth, defaultRxDepth, minRxDepth, 1<<15),
		base.Settle("FC_WND_SIZE", &c.FCWindow, defaultFCWindow, 1, rcwire.MaxCredits),
		base.Settle("RETRY_COUNT", &c.RetryCount, defaultRetryCount, 1, 7),
		base.Settle("MAX_RD_ATOMIC", &c.MaxRDAtomic, defaultMaxRDAtomic, 1, 255),
		base.Settle("SEG_SIZE", &c.SegSize, defaultSegSize, minInline, maxSegSize),
		base.Settle("TX_MAX_INLINE", &c.TxMaxInline, defaultTxMaxInline, minInline, maxSegSize),
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

// Validate checks the ranges, for config.FromEnv.
func (c *Config) Validate() error {
	_, err := c.withDefaults()
	return err
}
