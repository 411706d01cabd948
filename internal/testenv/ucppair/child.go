package ucppair

import (
	"encoding/hex"
	"strings"

	"github.com/gucx/gucx/internal/testenv/roles"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/uct/all"
)

// ReachParent opens a worker over the transports of the first argument, with an EP to the worker whose address is the
// second argument.
func ReachParent(c *roles.Side) (*ucp.Worker, *ucp.EP, error) {
	return ReachParentWith(c, ucp.Config{})
}

// ReachParentWith is ReachParent with a configuration.
func ReachParentWith(c *roles.Side, cfg ucp.Config) (*ucp.Worker, *ucp.EP, error) {
	ctx, err := OpenContextWith(cfg, c.Args[0])
	if err != nil {
		return nil, nil, err
	}
	w, err := ctx.NewWorker(ucp.WorkerConfig{})
	if err != nil {
		return nil, nil, err
	}
	addr, err := hex.DecodeString(c.Args[1])
	if err != nil {
		return nil, nil, err
	}
	ep, err := w.NewEP(addr, ucp.EPConfig{})
	return w, ep, err
}

// OpenContext opens the transports that tls selects.
func OpenContext(tls string) (*ucp.Context, error) { return OpenContextWith(ucp.Config{}, tls) }

// OpenContextWith is OpenContext with a configuration.
func OpenContextWith(cfg ucp.Config, tls string) (*ucp.Context, error) {
	if err := cfg.TLS.UnmarshalText([]byte(tls)); err != nil {
		return nil, err
	}
	return ucp.NewContext(cfg, tlsets.Components(all.Config{})...)
}

// Remote is the address of a worker and the key of its memory, for EPs of other processes.
type Remote struct{ Addr, Key []byte }

// String returns one word, which ParseRemote parses.
func (r Remote) String() string {
	return hex.EncodeToString(r.Addr) + "," + hex.EncodeToString(r.Key)
}

// ParseRemote parses the result of String.
func ParseRemote(s string) (r Remote, err error) {
	addr, key, _ := strings.Cut(s, ",")
	r.Addr, err = hex.DecodeString(addr)
	if err != nil {
		return r, err
	}
	r.Key, err = hex.DecodeString(key)
	return r, err
}

// Dial makes an EP of w and a key.
func (r Remote) Dial(w *ucp.Worker) (*ucp.EP, *ucp.RKey, error) {
	ep, err := w.NewEP(r.Addr, ucp.EPConfig{})
	if err != nil {
		return nil, nil, err
	}
	key, err := ep.Unpack(r.Key)
	return ep, key, err
}
