package tcp

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/internal/handle"
	"github.com/gucx/gucx/internal/keypair"
	"github.com/gucx/gucx/internal/tlspolicy"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/base"
	"github.com/gucx/gucx/uct/internal/epoll"
	"github.com/gucx/gucx/uct/internal/sockio"
	"github.com/gucx/gucx/uct/tcp/internal/tunnel"
)

// iface is an open device: its listeners and connections, and the state that they share.
type iface struct {
	md          *domain
	dev         device
	cfg         Config
	attr        uct.IfaceAttr
	addr        ifaceAddr
	identity    keypair.Pair
	token       string        // secret that peers must have; empty if none is required
	idleTimeout time.Duration // IfaceParams.IdleTimeout
	hellos      helloNumbers  // numbers of the HELLOs of peers; used with a token
	sentHellos  uint64        // number of HELLOs that this side has sent
	onError     func(uct.EP, error)
	io          sockio.IO
	dialSocket  func(p path, cfg *Config) (fd int, err error) // starts to connect
	stripeMin   int                                           // minimum length of a striped put in bytes; above maxRMA: no put is striped
	maxAM       int                                           // maximum length of an active message with its header, in bytes

	// Progress.
	tick        uint    // number of calls of Progress
	pollEpollAt uint    // value of tick at which Progress polls epoll again
	emptyPolls  uint    // number of consecutive polls of epoll without an event
	hot         []*conn // read by each Progress, without an epoll event
	dirty       []*conn // connections for which Progress calls progressTx
	wasDirty    []*conn // the other half of a double buffer: the list that writeDirty works on
	broken      []*conn
	written     opList // zcopy active messages that are written, before their completion
	freed       bool   // resources were released since pending requests were dispatched

	am          base.AMTable
	arb         base.Arbiter
	ops         ops
	groups      base.FlushGroups
	tags        handle.Counted[*endpoint]
	iov         [maxVector]unix.Iovec
	accessed    [maxVector]*memory
	stripeConns [maxPerPeer]*conn
	partIOV     [maxIOV]uct.IOV
	scratch     [wordLen]byte
	flushing    []*conn // scratch of Flush

	// Connections.
	poll          epoll.Poller
	table         map[keypair.PublicKey]*conn // by peer, without broken ones and rails
	known         base.List[*conn]            // the same connections, and rails
	opening       []*conn                     // connections in connDialing or connWaiting, with a deadline
	dialing       int                         // number of connections that are being dialed; see countDial
	lastTick      time.Time                   // time of the last tick, or when the timer was started
	dialQueue     []*conn                     // connections to dial when canDial is true, in order
	openCount     int                         // number of connections in connOpen
	unacked       []*conn                     // connections with bytes that the peer's host has not acknowledged
	nextHostCheck time.Time                   // earliest time of the next check of these hosts
	listeners     []*listener
	unproven      unprovenSet
	maxUnproven   int           // maximum number of unproven connections
	unused        []*conn       // connections to close if no EP uses them
	unusedTick    time.Duration // interval of their checks; 0 if there are none
	acceptPaused  bool          // the accept queues are ignored until acceptAt
	acceptPause   time.Duration // the last pause; 0 after a successful accept
	acceptAt      time.Time
	tunnels       *tunnel.Group // nil without TLS
	refused       refusals
	limits        limits
	traffic       base.Traffic

	undo   cleanup.Stack
	closed bool
}

// maxVector is the number of iovecs in one system call: enough for a few zcopy operations.
const maxVector = 32

var _ uct.Iface = (*iface)(nil)

func openIface(md *domain, dev device, cfg Config, p uct.IfaceParams) (_ *iface, err error) {
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
	policy, err := cfg.policy()
	if err != nil {
		return nil, err
	}
	id, err := keypair.New()
	if err != nil {
		return nil, err
	}
	cfg.chooseCongestion(&dev)
	it := newIface(md, dev, cfg, p, policy, id)
	if err = it.poll.Open(&ticker{it}, &undo); err != nil {
		return nil, err
	}
	undo.Add(it.poll.CloseAll)
	if cfg.SharePort == config.Yes && !dev.loopback {
		it.addr.listener = it.listenerAt(p.Listener)
	}
	if !it.addr.listener.IsValid() {
		if err = it.listenAll(); err != nil {
			return nil, err
		}
	}
	it.fillAttr()
	it.undo = undo.Release()
	return it, nil
}

