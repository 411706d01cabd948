package xrccore

import (
	"cmp"
	"fmt"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct/base"
	"github.com/gucx/gucx/uct/ib/internal/rccore"
)

// Config tunes the transport. The zero value is ready to use.
type Config struct {
	rccore.Config
	ShareDomain  string `env:"SHARE_DOMAIN" default:"n" enum:"n,process,host" doc:"Who shares an XRC domain. n: nobody; each endpoint has a connection. process: the interfaces of a memory domain. host: the interfaces of all processes of the user on the host. An endpoint to an interface of a domain uses the existing connection to the domain."`
	DomainDir    string `env:"DOMAIN_DIR" doc:"Directory of the file by which processes find their XRC domain, with SHARE_DOMAIN=host. Processes with different directories use different domains. Empty: $XDG_RUNTIME_DIR, or else the directory for temporary files."`
	QueueConns   int    `env:"QUEUE_CONNS" default:"4" doc:"Maximum number of receive queues of a peer that an endpoint can send to at the same time; 1 to 64."`
	QueueTxDepth int    `env:"QUEUE_TX_LEN" default:"16" doc:"Maximum number of outstanding messages on one connection to a receive queue; 1 to 1024."`
	QueueCQDepth int    `env:"QUEUE_CQ_LEN" default:"16384" doc:"Maximum number of posted receives of all receive queues and outstanding messages of all connections to queues together; 128 to 262144."`
}

// Values of Config.ShareDomain.
const (
	ShareNothing = "n"
	ShareProcess = "process"
	ShareHost    = "host"
)

// Defaults and limits.
const (
	defaultQueueConns   = 4
	defaultQueueTxDepth = 16
	defaultQueueCQDepth = 16 << 10

	maxQueueConns   = 64      // an index travels in a byte
	maxQueueTxDepth = 1 << 10 // as many SGE lists are kept
	maxQueueCQDepth = 1 << 18 // the largest CQ of the device has 2^22 entries

	maxQueues     = 1 << 13
	maxQueueDepth = 1 << 10
	maxRecvIOV    = 3 // what peers fill by themselves: softhca shows them so many pieces
)

// Shares reports whether the interface is in a domain that others share.
func (c *Config) Shares() bool { return c.ShareDomain != "" && c.ShareDomain != ShareNothing }

// withDefaults replaces zeros and checks ranges of what rc does not have.
func (c Config) withDefaults() (Config, error) {
	err := cmp.Or(
		base.Settle("QUEUE_CONNS", &c.QueueConns, defaultQueueConns, 1, maxQueueConns),
		base.Settle("QUEUE_TX_LEN", &c.QueueTxDepth, defaultQueueTxDepth, 1, maxQueueTxDepth),
		base.Settle("QUEUE_CQ_LEN", &c.QueueCQDepth, defaultQueueCQDepth, 2*maxQueueConns, maxQueueCQDepth),
	)
	switch c.ShareDomain {
	case "":
		c.ShareDomain = ShareNothing
	case ShareNothing, ShareProcess, ShareHost:
	default:
		err = cmp.Or(err, fmt.Errorf("SHARE_DOMAIN %q: %w", c.ShareDomain, ucs.ErrInvalidParam))
	}
	c.SegSize = atLeast(c.SegSize, rccore.MaxControl)
	c.TxMaxInline = atLeast(c.TxMaxInline, rccore.MaxControl)
	return c, err
}

// atLeast raises what is set; the default is above.
func atLeast(v, least config.MemSize) config.MemSize {
	if v > 0 {
		return max(v, least)
	}
	return v
}

// Validate checks the ranges, for config.FromEnv.
func (c *Config) Validate() error {
	_, err := c.withDefaults()
	return cmp.Or(err, c.Config.Validate())
}
