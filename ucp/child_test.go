package ucp

import (
	"encoding/hex"
	"strings"

	"github.com/gucx/gucx/internal/testenv/roles"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/uct/all"
)

// reachParentWith opens a worker over the transports of the first argument, with an EP to the worker whose address is
// the second argument.
func reachParentWith(c *roles.Side, cfg Config) (*Worker, *EP, error) {
	ctx, err := openContextWith(cfg, c.Args[0])
	if err != nil {
		return nil, nil, err
	}
	w, err := ctx.NewWorker(WorkerConfig{})
	if err != nil {
		return nil, nil, err
	}
	addr, err := hex.DecodeString(c.Args[1])
	if err != nil {
		return nil, nil, err
	}
	ep, err := w.NewEP(addr, EPConfig{})
	return w, ep, err
}

// openContext opens the transports that tls selects.
func openContext(tls string) (*Context, error) { return openContextWith(Config{}, tls) }

// openContextWith is openContext with a configuration.
func openContextWith(cfg Config, tls string) (*Context, error) {
	if err := cfg.TLS.UnmarshalText([]byte(tls)); err != nil {
		return nil, err
	}
	return NewContext(cfg, tlsets.Components(all.Config{})...)
}

// remoteMem is the address of a worker and the key of its memory, for EPs of other processes.
type remoteMem struct{ addr, key []byte }

// String returns one word, which parseRemote parses.
func (r remoteMem) String() string {
	return hex.EncodeToString(r.addr) + "," + hex.EncodeToString(r.key)
}

func parseRemote(s string) (r remoteMem, err error) {
	addr, key, _ := strings.Cut(s, ",")
	r.addr, err = hex.DecodeString(addr)
	if err != nil {
		return r, err
	}
	r.key, err = hex.DecodeString(key)
	return r, err
}

// dial makes an EP of w and a key.
func (r remoteMem) dial(w *Worker) (*EP, *RKey, error) {
	ep, err := w.NewEP(r.addr, EPConfig{})
	if err != nil {
		return nil, nil, err
	}
	key, err := ep.Unpack(r.key)
	return ep, key, err
}
