package ucplayer

import (
	"errors"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/uct"
)

// Explain returns the explanation of ucp for an EP between two processes of this host, with cfg
// over the transports of components: the lanes that it would use and the reasons, and the ranges of
// lengths with their protocols. Both sides are in this process, each with domains and devices of
// its own; nothing is sent.
func Explain(cfg ucp.Config, components func() []uct.Component) (text string, err error) {
	var undo cleanup.Stack
	defer func() { err = errors.Join(err, undo.Run()) }()
	var ends [2]*ucp.Worker
	for i := range ends {
		ctx, err := ucp.NewContext(cfg, components()...)
		if err != nil {
			return "", err
		}
		undo.Add(ctx.Close)
		if ends[i], err = ctx.NewWorker(ucp.WorkerConfig{}); err != nil {
			return "", err
		}
		undo.Add(ends[i].Close)
	}
	ep, err := ends[0].NewEP(ends[1].Address(), ucp.EPConfig{})
	if err != nil {
		return "", err
	}
	return ep.Explain(), nil
}
