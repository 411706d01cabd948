package base

import (
	"fmt"

	"github.com/gucx/gucx/uct"
)

// OpenParams checks the parameters of OpenIface: the transport, and that the configuration is
// a C or a *C. It returns the configuration to use, def if p has none or a nil *C. If p has no OnError, it sets
// one that has no effect. Error: ErrInvalidParam, with the reason.
func OpenParams[C any](p *uct.IfaceParams, transport string, def C) (C, error) {
	cfg, err := PickConfig(p.Config, def)
	if err != nil {
		return def, err
	}
	if p.Transport != transport {
		return def, fmt.Errorf("%w: unknown transport %q", uct.ErrInvalidParam, p.Transport)
	}
	if p.OnError == nil {
		p.OnError = func(uct.EP, error) {}
	}
	return cfg, nil
}

// PickConfig returns the given configuration, a C or a *C, and def if it is nil
// or a nil *C. Error: ErrInvalidParam for another type.
func PickConfig[C any](given any, def C) (C, error) {
	cfg, rest := SplitConfig(given, def)
	if rest != nil {
		return def, fmt.Errorf("%w: configuration of type %T", uct.ErrInvalidParam, rest)
	}
	return cfg, nil
}

// SplitConfig is PickConfig for a transport over a core with a separate configuration type:
// a configuration of another type is returned as rest, for the core; otherwise rest is nil.
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
