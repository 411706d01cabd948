package regcache

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// device is a Registrar that records its regions.
type device struct {
	room   int // maximum number of regions; 0: unlimited
	err    error
	open   []*piece
	calls  int
	closed func(r *piece) // may be nil
}

// piece is a region.
type piece struct {
	of      *device
	span    span
	access  uct.Access
	visited bool // a peer accesses it: it cannot be deregistered
	over    bool
}

func (d *device) Register(buf []byte, access uct.Access) (*piece, error) {
	d.calls++
	if d.err != nil {
		return nil, d.err
	}
	if d.room > 0 && len(d.open) >= d.room {
		return nil, &ucs.OpError{TL: "fake", Op: "register memory", Err: ucs.ErrNoMemory}
	}
	r := &piece{of: d, span: spanOf(buf), access: access}
	d.open = append(d.open, r)
	return r, nil
}

func (r *piece) Close() error {
	if r.over {
		panic("deregistered twice")
	}
	if r.visited {
		return &ucs.InUseError{PIDs: []int{1}}
	}
	r.over = true
	r.of.open = slices.DeleteFunc(r.of.open, func(o *piece) bool { return o == r })
	if r.of.closed != nil {
		r.of.closed(r)
	}
	return nil
}

// list shows regions as "3+5" (offset in memory and length), in the order in which they
// were registered.
func list(memory []byte, rs []*piece) string {
	var out []string
	for _, r := range rs {
		out = append(out, fmt.Sprintf("%d+%d", r.span.start-spanOf(memory).start, r.span.len()))
	}
	return strings.Join(out, " ")
}
