package ucp

import (
	"encoding/binary"
	"fmt"

	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// unknownMessage is the handler of an active message with an id that this version does not know. The sender
// relies on the message, so the connection fails on both sides; if the message were dropped, neither side would detect
// that.
type unknownMessage struct {
	i  *iface
	id uint8
}

// setUnknown sets the handlers of an iface for the ids of active messages that this version does not use.
func (w *Worker) setUnknown(i *iface) (err error) {
	for id := uint8(wire.AMUnknown); id <= uct.MaxAMID; id++ {
		err = ucs.Join(err, i.SetAMHandler(id, &unknownMessage{i, id}))
	}
	return err
}

// HandleAM fails the connection whose id is in the message.
func (u *unknownMessage) HandleAM(data []byte, _ uct.Desc) bool {
	w := u.i.w
	w.stats.badMessages.Inc()
	if len(data) < wire.NameLen {
		return false
	}
	if e := w.connected(binary.LittleEndian.Uint64(data)); e != nil {
		why := fmt.Errorf("%w: active message %d, of a later version of gucx", ucs.ErrUnsupported, u.id)
		e.markFailed(ucs.StatusUnsupported, why, u.i)
	}
	return false
}
