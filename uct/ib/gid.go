package ib

import (
	"fmt"
	"strconv"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// GIDIndex is an index in the GID table of a port, plus 1, or GIDAuto. Use GIDAt to make one.
type GIDIndex uint16

// GIDAuto, the zero value, selects an entry as UCX does.
const GIDAuto GIDIndex = 0

// GIDAt returns the GIDIndex of the entry at index.
func GIDAt(index uint8) GIDIndex { return GIDIndex(index) + 1 }

// String returns "auto" or the index.
func (g GIDIndex) String() string {
	if g == GIDAuto {
		return "auto"
	}
	return strconv.Itoa(int(g) - 1)
}

// MarshalText implements config.Value.
func (g GIDIndex) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// UnmarshalText implements config.Value. ErrInvalidParam.
func (g *GIDIndex) UnmarshalText(text []byte) error {
	if string(text) == "auto" {
		*g = GIDAuto
		return nil
	}
	n, err := strconv.ParseUint(string(text), 10, 8)
	if err != nil {
		return fmt.Errorf("%w: no GID index", uct.ErrInvalidParam)
	}
	*g = GIDAt(uint8(n))
	return nil
}

// Grammar implements config.Value.
func (GIDIndex) Grammar() string { return "auto or 0 to 255" }

// openGID returns the entry of a port's GID table that g selects, and the reason, which is "" if
// the table has only one entry. On InfiniBand, GIDAuto selects entry 0.
func (md *MD) openGID(port uint8, g GIDIndex, ethernet bool) (e verbs.GIDEntry, why string, err error) {
	if g == GIDAuto && ethernet {
		list, err := md.ctx.GIDs(port)
		if err != nil {
			return e, "", err
		}
		e, ok := verbs.ChooseGID(list)
		if !ok {
			return e, "", fmt.Errorf("%w: the port has no GID for RoCE: its network interface has no address, or is down", uct.ErrUnreachable)
		}
		return e, whyGID(e, list), nil
	}
	if g == GIDAuto {
		g = GIDAt(0)
	} else {
		why = fmt.Sprintf("GID_INDEX=%v", g)
	}
	e.Index = uint8(g - 1)
	e.GID, err = md.ctx.QueryGID(port, int(e.Index))
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
