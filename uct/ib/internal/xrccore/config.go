package xrccore

import (
	"cmp"
	"fmt"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct/base"
	"github.com/gucx/gucx/uct/ib/internal/rccore"
)

// Config is the configuration of the transport. The zero value selects the defaults.
type Config struct {
	rccore.Config
	ShareDomain  string `env:"SHARE_DOMAIN" default:"n" enum:"n,process,host" doc:"Interfaces that share an XRC domain. n: none; each endpoint has a connection. process: the interfaces of a memory domain. host: the interfaces of all processes of the user on the host. An endpoint to an interface of a domain uses the existing connection to the domain."`
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

	maxQueueConns   = 64      // the index has one byte in messages
	maxQueueTxDepth = 1 << 10 // the connection has one SGE list per send
	maxQueueCQDepth = 1 << 18 // the largest CQ of the device has 2^22 entries

	maxQueues     = 1 << 13
	maxQueueDepth = 1 << 10
	maxRecvIOV    = 3 // softhca exposes at most 3 SGEs of a receive to the process of a peer
)

// Shares reports whether the iface is in a shared domain.
func (c *Config) Shares() bool { return c.ShareDomain != "" && c.ShareDomain != ShareNothing }

// withDefaults replaces zero values with defaults and checks ranges of the settings that rc does
// not have.
func (c Config) withDefaults() (Config, error) {
	err := cmp.Or(
		base.SetDefault("QUEUE_CONNS", &c.QueueConns, defaultQueueConns, 1, maxQueueConns),
		base.SetDefault("QUEUE_TX_LEN", &c.QueueTxDepth, defaultQueueTxDepth, 1, maxQueueTxDepth),
		base.SetDefault("QUEUE_CQ_LEN", &c.QueueCQDepth, defaultQueueCQDepth, 2*maxQueueConns, maxQueueCQDepth),
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

// atLeast raises a value that is set to least. A value of 0 selects the default, which is larger.
func atLeast(v, least config.MemSize) config.MemSize {
	if v > 0 {
		return max(v, least)
	}
	return v
}

// Validate checks the ranges. config.FromEnv calls it.
func (c *Config) Validate() error {
	_, err := c.withDefaults()
	return cmp.Or(err, c.Config.Validate())
}
