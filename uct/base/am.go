package base

import (
	"github.com/gucx/gucx/ucs/stats"
	"github.com/gucx/gucx/uct"
)

// AMTable has the active-message handlers of an iface. The zero value has none.
type AMTable struct {
	handlers [1 << 8]uct.AMHandler // up to MaxAMID; a peer may send any
	dropped  stats.Counter         // messages without a handler
}

// Set sets the handler for id; nil removes it. ErrInvalidParam if id > MaxAMID.
func (t *AMTable) Set(id uint8, h uct.AMHandler) error {
	if id > uct.MaxAMID {
		return uct.ErrInvalidParam
	}
	t.handlers[id] = h
	return nil
}

// Handle calls the handler of a message and returns its result. It counts and drops a message
// whose id is out of range or has no handler. id may come unchecked from a peer.
func (t *AMTable) Handle(id uint8, data []byte, desc uct.Desc) (keep bool) {
	return t.At(id).HandleAM(data, desc)
}

// At returns the handler that Handle calls for an id; never nil. A caller that calls the handler itself
// avoids the call of Handle.
func (t *AMTable) At(id uint8) uct.AMHandler {
	if h := t.handlers[id]; h != nil {
		return h
	}
	return (*noHandler)(t)
}

// noHandler is the table as the handler of messages that have none.
type noHandler AMTable

// HandleAM counts the message.
func (t *noHandler) HandleAM([]byte, uct.Desc) bool {
	t.dropped.Inc()
	return false
}

// AddStats adds the counter of messages without a handler to a node.
func (t *AMTable) AddStats(n *stats.Node) { n.Add("no_handler", &t.dropped) }
