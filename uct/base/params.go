package base

import (
	"fmt"

	"github.com/gucx/gucx/uct"
)

// MaxHeadroom is the limit of uct.IfaceParams.RxHeadroom.
const MaxHeadroom = 256

// OpenParams checks what no OpenIface takes: another transport, a configuration that is
// not a C or a *C, a headroom out of range. It returns the configuration to use, def if
// p has none. Error: ErrInvalidParam, with the reason.
func OpenParams[C any](p *uct.IfaceParams, transport string, def C) (C, error) {
	cfg := def
	switch c := p.Config.(type) {
	case nil:
	case C:
		cfg = c
	case *C:
		cfg = *c
	default:
		return def, fmt.Errorf("%w: configuration of type %T", uct.ErrInvalidParam, c)
	}
	if p.Transport != transport {
		return def, fmt.Errorf("%w: no transport %q", uct.ErrInvalidParam, p.Transport)
	}
	if p.RxHeadroom < 0 || p.RxHeadroom > MaxHeadroom {
		return def, fmt.Errorf("%w: RxHeadroom %d not in [0, %d]", uct.ErrInvalidParam, p.RxHeadroom, MaxHeadroom)
	}
	return cfg, nil
}