// newIface makes an iface without kernel resources. policy is nil without TLS.
func newIface(md *domain, dev device, cfg Config, p uct.IfaceParams, policy *tlspolicy.Policy, id keypair.Pair) *iface {
	it := &iface{
		md: md, dev: dev, cfg: cfg, onError: p.OnError, io: cfg.sys,
		maxAM:    int(cfg.SegSize) + maxAMHeader,
		ops:      newOps(cfg.TxOps),
		tags:     handle.Make[*endpoint](tagPlaceBits, 32),
		table:    map[keypair.PublicKey]*conn{},
		hot:      make([]*conn, 0, maxHot),
		identity: id, token: p.Token, idleTimeout: p.IdleTimeout, dialSocket: dial,
		addr:        ifaceAddr{key: id.Public, seg: uint32(cfg.SegSize), tls: policy != nil, token: p.Token != ""},
		stripeMin:   maxRMA + 1,
		unproven:    unprovenSet{count: map[source]int{}},
		maxUnproven: cfg.allowedHandshakes(),
	}
	if policy != nil {
		it.tunnels = it.newTunnels(policy)
	}
	if it.io == nil {
		it.io = sockio.Kernel{}
	}
	if cfg.ConnsPerPeer > 1 {
		it.stripeMin = max(int(cfg.StripeThresh), int(cfg.SendvThresh)+1)
	}
	return it
}

// listenAll opens a listener on the device's address of each family. It skips an address that is
// not available (such as an IPv6 address during duplicate address detection) if it can listen on
// the other one. Error: ErrInvalidParam if the device has no address.
func (it *iface) listenAll() (err error) {
	var unready error
	for _, l := range []struct {
		ip   *netip.Addr
		port *uint16
	}{{&it.dev.v4, &it.addr.port4}, {&it.dev.v6, &it.addr.port6}} {
		*l.port, err = it.listen(*l.ip)
		switch {
		case errors.Is(err, unix.EADDRNOTAVAIL):
			unready, *l.ip = err, netip.Addr{}
		case err != nil:
			return err
		}
	}
	if len(it.listeners) == 0 {
		return cmp.Or(unready, fmt.Errorf("%w: device %s has no address to listen on", uct.ErrInvalidParam, it.dev.name))
	}
	return nil
}

// listen opens a listener on ip, if ip is valid.
func (it *iface) listen(ip netip.Addr) (port uint16, err error) {
	if !ip.IsValid() {
		return 0, nil
	}
	fd, port, err := listen(ip, &it.cfg)
	if err != nil {
		return 0, err
	}
	l := &listener{it: it, fd: fd}
	if l.slot, err = it.poll.Watch(fd, unix.EPOLLIN, l); err != nil {
		return 0, errors.Join(err, unix.Close(fd))
	}
	it.listeners = append(it.listeners, l)
	return port, nil
}

// Attr implements uct.Iface.
func (it *iface) Attr() *uct.IfaceAttr { return &it.attr }

// Ext implements uct.Iface.
func (it *iface) Ext() *uct.IfaceExt {
	ext := &uct.IfaceExt{Address: it, Wake: it, Push: it, Armed: it, Stats: it, Dials: true}
	if it.cfg.sharesPort() {
		ext.Port = it
	}
	return ext
}

// SetAMHandler implements uct.Iface.
func (it *iface) SetAMHandler(id uint8, h uct.AMHandler) error { return it.am.Set(id, h) }

// DeviceAddr implements uct.IfaceAddresser.
func (it *iface) DeviceAddr(b []byte) []byte {
	a := deviceAddr{loopback: it.dev.loopback, host: hostID()}
	if it.addr.port4 != 0 || it.addr.listener.Addr().Is4() {
		a.v4 = it.dev.v4
	}
	if it.addr.port6 != 0 || it.addr.listener.Addr().Is6() {
		a.v6 = it.dev.v6
	}
	return a.append(b)
}

// IfaceAddr implements uct.IfaceAddresser.
func (it *iface) IfaceAddr(b []byte) []byte { return it.addr.append(b) }

// Reachable implements uct.IfaceAddresser.
func (it *iface) Reachable(dev, iface []byte) (ok bool, why string) {
	d, err := parseDeviceAddr(dev)
	if err != nil {
		return false, err.Error()
	}
	a := ifaceAddr{port4: 1, port6: 1, seg: it.addr.seg, tls: it.addr.tls, token: it.addr.token} // without an iface address, check only the device
	if iface != nil {
		if a, err = parseIfaceAddr(iface); err != nil {
			return false, err.Error()
		}
	}
	if _, err = it.reach(&d, &a); err != nil {
		return false, err.Error()
	}
	return true, ""
}

