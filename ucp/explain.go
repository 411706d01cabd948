package ucp

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/gucx/gucx/ucp/internal/proto"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

func (w *Worker) explain(addr *wireup.Address) string {
	return w.explainChoice() + wireup.Explain(w.net.addr, addr, w.reacher(addr), w.ctx.cfg.rails())
}

// Explain tells which transports the configuration selects, which lanes would be
// chosen to the worker with that address, and why not the others. ErrInvalidAddr.
func (w *Worker) Explain(addr []byte) (string, error) {
	a, err := wireup.UnpackAddress(addr)
	if err != nil {
		return "", err
	}
	return w.explain(a), nil
}

// Explain tells which transports the configuration selects, which lanes the EP uses
// or would use, and why not the others.
func (e *EP) Explain() string {
	text := e.w.explain(e.peer.Addr)
	if i := e.transport(wireup.RMA); i != nil {
		text += i.explainTransfers()
	}
	if i := e.transport(wireup.AM); i != nil {
		text += e.explainMessages(i)
	}
	text += e.explainRails()
	if e.link != nil {
		for _, why := range e.link.tried {
			text += fmt.Sprintf("given up: %v\n", why)
		}
	}
	return text
}

// explainRails says which lanes share what takes long, from which length on, and the part of
// each.
func (e *EP) explainRails() string {
	if e.transport(wireup.RMA) == nil {
		return ""
	}
	cfg := &e.w.ctx.cfg
	return "shared by several lanes:\n" +
		e.explainShares("put, get", cfg.rmaSharing(), "MAX_RMA_RAILS") +
		e.explainShares("data of announced messages", cfg.rndvSharing(), "MAX_RNDV_RAILS")
}

func (e *EP) explainShares(what string, how sharing, setting string) string {
	names, use := e.plannedRails()
	use.Limit(how.rails)
	switch {
	case how.rails < 2:
		return fmt.Sprintf("  %s: never, %s=%d\n", what, setting, how.rails)
	case use.Len() < 2:
		return fmt.Sprintf("  %s: never, no second device of the same transport is fast enough\n", what)
	}
	text := fmt.Sprintf("  %s of %d bytes or more:", what, use.From(how.chunk))
	for i := range use.Len() {
		text += fmt.Sprintf(" %s %d%%", names[i], use.Share(i))
	}
	return text + "\n"
}

// plannedRails are the lanes that share work, or would, and the names of their transports.
func (e *EP) plannedRails() (names []string, use proto.Rails) {
	if l := e.link; l != nil && l.rails.Len() > 1 {
		for i := range l.rails.Len() {
			names = append(names, l.lanes.All[l.rails.lanes[i]].Iface.String())
		}
		return names, l.rails.Rails
	}
	for _, c := range wireup.Chosen(wireup.RMABW, e.w.net.addr, e.peer.Addr, e.w.reacher(e.peer.Addr), e.w.ctx.cfg.rails()) {
		names = append(names, e.w.ifaces[c.Local].String())
		use.Add(c.Bandwidth)
	}
	return names, use
}

// explainMessages lists how messages of this side go over a transport, and how the data of
// those that are announced comes, if the peer has the same configuration.
func (e *EP) explainMessages(i *iface) (text string) {
	for class := range memoryClasses {
		text += fmt.Sprintf("messages over %s, %v:\n%v", i, class, e.messageTable(i, class))
	}
	return text + fmt.Sprintf("costs by which messages go over %s: %s\n", i, i.costsFrom())
}

// longestShort is the longest data, in bytes, of a message that goes short.
func (i *iface) longestShort() int {
	n := min(i.attr.AM.MaxShort-wire.HeadLen, i.sends().eager)
	if !i.attr.Caps.Has(uct.CapAMWords) {
		n = min(n, shortData)
	}
	return n
}

func (e *EP) messageTable(i *iface, class memoryClass) proto.Table {
	s, preferred := i.sends(), i.w.ctx.cfg.rndvScheme()
	from := e.threshold(class)
	m := &proto.Messages{
		Short: i.longestShort(), Copy: s.eager, Bare: s.bare, MostBare: s.most,
		Piece: s.piece, Announced: from.From, Why: from.Why,
	}
	if class == plainMemory && i.domain.Attr.NeedMemH {
		m.Bare = math.MaxInt
	}
	m.Scheme = func(n int) (proto.Scheme, string) {
		v := e.ways(n, e.reachOf(n, class))
		best := v.Choose(n, preferred)
		why := v.Why(n, preferred, best)
		if class == plainMemory && (best == proto.Get || v.Registers(best)) {
			why += ", registered for it"
		}
		return best, why
	}
	return m.Table()
}

// explainChoice says of each transport that was found whether it is used and why.
func (w *Worker) explainChoice() string {
	var b strings.Builder
	b.WriteString("transports:\n")
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, o := range slices.Concat(w.ctx.found, w.net.offers, w.net.excluded) {
		why := o.why
		switch {
		case o.selected:
			why = "TLS=" + o.selectedBy(w.ctx.cfg.TLS)
		case w.opened(&o.Resource):
			why += ", open for handshakes only"
		}
		fmt.Fprintf(t, "  %s/%s\t%s\n", o.Transport, o.Device, why)
	}
	t.Flush() // a strings.Builder does not fail
	w.explainSystem(&b)
	return b.String()
}

// explainSystem says of the open transports how they work as the system allows, where that differs between systems.
func (w *Worker) explainSystem(b *strings.Builder) {
	head := "by the system:\n"
	for _, i := range w.ifaces {
		if x := i.Ext().Explain; x != nil {
			fmt.Fprintf(b, "%s  %s: %s\n", head, i, x.Explain())
			head = ""
		}
	}
}
