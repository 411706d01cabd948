package ucp

import (
	"fmt"
	"math"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/gucx/gucx/ucp/internal/proto"
	"github.com/gucx/gucx/ucp/internal/selection"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// Explain describes which transports the configuration selects, which lanes an EP to the worker with this address would
// have, and why it would not have others. ErrInvalidAddr.
func (w *Worker) Explain(addr []byte) (string, error) {
	a, err := wireup.UnpackAddress(addr)
	if err != nil {
		return "", err
	}
	i := EPInfo{
		Worker: w.net.addr.UUID(), Peer: a.UUID(), Transports: w.transportInfos(),
		Choices: selection.Choices(w.net.addr, a, w.reacher(a), w.ctx.cfg.rails()),
	}
	return i.String(), nil
}

// Explain returns the text of [EP.Info]: which transports the configuration selects, which lanes the EP uses or would use,
// and why it does not use others.
func (e *EP) Explain() string { return e.Info().String() }

// String describes the EP in several lines of text.
func (i *EPInfo) String() string {
	var b strings.Builder
	if i.Transports != nil {
		b.WriteString(transportsText(i.Transports))
	}
	fmt.Fprintf(&b, "worker %#x to worker %#x\n", i.Worker, i.Peer)
	for _, c := range i.Choices {
		b.WriteString(c.String())
	}
	for k := range i.Lanes {
		b.WriteString(i.Lanes[k].String())
	}
	if i.Idle {
		b.WriteString("idle: lanes closed\n")
	}
	for k := range i.Protocols {
		b.WriteString(i.Protocols[k].String())
	}
	b.WriteString(sharingText(i.Sharing))
	b.WriteString(i.InFlight.String())
	if i.Credit != nil {
		b.WriteString(i.Credit.String())
	}
	for _, why := range i.GivenUp {
		fmt.Fprintf(&b, "failed transport: %s\n", why)
	}
	for k := range i.Retries {
		b.WriteString(i.Retries[k].String())
	}
	if i.Err != "" {
		fmt.Fprintf(&b, "failed: %s\n", i.Err)
	}
	return b.String()
}

// String describes the worker and its EPs in several lines of text.
func (i *WorkerInfo) String() string {
	var b strings.Builder
	b.WriteString(transportsText(i.Transports))
	for _, l := range i.Listeners {
		fmt.Fprintf(&b, "listens on %s\n", l)
	}
	fmt.Fprintf(&b, "tagged messages: receives posted %d, unexpected %d; bytes of peers that have gone %d\n", i.Receives, i.Unexpected, i.Left)
	for k := range i.EPs {
		e := &i.EPs[k]
		fmt.Fprintf(&b, "\nendpoint %#x to worker %#x: %s\n%s", e.ID, e.Peer, strings.Join(e.Conditions, ", "), e)
	}
	return b.String()
}

// transportsText lists transports with the reasons why they are used or not used.
func transportsText(all []TransportInfo) string {
	var b strings.Builder
	b.WriteString("transports:\n")
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, x := range all {
		fmt.Fprintf(t, "  %s/%s\t%s\n", x.Transport, x.Device, x.Why)
	}
	t.Flush()                  // a strings.Builder does not fail
	head := "by the system:\n" // transports separate their statements by semicolons
	for _, x := range all {
		if x.System != "" {
			fmt.Fprintf(&b, "%s  %s %s\n    %s\n", head, x.Transport, x.Device, strings.ReplaceAll(x.System, "; ", "\n    "))
			head = ""
		}
	}
	return b.String()
}

// String describes the lane in one line.
func (i *LaneInfo) String() string {
	what := strings.Join(i.Roles, "|")
	switch {
	case i.Retired:
		what = "out of use"
	case i.Trial:
		what = "tried again"
	case !i.Active:
		what = "not connected yet"
	}
	text := fmt.Sprintf("lane %d: %s %s, %s", i.Number, i.Transport, i.Device, what)
	if i.Pending > 0 {
		text += fmt.Sprintf(", operations that wait for resources: %d", i.Pending)
	}
	if i.System != "" {
		text += "; " + i.System
	}
	return text + "\n"
}

// String describes the retry in one line.
func (i *RetryInfo) String() string {
	if i.Running {
		return fmt.Sprintf("retry: %s %s, now\n", i.Transport, i.Device)
	}
	return fmt.Sprintf("retry: %s %s, in %v\n", i.Transport, i.Device, i.In.Round(time.Millisecond))
}

// String lists the ranges of lengths.
func (i *ProtocolInfo) String() string {
	over := i.Transport + " " + i.Device
	text := i.Op + " over " + over
	if i.Buffer != "" {
		text += ", " + i.Buffer
	}
	text += ":\n"
	for _, r := range i.Ranges {
		most := r.Max
		if most == 0 {
			most = math.MaxInt
		}
		text += proto.Line(r.Min, most, r.Protocol, r.Why)
	}
	if i.RegisteredFrom > 0 {
		text += fmt.Sprintf("  %10d..%-12s is registered for the operation\n", i.RegisteredFrom, "inf")
	}
	if i.Costs != "" {
		text += fmt.Sprintf("costs by which %s go over %s: %s\n", i.Op, over, i.Costs)
	}
	return text
}

// sharingText lists the lanes that share large operations, the length from which they do, and the part of each lane.
func sharingText(all []SharingInfo) string {
	if len(all) == 0 {
		return ""
	}
	text := "shared by several lanes:\n"
	for _, s := range all {
		if s.Never != "" {
			text += fmt.Sprintf("  %s: never, %s\n", s.Op, s.Never)
			continue
		}
		text += fmt.Sprintf("  %s of %d bytes or more:", s.Op, s.From)
		for _, l := range s.Lanes {
			text += fmt.Sprintf(" %s %d%%", l.Lane, l.Percent)
		}
		text += "\n"
	}
	return text
}

// String lists the operations that are not complete. It returns "" if there are none.
func (i *InFlightInfo) String() (text string) {
	for _, c := range []struct {
		what string
		all  []OperationInfo
	}{{"in progress", i.Listed}, {"waiting for a lane, credit or a fence", i.Waiting}, {"waiting for a reply of the peer", i.Awaited}} {
		if len(c.all) == 0 {
			continue
		}
		text += c.what + ":"
		for _, o := range c.all {
			text += fmt.Sprintf(" %s %d", o.Op, o.N)
		}
		text += "\n"
	}
	if i.Direct > 0 {
		text += fmt.Sprintf("posted in one call and not complete: %d\n", i.Direct)
	}
	return text
}

// String describes the credit in one line.
func (i *CreditInfo) String() string {
	return fmt.Sprintf("credit for messages: %d of %d bytes left; granted to the peer: %d bytes, %d held by messages, %d due; used: %d sent, %d received\n",
		i.Left, i.Most, i.Window, i.Held, i.Due, i.Sent, i.Received)
}

// sharingInfos describes which lanes share large operations.
func (e *EP) sharingInfos() []SharingInfo {
	if e.transport(wireup.RMA) == nil {
		return nil
	}
	cfg := &e.w.ctx.cfg
	return []SharingInfo{
		e.sharingInfo("put, get", cfg.rmaSharing(), "MAX_RMA_RAILS"),
		e.sharingInfo("data of rendezvous messages", cfg.rndvSharing(), "MAX_RNDV_RAILS"),
	}
}

func (e *EP) sharingInfo(op string, how sharing, setting string) SharingInfo {
	i := SharingInfo{Op: op}
	names, use := e.plannedRails()
	use.Limit(how.rails)
	switch {
	case how.rails < 2:
		i.Never = fmt.Sprintf("%s=%d", setting, how.rails)
		return i
	case use.Len() < 2:
		i.Never = "no second device of the same transport is fast enough"
		return i
	}
	i.From = use.From(how.chunk)
	for k := range use.Len() {
		i.Lanes = append(i.Lanes, ShareInfo{Lane: names[k], Percent: use.Share(k)})
	}
	return i
}

// plannedRails returns the lanes that share large transfers now, or would share them, and the names of their transports.
func (e *EP) plannedRails() (names []string, use proto.Rails) {
	if l := e.link; l != nil && l.rails.Len() > 1 {
		for i := range l.rails.Len() {
			names = append(names, l.lanes.All[l.rails.lanes[i]].Iface.String())
		}
		return names, l.rails.Rails
	}
	for _, c := range selection.Chosen(wireup.RMABW, e.w.net.addr, e.peer.Addr, e.w.reacher(e.peer.Addr), e.w.ctx.cfg.rails()) {
		names = append(names, e.w.ifaces[c.Local].String())
		use.Add(c.Bandwidth)
	}
	return names, use
}

// protocolInfos describes the protocols of puts, gets and messages. For the data of rendezvous messages it assumes that the
// peer has the same configuration.
func (e *EP) protocolInfos() (all []ProtocolInfo) {
	if i := e.transport(wireup.RMA); i != nil {
		t := i.transfers()
		all = i.transferInfos(all, "put", &t.put, uct.PutShort)
		all = i.transferInfos(all, "get", &t.get, uct.GetShort)
	}
	i := e.transport(wireup.AM)
	if i == nil {
		return all
	}
	for class := range memoryClasses {
		tag, active := e.rndvThreshold(tagRndv, class, false), e.rndvThreshold(activeRndv, class, false)
		all = append(all, i.protocolInfo("messages", class.String(), e.messageTable(i, class, tag)))
		if active.From != tag.From {
			all = append(all, i.protocolInfo("active messages", class.String(), e.messageTable(i, class, active)))
		}
	}
	all[len(all)-1].Costs = i.costsFrom()
	return all
}

// transferInfos appends the protocols of a put or get over the transport, for each class of local buffers.
func (i *iface) transferInfos(all []ProtocolInfo, op string, tables *[2]proto.Table, first uct.Variant) []ProtocolInfo {
	if !i.transfers().domain.Attr.NeedMemH {
		return append(all, i.protocolInfo(op, "", tables[registered]))
	}
	plain := i.protocolInfo(op, "buffer not registered", tables[unregistered])
	plain.RegisteredFrom = i.minRegistered(tables, first)
	return append(all, plain, i.protocolInfo(op, "buffer in OpParams.Mem", tables[registered]))
}

func (i *iface) protocolInfo(op, buffer string, t proto.Table) ProtocolInfo {
	r := &i.attr.Resource
	return ProtocolInfo{Op: op, Transport: r.Transport, Device: r.Device, Buffer: buffer, Ranges: rangeInfos(t)}
}

// longestShort returns the maximum length of the data of a message that one short call sends, in bytes.
func (i *iface) longestShort() int {
	n := min(i.attr.AM.MaxShort-wire.HeadLen, i.sends().eager)
	if !i.attr.Caps.Has(uct.CapAMWords) {
		n = min(n, shortData)
	}
	return n
}

// messageTable returns the protocols of messages of a class of buffers that use rendezvous from a length on.
func (e *EP) messageTable(i *iface, class memoryClass, from proto.Threshold) proto.Table {
	s, preferred := i.sends(), i.w.ctx.cfg.rndvScheme()
	m := &proto.Messages{
		Short: i.longestShort(), Copy: s.eager, MinZcopy: s.minZcopy, MaxZcopy: s.maxZcopy,
		Piece: s.piece, Announced: from.From, Why: from.Why,
	}
	if class == plainMemory && i.domain.Attr.NeedMemH {
		m.MinZcopy = math.MaxInt
	}
	m.Scheme = func(n int) (proto.Scheme, string) {
		v := e.rndvChoices(n, e.reachOf(n, class))
		best := v.Choose(n, preferred)
		why := v.Why(n, preferred, best)
		if class == plainMemory && (best == proto.Get || v.Registers(best)) {
			why += ", registered for it"
		}
		return best, why
	}
	return m.Table()
}
