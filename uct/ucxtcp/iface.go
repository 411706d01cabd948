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

// Iface is an open device: a listening socket, connections, and the state that they share.
type Iface struct {
	md      *domain
	dev     device
	host    host
	cfg     Config
	attr    uct.IfaceAttr
	listen  netip.AddrPort // address at which the iface listens
	onError func(uct.EP, error)
	onLeave func(*Conn, error)
	onFin   func(*Conn)
	io      sockio.IO
	maxAM   int // maximum length of an active message in bytes

	// Progress.
	tick        uint    // number of calls of Progress
	pollEpollAt uint    // value of tick at which Progress polls epoll again
	emptyPolls  uint    // number of consecutive polls of epoll without an event
	hot         []*Conn // read by each Progress, without an epoll event
	dirty       []*Conn // connections for which Progress calls progressTx
	wasDirty    []*Conn // the other half of a double buffer: the list that writeDirty works on
	resumed     []*Conn // connections that were resumed, with frames that were read before
	broken      []*Conn
	failed      []*EP  // EPs that have failed without a connection
	written     opList // zcopy sends that are written, before their completion
	freed       bool   // resources were released since pending requests were dispatched
	source      *Conn  // connection of the message of the running handler

	am     base.AMTable
	arb    base.Arbiter
	ops    ops
	groups base.FlushGroups
	iov    [maxVector]unix.Iovec

	// Connections.
	poll          epoll.Poller
	listener      listener
	conns         base.List[*Conn] // connections with a socket
	eps           base.List[*EP]   // EPs that are not closed
	byPeer        map[peerID]*EP   // interface connections: EPs that are not closed
	unexpected    map[peerID]*Conn // interface connections of peers that no EP names
	closedEPs     map[peerID]*Conn // interface connections whose EP was closed
	nextSN        map[netip.AddrPort]uint64
	byKey         map[uint64]*EP                  // endpoint connections, by the key of this side
	sources       map[netip.AddrPort][]netip.Addr // see AllowSources
	connecting    int                             // number of EPs with a deadline
	unacked       []*Conn                         // connections with bytes that the peer's host has not acknowledged
	nextHostCheck time.Time                       // earliest time of the next check of these hosts
	unnamed       unnamedSet
	maxUnnamed    int // maximum number of unnamed connections
	limits        limits
	refusals      refusals

	undo   cleanup.Stack
	closed bool
}

// peerID identifies an interface connection by the address at which the peer listens and its
// sequence number.
type peerID struct {
	addr netip.AddrPort
	sn   uint64
}

// maxVector is the number of iovecs in one system call.
const maxVector = maxIOV + 1

var _ uct.Iface = (*Iface)(nil)

func openIface(md *domain, dev device, cfg Config, p uct.IfaceParams) (_ *Iface, err error) {
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
	return &uct.IfaceExt{Address: it, Wake: it, Push: it, Armed: it, Stats: it, Explain: it, Dials: true}
}

// SetAMHandler implements uct.Iface. Progress calls the handlers. They cannot retain the data,
// which is in the receive buffer of the connection.
func (it *Iface) SetAMHandler(id uint8, h uct.AMHandler) error { return it.am.Set(id, h) }

// OnLeave sets the function that is called when a connection has ended. Progress or Close calls it
// once for each connection whose handshake was complete. f may do what OnError of an EP may do.
func (it *Iface) OnLeave(f func(c *Conn, err error)) { it.onLeave = f }

// OnFin sets the function that is called when the peer sends no more messages on a connection of an
// EP of this side. Progress calls it once for each connection. The peer still receives. f may do
// what a handler may do.
func (it *Iface) OnFin(f func(c *Conn)) { it.onFin = f }

// AllowSources declares that one peer listens at all these addresses: it may connect from the IP
// address of one and claim to listen at another. The caller must know this from a trusted source,
// and must not include addresses of other hosts; see IsLocal. The iface stores the addresses until
// Close.
func (it *Iface) AllowSources(listens []netip.AddrPort) {
	for _, at := range listens {
		for _, from := range listens {
			if ip := from.Addr(); ip != at.Addr() && !slices.Contains(it.sources[at], ip) {
				it.sources[at] = append(it.sources[at], ip)
			}
		}
	}
}

// IsLocal reports whether ip is an address of this host, so that a process of this host may connect
// from it. It reads the addresses of the host at each call.
func IsLocal(ip netip.Addr) bool {
	if ip.IsLoopback() {
		return true
	}
	addrs, _ := net.InterfaceAddrs() // after an error, use the addresses that were read
	return slices.ContainsFunc(addrs, func(a net.Addr) bool {
		n, ok := a.(*net.IPNet)
		if !ok {
			return false
		}
		local, _ := netip.AddrFromSlice(n.IP)
		return local.Unmap() == ip
	})
}

// mayListen reports whether a peer that connects from an IP address may claim to listen at another
// address.
func (it *Iface) mayListen(at netip.AddrPort, from netip.Addr) bool {
	return at.Addr() == from || it.cfg.AnySource || slices.Contains(it.sources[at], from)
}

// Source returns the connection of the message that the running handler handles; nil outside of
// handlers.
func (it *Iface) Source() *Conn { return it.source }

// ListenAddr returns the address at which the iface listens.
func (it *Iface) ListenAddr() netip.AddrPort { return it.listen }

// Explain implements uct.Explainer.
func (it *Iface) Explain() string {
	form := ""
	if it.dev.loopback {
		form = ", device address in the " + it.cfg.LoopbackAddr + " form (LOOPBACK_ADDR)"
	}
	return fmt.Sprintf("UCX's tcp protocol, no authentication, listens on %v%s", it.listen, form)
}

// DeviceAddr implements uct.IfaceAddresser. It returns a device address of UCX's tcp transport.
func (it *Iface) DeviceAddr(b []byte) []byte {
	a := deviceAddr{loopback: it.dev.loopback, ip: it.dev.ip, host: it.host}
	return a.append(b, it.cfg.LoopbackAddr == addrWide)
}

// IfaceAddr implements uct.IfaceAddresser. It returns an iface address of UCX's tcp transport.
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

// Distance ranks the devices of a peer with several devices, by the address of one of them. A
// smaller value means a better path. The address must be Reachable, which does not check routes.
func (it *Iface) Distance(device []byte) int {
	d, err := parseDeviceAddr(device)
	switch {
	case err != nil:
		return distanceNone
	case d.loopback || it.dev.network.Contains(d.ip):
		return distanceLink
	}
	switch source, err := sockio.Source(d.ip); {
	case err != nil:
		return distanceNone
	case source == it.dev.ip:
		return distanceRoute
	}
	return distanceOther
}

// reach returns ErrUnreachable with the reason if this side cannot connect to a peer on the device.
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
