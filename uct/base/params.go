package base

import (
	"fmt"

	"github.com/gucx/gucx/uct"
)

// OpenParams checks what no OpenIface takes: another transport, a configuration that is
// not a C or a *C. It returns the configuration to use, def if p has none or a nil *C, and
// gives p an OnError that does nothing if it has none. Error: ErrInvalidParam, with the reason.
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
	cfg, rest := SplitConfig(given, def)
	if rest != nil {
		return def, fmt.Errorf("%w: configuration of type %T", uct.ErrInvalidParam, rest)
	}
	return cfg, nil
}

// SplitConfig is PickConfig for a transport over a core that has a configuration of its own:
// what is of another type is rest, for the core to look at; otherwise rest is nil.
func SplitConfig[C any](given any, def C) (cfg C, rest any) {
	switch c := given.(type) {
	case C:
		return c, nil
	case *C:
		if c != nil {
			return *c, nil
		}
		return def, nil
	}
	return def, given
}
