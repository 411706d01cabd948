package ucp

import (
	"github.com/gucx/gucx/ucp/internal/data"
	"github.com/gucx/gucx/ucs"
)

// typedData is the Data of a message, which is not in one buffer: to send, or to receive into.
type typedData struct {
	data  data.Buffer
	typed bool  // of a receive: the message goes to data and not to a buffer
	err   error // with which data has rejected a part of the message
}

// write unpacks a part of a message into the data, unless the data has rejected an earlier part. Truncation is reported at
// the end of the message. An Unpacker may close the EP: then the receive is complete and d is in the pool before write
// stores the error in d. So RecvData and TagRecvData must set all fields of a new record.
func (d *typedData) write(off int, data []byte) {
	if d.err != nil {
		return
	}
	if !d.data.Generic() {
		data = data[:min(len(data), max(d.data.Len()-off, 0))]
	}
	_, d.err = d.data.Unpack(off, data)
}

// finish calls Finish of the data, and returns the result of the receive.
func (d *typedData) finish(err error) ucs.Status {
	if d.err != nil {
		err = d.err
	}
	if err = d.data.Finish(err); err != nil {
		return statusOf(err)
	}
	return ucs.StatusOK
}

// abandon ends the use of the data, because the caller has abandoned the receive.
func (d *typedData) abandon() {
	if d.typed {
		d.finish(ucs.ErrCanceled)
		*d = typedData{}
	}
}
