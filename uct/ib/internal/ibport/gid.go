package ibport

import (
	"fmt"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// openGID returns the entry of a port's GID table that g selects, and the reason, which is "" if
// the table has only one entry. On InfiniBand, GIDAuto selects entry 0.
func openGID(ctx *verbs.Context, port uint8, g ib.GIDIndex, ethernet bool) (e verbs.GIDEntry, why string, err error) {
	if g == ib.GIDAuto && ethernet {
		list, err := ctx.GIDs(port)
		if err != nil {
			return e, "", err
		}
		e, ok := verbs.ChooseGID(list)
		if !ok {
			return e, "", fmt.Errorf("%w: the port has no GID for RoCE: its network interface has no address, or is down", uct.ErrUnreachable)
		}
		return e, whyGID(e, list), nil
	}
	if g == ib.GIDAuto {
		g = ib.GIDAt(0)
	} else {
		why = fmt.Sprintf("GID_INDEX=%v", g)
	}
	e.Index = uint8(g - 1)
	e.GID, err = ctx.QueryGID(port, int(e.Index))
	return e, why, err
}

// whyGID returns the reason why ChooseGID selected e from list; "" for a list of one.
func whyGID(e verbs.GIDEntry, list []verbs.GIDEntry) string {
	if len(list) == 1 {
		return ""
	}
	what := fmt.Sprintf("the first of %d that is of %v", len(list), e.Type)
	if e.GID.IPv4() {
		return what + " with an IPv4 address"
	}
	return what + ", none of that type has an IPv4 address"
}

// Explainer returns an explainer of the source GID of the port; nil if the device has only one GID.
func (p *Port) Explainer() uct.Explainer {
	if p.gidWhy == "" {
		return nil
	}
	return explainer{p}
}

type explainer struct{ *Port }

// Explain implements uct.Explainer.
func (x explainer) Explain() string {
	return fmt.Sprintf("sends from GID %d, %v; chosen: %s", x.gidIndex, x.Addr.GID, x.gidWhy)
}
