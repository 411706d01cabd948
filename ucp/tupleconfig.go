package ucp

import (
	"cmp"
	"math"
)

// Values of Config.TagProto.
const (
	tagProtoAuto   = "auto"
	tagProtoTupleq = "tupleq"
	tagProtoCopy   = "tupleq_copy"
)

// Defaults of tuples.
const (
	defaultTupleqMax        = 1024
	defaultTupleqMaxMessage = 1 << 20
	defaultTupleqFallbacks  = 16
)

// tupleConfig is the part of Config that is about tuples, with its defaults.
type tupleConfig struct {
	on, copies   bool
	max          int // tags that have a queue
	maxMessage   int // bytes
	maxFallbacks int
	wildcards    bool // there may be some
}

func (c *Config) tuples() tupleConfig {
	t := tupleConfig{
		on: c.TagProto == tagProtoTupleq || c.TagProto == tagProtoCopy, copies: c.TagProto == tagProtoCopy,
		max: cmp.Or(c.TupleqMax, defaultTupleqMax), maxFallbacks: cmp.Or(c.TupleqMaxFallbacks, defaultTupleqFallbacks),
		maxMessage: int(max(lengthOf(c.TupleqMaxMessage, defaultTupleqMaxMessage), 1)), wildcards: !c.TupleqNoWildcards,
	}
	if t.maxFallbacks < 0 {
		t.maxFallbacks = math.MaxInt
	}
	return t
}
