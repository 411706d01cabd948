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

// Iface is an open device: listeners, connections and what they share.
type Iface struct {
	md         *MD
	dev        device
	cfg        Config
	attr       uct.IfaceAttr
	addr       ifaceAddr
	identity   keypair.Pair
	token      string       // that peers must have; empty means none
	hellos     helloNumbers // with a token, of peers
	sentHellos uint64       // HELLOs that this side has sent
	onError    func(uct.EP, error)
	io         sockio.IO
	stripeMin  int // bytes from which on puts are striped; more than any has: never
	maxAM      int // bytes of the longest active message, with header

	// Progress.
	tick        uint    // calls of Progress
	pollEpollAt uint    // value of tick at which epoll is asked again
	emptyPolls  uint    // looks in a row that found nothing
	hot         []*conn // polled without asking epoll
	dirty       []*conn // to settle
	wasDirty    []*conn // the second half of dirty's double buffer
	broken      []*conn
	written     opList // written active messages
	freed       bool   // resources have returned since pending requests were dispatched

	am          base.AMTable
	arb         base.Arbiter
	ops         ops
	groups      base.FlushGroups
	tags        handle.Counted[*EP]
	iov         [maxVector]unix.Iovec
	accessed    [maxVector]*Mem
	stripeConns [maxPerPeer]*conn
	partIOV     [maxIOV]uct.IOV
	scratch     [wordLen]byte
	flushing    []*conn // during Flush

	// Connections.
	poll          epoll.Poller
	table         map[keypair.PublicKey]*conn // by peer; those that are not broken
	known         base.List[*conn]            // the same
	opening       []*conn                     // dialing or waiting
	dialing       int                         // of those, dialing; see countDial
	lastTick      time.Time                   // the last tick, or when the timer began
	dialQueue     []*conn                     // that dial when mayDial, the next one first
	openCount     int
	unacked       []*conn   // that wait for acknowledgements of the peer's host
	nextHostCheck time.Time // for these, at the earliest
	listeners     []*listener
	unproven      unprovenSet
	maxUnproven   int           // most of these
	acceptPaused  bool          // until acceptAt
	acceptPause   time.Duration // the last pause; 0 when accepting works
	acceptAt      time.Time
	tunnels       *tunnel.Group // nil: plain connections
	refused       refusals
	limits        limits

	undo   cleanup.Stack
	closed bool
}

// maxVector is the number of iovecs in one system call: what a few zero-copy
// operations need.
const maxVector = 32

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

// newIface makes an iface that has nothing of the kernel yet. policy is nil for plain connections.
func newIface(md *MD, dev device, cfg Config, p uct.IfaceParams, policy *tlspolicy.Policy, id keypair.Pair) *Iface {
	it := &Iface{
		md: md, dev: dev, cfg: cfg, onError: p.OnError, io: cfg.sys,
		maxAM:    int(cfg.SegSize) + maxAMHeader,
		ops:      newOps(cfg.TxOps),
		tags:     handle.Make[*EP](tagPlaceBits, 32),
		table:    map[keypair.PublicKey]*conn{},
		hot:      make([]*conn, 0, maxHot),
		identity: id, token: p.Token,
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

// listenAll opens a listener on the device's address of each family. One that cannot be used, such
// as one of IPv6 that was just given and is checked for being unique, is done without if there is
// the other. Error: ErrInvalidParam if there is none.
func (it *Iface) listenAll() (err error) {
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

// listen opens a listener on ip, if that is an address.
func (it *Iface) listen(ip netip.Addr) (port uint16, err error) {
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
func (it *Iface) Attr() *uct.IfaceAttr { return &it.attr }

// Ext implements uct.Iface.
func (it *Iface) Ext() *uct.IfaceExt {
	ext := &uct.IfaceExt{Address: it, Wake: it, Push: it, Stats: it}
	if it.cfg.sharesPort() {
		ext.Port = it
	}
	return ext
}

// SetAMHandler implements uct.Iface.
func (it *Iface) SetAMHandler(id uint8, h uct.AMHandler) error { return it.am.Set(id, h) }

// DeviceAddr implements uct.IfaceAddresser.
func (it *Iface) DeviceAddr(b []byte) []byte {
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
func (it *Iface) IfaceAddr(b []byte) []byte { return it.addr.append(b) }

// Reachable implements uct.IfaceAddresser.
func (it *Iface) Reachable(dev, iface []byte) (ok bool, why string) {
	d, err := parseDeviceAddr(dev)
	if err != nil {
		return false, err.Error()
	}
	a := ifaceAddr{port4: 1, port6: 1, seg: it.addr.seg, tls: it.addr.tls, token: it.addr.token} // without an address, any would do
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

// reach finds the path to a peer. Errors are those of pathTo.
func (it *Iface) reach(d *deviceAddr, a *ifaceAddr) (path, error) {
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
// process lacks a descriptor to ask the kernel for the route.
func (it *Iface) NewEP(p uct.EPParams) (uct.EP, error) {
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
	e := &EP{it: it, conn: c, peerName: p.Peer.Name}
	if e.tag = uint32(it.tags.Add(e)); e.tag == 0 {
		return nil, it.opError("new ep", fmt.Errorf("%w: %d endpoints", uct.ErrNoMemory, it.tags.Len()))
	}
	c.eps.Add(e)
	c.markProven()
	if c.state == connIdle {
		c.within = p.Within
	}
	c.postWhenOpen = c.postWhenOpen || p.Dial != uct.DialOnUse
	if p.Dial == uct.DialNow {
		c.dialWithRails()
	}
	return e, nil
}

// connTo finds or makes the connection to the iface of a peer. Only a trusted address becomes its
// path: an address that a peer says of itself may be that of any port of any host.
func (it *Iface) connTo(d *deviceAddr, a *ifaceAddr, mode uct.DialMode) (*conn, error) {
	c := it.table[a.key]
	switch {
	case c != nil && c.canSend():
		if it.cfg.ConnsPerPeer > 1 && mode.Trusted() && !c.path.isKnown() { // for rails
			c.path, _ = it.reach(d, a)
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

func (it *Iface) opError(op string, err error) error {
	return &ucs.OpError{TL: Name, Dev: it.dev.name, Op: op, Err: err}
}
