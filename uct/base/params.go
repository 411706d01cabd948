package base

import (
	"fmt"

	"github.com/gucx/gucx/uct"
)

// OpenParams checks what no OpenIface takes: another transport, a configuration that is
// not a C or a *C. It returns the configuration to use, def if
// p has none or a nil *C, and gives p an OnError that does nothing if it has none. Error:
// ErrInvalidParam, with the reason.
func OpenParams[C any](p *uct.IfaceParams, transport string, def C) (C, error) {
	cfg, err := PickConfig(p.Config, def)
	if err != nil {
		return def, err
	}
	if p.Transport != transport {
		return def, fmt.Errorf("%w: no transport %q", uct.ErrInvalidParam, p.Transport)
	}
	if p.OnError == nil {
		p.OnError = func(uct.EP, error) {}
	}
	return cfg, nil
}

// PickConfig is the configuration that a caller gave as a C or a *C, and def if it gave
// none or a nil *C. Error: ErrInvalidParam for another type.
func PickConfig[C any](given any, def C) (C, error) {
	switch c := given.(type) {
	case nil:
	case C:
		return c, nil
	case *C:
		if c != nil {
			return *c, nil
		}
	default:
		return def, fmt.Errorf("%w: configuration of type %T", uct.ErrInvalidParam, c)
	}
	return def, nil
}
