package layer

import (
	"fmt"
	"slices"
	"strings"
)

// Layout is how the bytes of a message lie in memory. The zero value is Contig.
type Layout uint8

// Layouts.
const (
	Contig  Layout = iota // in one piece
	IOV                   // in a list of pieces
	Generic               // packed and unpacked by callbacks
	layoutEnd
)

var layoutNames = [layoutEnd]string{"contig", "iov", "generic"}

// String returns UCX's name.
func (l Layout) String() string {
	if l < layoutEnd {
		return layoutNames[l]
	}
	return fmt.Sprintf("Layout(%d)", uint8(l))
}

// Layouts are those of the two sides of a message.
type Layouts struct{ Send, Recv Layout }

// String returns what ParseLayouts takes; empty for messages in one piece on both sides.
func (l Layouts) String() string {
	switch {
	case l == Layouts{}:
		return ""
	case l.Recv == Contig:
		return l.Send.String()
	}
	return l.Send.String() + "," + l.Recv.String()
}

// LayoutNames lists the names of layouts.
func LayoutNames() []string { return slices.Clone(layoutNames[:]) }

// ParseLayouts reads the layout of the sender and, behind a comma, that of the receiver,
// which is Contig without.
func ParseLayouts(names string) (l Layouts, err error) {
	send, recv, two := strings.Cut(names, ",")
	if l.Send, err = parseLayout(send); err != nil || !two {
		return l, err
	}
	l.Recv, err = parseLayout(recv)
	return l, err
}

func parseLayout(name string) (Layout, error) {
	if l := slices.Index(layoutNames[:], name); l >= 0 {
		return Layout(l), nil
	}
	return 0, fmt.Errorf("unknown layout %q; there are %s", name, strings.Join(layoutNames[:], ", "))
}

// Laid reports whether the sides of messages of this kind may have layouts.
func (k Kind) Laid() bool { return k == AM || k == AMPing || k.Tagged() }
