package ucp

import (
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// setMessageHandlers has an iface deliver messages.
func (w *Worker) setMessageHandlers(i *iface) error {
	if w.tuples != nil {
		if err := i.SetAMHandler(wire.AMTuple, uct.AMHandlerFunc(w.handleTuple)); err != nil {
			return err
		}
	}
	return ucs.Join(
		i.SetAMHandler(wire.AMTag, w.tagHandler()),
		i.SetAMHandler(wire.AMTagSync, w.counted(uct.AMHandlerFunc(w.handleTagSync))),
		i.SetAMHandler(wire.AMTagFirst, w.counted(uct.AMHandlerFunc(w.handleTagFirst))),
		i.SetAMHandler(wire.AMActive, (*activeArrivals)(w)),
		i.SetAMHandler(wire.AMActiveShort, &w.active.short),
		i.SetAMHandler(wire.AMActiveFirst, uct.AMHandlerFunc(w.handleActiveFirst)),
		i.SetAMHandler(wire.AMStream, uct.AMHandlerFunc(w.handleStream)),
		i.SetAMHandler(wire.AMStreamRTS, uct.AMHandlerFunc(w.handleStreamRTS)),
		i.SetAMHandler(wire.AMStreamTaken, w.handleControl((*Worker).handleStreamTaken)),
		i.SetAMHandler(wire.AMFrag, uct.AMHandlerFunc(w.handleFrag)),
		i.SetAMHandler(wire.AMTagRTS, w.counted(uct.AMHandlerFunc(w.handleTagRTS))),
		i.SetAMHandler(wire.AMActiveRTS, uct.AMHandlerFunc(w.handleActiveRTS)),
		i.SetAMHandler(wire.AMRTR, uct.AMHandlerFunc(w.handleRTR)),
		i.SetAMHandler(wire.AMData, uct.AMHandlerFunc(w.handleData)),
		i.SetAMHandler(wire.AMPutDone, w.handleControl((*Worker).handlePutDone)),
		i.SetAMHandler(wire.AMAck, w.handleControl((*Worker).handleAck)),
		i.SetAMHandler(wire.AMWithdraw, w.handleControl((*Worker).handleWithdraw)),
		i.SetAMHandler(wire.AMQuery, uct.AMHandlerFunc(w.handleQuery)),
		i.SetAMHandler(wire.AMReply, uct.AMHandlerFunc(w.handleReply)),
		i.SetAMHandler(wire.AMOffer, uct.AMHandlerFunc(w.handleOffer)),
		i.SetAMHandler(wire.AMCredit, w.handleControl((*Worker).handleCredit)),
	)
}