// reach returns the path to a peer. Its errors are those of pathTo.
func (it *iface) reach(d *deviceAddr, a *ifaceAddr) (path, error) {
	switch {
	case a.seg != it.addr.seg:
		return path{}, unreachable(fmt.Sprintf("SEG_SIZE of the peer is %d, here %d", a.seg, it.addr.seg))
	case a.tls && !it.addr.tls:
		return path{}, unreachable("the peer demands TLS, which is off here")
	case !a.tls && it.addr.tls:
		return path{}, unreachable("TLS is demanded here, and off at the peer")
	case a.token && !it.addr.token:
		return path{}, unreachable("the peer demands a token (AUTH_TOKEN), and there is none here")
	case !a.token && it.addr.token:
		return path{}, unreachable("a token (AUTH_TOKEN) is demanded here, and the peer has none")
	}
	own, err := it.dev.pathTo(d, a)
	if !it.cfg.sharesPort() || !a.listener.IsValid() {
		return own, err
	}
	p, lerr := it.dev.pathToListener(d, a)
	switch {
	case lerr == nil && err == nil:
		p.other = &own
		return p, nil
	case lerr == nil:
		return p, nil
	case err == nil:
		return own, nil
	}
	return path{}, lerr
}

// NewEP implements uct.Iface. Nothing is sent before the first operation. ErrNoMemory if the
// process has no descriptor left for the route lookup.
func (it *iface) NewEP(p uct.EPParams) (uct.EP, error) {
	d, err := parseDeviceAddr(p.DeviceAddr)
	if err != nil {
		return nil, it.opError("new ep", err)
	}
	a, err := parseIfaceAddr(p.IfaceAddr)
	if err != nil {
		return nil, it.opError("new ep", err)
	}
	if it.closed {
		return nil, it.opError("new ep", uct.ErrClosed)
	}
	c, err := it.connTo(&d, &a, p.Dial)
	if err != nil {
		return nil, it.opError("new ep", err)
	}
	if !c.addr.IsValid() {
		c.addr = a.at(&d)
	}
	if err = c.checkPeer(p.Peer.Name); err != nil {
		return nil, it.opError("new ep", err)
	}
	e := &endpoint{it: it, conn: c, peerName: p.Peer.Name}
	if e.tag = uint32(it.tags.Add(e)); e.tag == 0 {
		return nil, it.opError("new ep", fmt.Errorf("%w: %d endpoints", uct.ErrNoMemory, it.tags.Len()))
	}
	c.eps.Add(e)
	c.markProven()
	if c.closing != closeNone {
		e.postAfter = afterDecision
	}
	if c.state == connIdle || c.closing != closeNone {
		c.within = p.Within
	}
	c.postWhenOpen = c.postWhenOpen || p.Dial != uct.DialOnUse
	if p.Dial == uct.DialNow {
		c.dialWithRails()
	}
	return e, nil
}

// connTo returns the connection to the iface of a peer, and makes it if necessary. Only a trusted
// address becomes its path: an address that the peer claims could be any port of any host.
func (it *iface) connTo(d *deviceAddr, a *ifaceAddr, mode uct.DialMode) (*conn, error) {
	c := it.table[a.key]
	switch {
	case c != nil && c.canSend():
		if (it.cfg.ConnsPerPeer > 1 || c.closing != closeNone) && mode.Trusted() && !c.path.isKnown() { // for rails, or for the next connection
			p, err := it.reach(d, a)
			if err != nil && c.closing != closeNone { // the EP may need the next connection
				return nil, err
			}
			c.path = p
		}
		return c, nil
	case mode == uct.DialedByPeer:
		return nil, fmt.Errorf("%w: the peer has not connected, and its address is only its own claim", uct.ErrUnreachable)
	}
	route, err := it.reach(d, a)
	if err != nil {
		return nil, err
	}
	if c == nil {
		c = &conn{it: it, key: a.key, link: link{fd: -1}}
		it.addConn(c)
	}
	if mode.Trusted() {
		c.setPath(route)
	}
	return c, nil
}

func (it *iface) opError(op string, err error) error {
	return &ucs.OpError{TL: Name, Dev: it.dev.name, Op: op, Err: err}
}
