package ucxtcp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/stats"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/base"
	"github.com/gucx/gucx/uct/internal/epoll"
	"github.com/gucx/gucx/uct/internal/sockio"
)

// Iface is an open device: a listening socket, connections and what they share.
type Iface struct {
	md      *MD
	dev     device
	host    host
	cfg     Config
	attr    uct.IfaceAttr
	listen  netip.AddrPort // where peers connect to
	onError func(uct.EP, error)
	onLeave func(*Conn, error)
	onFin   func(*Conn)
	io      sockio.IO
	maxAM   int // bytes of the longest active message

	// Progress.
	tick        uint    // calls of Progress
	pollEpollAt uint    // value of tick at which epoll is asked again
	emptyPolls  uint    // looks in a row that found nothing
	hot         []*Conn // polled without asking epoll
	dirty       []*Conn // to settle
	wasDirty    []*Conn // the second half of dirty's double buffer
	resumed     []*Conn // resumed: with frames that were read before
	broken      []*Conn
	failed      []*EP  // failed without a connection
	written     opList // written zero-copy sends
	freed       bool   // resources have returned since pending requests were dispatched
	source      *Conn  // of the message that a handler has

	am     base.AMTable
	arb    base.Arbiter
	ops    ops
	groups base.FlushGroups
	iov    [maxVector]unix.Iovec

	// Connections.
	poll          epoll.Poller
	listener      listener
	conns         base.List[*Conn] // with a socket
	eps           base.List[*EP]   // not closed
	byPeer        map[peerID]*EP   // iface connections: EPs that are not closed
	unexpected    map[peerID]*Conn // iface connections of peers that no EP names
	closedEPs     map[peerID]*Conn // iface connections whose EP was closed
	nextSN        map[netip.AddrPort]uint64
	byKey         map[uint64]*EP                  // endpoint connections, by own key
	sources       map[netip.AddrPort][]netip.Addr // see AllowSources
	connecting    int                             // EPs with a time limit
	unacked       []*Conn                         // that wait for acknowledgements of the peer's host
	nextHostCheck time.Time                       // for these, at the earliest
	unnamed       unnamedSet
	maxUnnamed    int // most of these
	limits        limits
	refusals      refusals

	undo   cleanup.Stack
	closed bool
}

// peerID names an interface connection: where the peer listens, and which of the connections with it.
type peerID struct {
	addr netip.AddrPort
	sn   uint64
}

// maxVector is the number of iovecs in one system call.
const maxVector = maxIOV + 1

var _ uct.Iface = (*Iface)(nil)

func openIface(md *MD, dev device, cfg Config, p uct.IfaceParams) (_ *Iface, err error) {
	var undo cleanup.Stack
	defer func() {
		if err != nil {
			err = errors.Join(err, undo.Run())
		}
	}()
	if err = md.users.Hold(); err != nil {
		return nil, err
	}
	undo.Add(func() error { md.users.Drop(); return nil })
	it := &Iface{
		md: md, dev: dev, cfg: cfg, onError: p.OnError, onLeave: func(*Conn, error) {}, onFin: func(*Conn) {}, io: cfg.sys,
		maxAM:      int(cfg.MaxFrame),
		ops:        newOps(cfg.TxOps),
		hot:        make([]*Conn, 0, maxHot),
		byPeer:     map[peerID]*EP{},
		unexpected: map[peerID]*Conn{},
		closedEPs:  map[peerID]*Conn{},
		nextSN:     map[netip.AddrPort]uint64{},
		byKey:      map[uint64]*EP{},
		sources:    map[netip.AddrPort][]netip.Addr{},
		unnamed:    unnamedSet{count: map[netip.Prefix]int{}},
		maxUnnamed: cfg.allowedUnnamed(),
	}
	if it.io == nil {
		it.io = sockio.Kernel{}
	}
	if it.host, err = thisHost(); err != nil && dev.loopback {
		return nil, fmt.Errorf("identity of this host: %w", err)
	}
	if err = it.poll.Open(&ticker{it}, &undo); err != nil {
		return nil, err
	}
	undo.Add(it.poll.CloseAll)
	if err = it.startListening(); err != nil {
		return nil, err
	}
	it.fillAttr()
	it.undo = undo.Release()
	return it, nil
}

// Attr implements uct.Iface.
func (it *Iface) Attr() *uct.IfaceAttr { return &it.attr }

// Ext implements uct.Iface.
func (it *Iface) Ext() *uct.IfaceExt {
	return &uct.IfaceExt{Address: it, Wake: it, Push: it, Stats: it, Explain: it}
}

// SetAMHandler implements uct.Iface. Handlers run within Progress; data lies in the receive buffer of the
// connection and cannot be kept.
func (it *Iface) SetAMHandler(id uint8, h uct.AMHandler) error { return it.am.Set(id, h) }

// OnLeave sets what is called when a connection has ended: once for each one that has passed the handshake,
// from Progress or Close. f may do what OnError of an EP may.
func (it *Iface) OnLeave(f func(c *Conn, err error)) { it.onLeave = f }

// OnFin sets what is called when the peer sends no more messages on a connection on which an EP of this side sends: once for
// each connection, from Progress. The peer still receives. f may do what a handler may.
func (it *Iface) OnFin(f func(c *Conn)) { it.onFin = f }

