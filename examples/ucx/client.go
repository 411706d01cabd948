package main

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/gucx/gucx/ucp/ucxpeer"
)

// call requests the sum of data from a server. LayoutAuto works with each release of UCX; with the right layout there is
// no connection that the listener rejects.
func call(ctx context.Context, address string, layout ucxpeer.Layout, data []byte) (sum uint64, err error) {
	w, err := ucxpeer.NewWorker(ucxpeer.Config{})
	if err != nil {
		return 0, err
	}
	defer w.Close()
	const number = 1
	var failed error
	answered := false
	w.OnError(func(_ *ucxpeer.EP, err error) { failed = err })
	w.OnActive(idReply, func(m *ucxpeer.ActiveMessage) {
		if len(m.Header) == 16 && binary.LittleEndian.Uint64(m.Header) == number {
			answered, sum = true, binary.LittleEndian.Uint64(m.Header[8:])
		}
	})
	ep, err := w.Dial(ctx, "tcp", address, ucxpeer.DialConfig{Layout: layout})
	if err != nil {
		return 0, err
	}
	header := binary.LittleEndian.AppendUint64(nil, number)
	r, err := ep.SendActive(idRequest, header, data, &ucxpeer.OpParams{Reply: true})
	if err == nil {
		err = r.Wait(ctx)
	}
	if err != nil {
		return 0, err
	}
	if err = w.Until(ctx, func() bool { return answered || failed != nil }); err != nil {
		return 0, err
	}
	if !answered {
		return 0, failed
	}
	if r, err = ep.Close(ucxpeer.CloseFlush); err == nil {
		err = r.Wait(ctx)
	}
	if err != nil {
		return sum, fmt.Errorf("close: %w", err)
	}
	return sum, nil
}
