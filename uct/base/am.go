package base

import (
	"github.com/gucx/gucx/ucs/stats"
	"github.com/gucx/gucx/uct"
)

// AMTable holds the active-message handlers of an iface. The zero value has none.
type AMTable struct {
	handlers [1 << 8]uct.AMHandler // up to MaxAMID; a peer may send any
	dropped  stats.Counter         // messages that had no handler
}

// Set installs h for id; nil removes. ErrInvalidParam if id > MaxAMID.
func (t *AMTable) Set(id uint8, h uct.AMHandler) error {
	if id > uct.MaxAMID {
		return uct.ErrInvalidParam
	}
	t.handlers[id] = h
	return nil
}

// Handle calls the handler of a message and returns its result. A message
// with an id that is out of range or has no handler is counted and dropped. id may come
// unchecked from a peer.
func (t *AMTable) Handle(id uint8, data []byte, desc uct.Desc) (keep bool) {
	return t.At(id).HandleAM(data, desc)
}

// At is what Handle gives the messages of an id to; never nil. Calling it spares the call
// of Handle.
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

// AddStats adds the number of messages that had no handler.
func (t *AMTable) AddStats(n *stats.Node) { n.Add("no_handler", &t.dropped) }