// AllowSources says that one peer listens on all these addresses: it may connect from the IP address of one and claim to listen on
// another. The caller knows this from a trusted source, and leaves out addresses of other hosts than the peer's: see IsLocal. The
// iface stores it until Close.
func (it *Iface) AllowSources(listens []netip.AddrPort) {
	for _, at := range listens {
		for _, from := range listens {
			if ip := from.Addr(); ip != at.Addr() && !slices.Contains(it.sources[at], ip) {
				it.sources[at] = append(it.sources[at], ip)
			}
		}
	}
}

// IsLocal reports that an address is one of this host, so that a process of this host connects from it. The addresses of the
// host are read now.
func IsLocal(ip netip.Addr) bool {
	if ip.IsLoopback() {
		return true
	}
	addrs, _ := net.InterfaceAddrs() // on an error those that are known
	return slices.ContainsFunc(addrs, func(a net.Addr) bool {
		n, ok := a.(*net.IPNet)
		if !ok {
			return false
		}
		local, _ := netip.AddrFromSlice(n.IP)
		return local.Unmap() == ip
	})
}

// mayListen reports whether a peer that connects from an IP address may claim to listen at another address.
func (it *Iface) mayListen(at netip.AddrPort, from netip.Addr) bool {
	return at.Addr() == from || it.cfg.AnySource || slices.Contains(it.sources[at], from)
}

// Source is the connection over which the message has come that a handler has; nil outside of handlers.
func (it *Iface) Source() *Conn { return it.source }

// ListenAddr is where peers connect to.
func (it *Iface) ListenAddr() netip.AddrPort { return it.listen }

// Explain implements uct.Explainer.
func (it *Iface) Explain() string {
	form := ""
	if it.dev.loopback {
		form = ", device address in the " + it.cfg.LoopbackAddr + " form (LOOPBACK_ADDR)"
	}
	return fmt.Sprintf("UCX's tcp protocol, no authentication, listens on %v%s", it.listen, form)
}

// DeviceAddr implements uct.IfaceAddresser: a device address of UCX's tcp transport.
func (it *Iface) DeviceAddr(b []byte) []byte {
	a := deviceAddr{loopback: it.dev.loopback, ip: it.dev.ip, host: it.host}
	return a.append(b, it.cfg.LoopbackAddr == addrWide)
}

// IfaceAddr implements uct.IfaceAddresser: an iface address of UCX's tcp transport.
func (it *Iface) IfaceAddr(b []byte) []byte {
	return append(b, byte(it.listen.Port()>>8), byte(it.listen.Port()))
}

// Reachable implements uct.IfaceAddresser.
func (it *Iface) Reachable(dev, iface []byte) (ok bool, why string) {
	d, err := parseDeviceAddr(dev)
	if err == nil && iface != nil {
		_, err = parseIfaceAddr(iface)
	}
	if err == nil {
		err = it.reach(&d)
	}
	if err != nil {
		return false, err.Error()
	}
	return true, ""
}

// Distances of devices; see Iface.Distance.
const (
	distanceLink  = iota // in the same network
	distanceRoute        // by a route of this device
	distanceOther        // by a route of another device
	distanceNone         // no route is known
)

// Distance ranks the devices of a peer that has several, given the address of one: the lower, the better is the way to that
// device. The address must be Reachable, which says nothing about routes.
func (it *Iface) Distance(device []byte) int {
	d, err := parseDeviceAddr(device)
	switch {
	case err != nil:
		return distanceNone
	case d.loopback || it.dev.network.Contains(d.ip):
		return distanceLink
	}
	switch source, err := sourceTo(d.ip); {
	case err != nil:
		return distanceNone
	case source == it.dev.ip:
		return distanceRoute
	}
	return distanceOther
}

// reach reports with ErrUnreachable why a peer on the device cannot be connected to.
func (it *Iface) reach(d *deviceAddr) error {
	switch {
	case d.loopback != it.dev.loopback:
		return fmt.Errorf("%w: one side uses a loopback device and the other does not", uct.ErrUnreachable)
	case d.ip.Is4() != it.dev.ip.Is4():
		return fmt.Errorf("%w: the peer has an address of another family than %s", uct.ErrUnreachable, it.dev.name)
	case d.loopback && (d.host.id != it.host.id || uint32(d.host.ns) != uint32(it.host.ns)):
		return fmt.Errorf("%w: the peer is on loopback of another host or network namespace", uct.ErrUnreachable)
	case d.ip.IsUnspecified() || d.ip.IsMulticast() || !d.loopback && d.ip.IsLoopback():
		return fmt.Errorf("%w: no host has the address %v", uct.ErrUnreachable, d.ip)
	}
	return nil
}

// AddStats implements uct.Counted.
func (it *Iface) AddStats(n *stats.Node) {
	it.am.AddStats(n)
	n.Add("refused_connections", &it.limits.refused)
	n.Add("evicted_connections", &it.limits.evicted)
	n.Add("stalled_connections", &it.limits.stalled)
	n.Add("malformed_connections", &it.limits.malformed)
}

func (it *Iface) opError(op string, err error) error {
	return &ucs.OpError{TL: Name, Dev: it.dev.name, Op: op, Err: err}
}
