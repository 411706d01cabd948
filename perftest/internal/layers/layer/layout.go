package layer

import (
	"fmt"
	"slices"
	"strings"
)

// Layout is the layout of the bytes of a message in memory. The zero value is Contig.
type Layout uint8

// Layouts.
const (
	Contig  Layout = iota // one contiguous buffer
	IOV                   // a list of buffers
	Generic               // packed and unpacked by callbacks
	numLayouts
)

var layoutNames = [numLayouts]string{"contig", "iov", "generic"}

// String returns UCX's name.
func (l Layout) String() string {
	if l < numLayouts {
		return layoutNames[l]
	}
	return fmt.Sprintf("Layout(%d)", uint8(l))
}

// Layouts are the layouts of the two sides of a message.
type Layouts struct{ Send, Recv Layout }

// String returns the input of ParseLayouts; empty if both sides are contiguous.
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

// ParseLayouts parses the layout of the sender and, after a comma, that of the receiver; the
// default of the receiver is Contig.
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

// Laid reports whether messages of this kind can have layouts.
func (k Kind) Laid() bool { return k == AM || k == AMPing || k.Tagged() }
