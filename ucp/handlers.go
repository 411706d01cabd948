package ucp

import (
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// setMessageHandlers has an iface deliver messages.
func (w *Worker) setMessageHandlers(i *iface) error {
	return ucs.Join(
		i.SetAMHandler(wire.AMActive, uct.AMHandlerFunc(w.handleActive)),
		i.SetAMHandler(wire.AMActiveFirst, uct.AMHandlerFunc(w.handleActiveFirst)),
		i.SetAMHandler(wire.AMFrag, uct.AMHandlerFunc(w.handleFrag)),
		i.SetAMHandler(wire.AMAck, w.handleControl((*Worker).handleAck)),
		i.SetAMHandler(wire.AMCredit, w.handleControl((*Worker).handleCredit)),
	)
}
