// Package usock is an example of a transport: active messages, put and get between
// processes of a host, over unix sockets. It is written to be short; for programs
// there is package sm.
//
// An iface listens on an abstract socket. An endpoint is a connection to it, of type
// SOCK_SEQPACKET, which preserves the boundaries of messages: one system call sends an
// operation, another one its reply. The target executes the operations in the order of arrival, when
// its iface makes progress. An endpoint has at most window operations in flight, which always
// fit into the buffers of the socket, so that no message waits to be sent.
//
//	domain    memory by key
//	iface     epoll descriptor, listening socket, the connections by descriptor
//	endpoint  a connection, and the operations in flight
//	inbound   the target's end of a connection
package usock

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/base"
)

// Name of the component, of its memory domain, transport and device.
const Name = "usock"

// New makes the component.
func New() uct.Component { return component{} }

type component struct{}

func (component) Name() string                   { return Name }
func (component) MDs() ([]uct.MDResource, error) { return []uct.MDResource{{Name: Name}}, nil }

// OpenMD opens the only domain. If the identity of the host cannot be read, hosts are not
// distinguished: connecting to another host fails then.
func (component) OpenMD(name string) (uct.MD, error) {
	if name != Name {
		return nil, fail("open domain "+name, uct.ErrInvalidParam)
	}
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	network, _ := os.Readlink("/proc/self/ns/net")
	return &domain{host: uint64(crc32.ChecksumIEEE(append(boot, network...)))}, nil
}

// fail returns the error of an operation of the control path.
func fail(op string, err error) error { return &ucs.OpError{TL: Name, Op: op, Err: err} }

// addrLen is the length of each address in bytes: they are numbers.
const addrLen = 8

func appendAddr(b []byte, addr uint64) []byte { return binary.LittleEndian.AppendUint64(b, addr) }

// parseAddr reads an address of appendAddr. It may come from an untrusted peer.
func parseAddr(b []byte) (addr uint64, ok bool) {
	if len(b) != addrLen {
		return 0, false
	}
	return binary.LittleEndian.Uint64(b), true
}

// domain implements uct.MD.
type domain struct {
	base.Memory
	host uint64 // and network namespace, to which abstract names belong
}

var (
	domainAttr = uct.MDAttr{Component: Name, Name: Name, RKeyLen: base.KeyLen, MaxReg: 1 << 40, RegCost: uct.Cost{Send: time.Microsecond}}
	resource   = uct.Resource{Transport: Name, Device: Name, Kind: uct.DeviceShm}
)

func (d *domain) Attr() *uct.MDAttr                  { return &domainAttr }
func (d *domain) Ext() *uct.MDExt                    { return d.MDExt() }
func (d *domain) Resources() ([]uct.Resource, error) { return []uct.Resource{resource}, nil }
func (d *domain) Close() error                       { return d.Users.Close(func() error { return nil }) }

// iface implements uct.Iface, uct.IfaceAddresser and uct.Waker.
type iface struct {
	d        *domain
	onError  func(uct.EP, error)
	name     uint64 // of the listening socket; 0: closed
	listener int
	epoll    int
	events   [window]unix.EpollEvent
	conns    []connUser // by descriptor; nil: no connection
	in       message    // what was received last
	handlers base.AMTable
	arbiter  base.Arbiter
	flushes  base.FlushGroups
	eps      base.List[*endpoint]
}

// connUser is one side of a connection.
type connUser interface {
	handle(m message) // m is valid until handle returns
	handleClose()     // the peer has closed the connection
}

func (d *domain) OpenIface(p uct.IfaceParams) (uct.Iface, error) {
	// There is nothing to configure.
	if _, err := base.OpenParams(&p, Name, struct{}{}); err != nil || p.Device != Name {
		return nil, fail("open iface", cmp.Or(err, uct.ErrInvalidParam))
	}
	fd, err := newSocket()
	if err != nil {
		return nil, fail("open iface", err)
	}
	if err := d.Hold(); err != nil {
		return nil, fail("open iface", errors.Join(err, unix.Close(fd)))
	}
	i := &iface{d: d, onError: p.OnError, name: rand.Uint64(), listener: fd, in: make(message, headerLen+maxData)}
	i.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err = cmp.Or(err, unix.Bind(fd, abstract(i.name)), unix.Listen(fd, unix.SOMAXCONN), i.poll(fd, nil)); err != nil {
		return nil, fail("open iface", errors.Join(err, i.Close()))
	}
	return i, nil
}

func newSocket() (int, error) {
	return unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
}

// abstract returns the address of an iface; the @ is a zero byte.
func abstract(name uint64) *unix.SockaddrUnix {
	return &unix.SockaddrUnix{Name: fmt.Sprintf("@gucx-usock-%016x", name)}
}

// poll makes Progress poll fd until it is closed.
func (i *iface) poll(fd int, e connUser) error {
	i.conns = append(i.conns, make([]connUser, max(0, fd+1-len(i.conns)))...)
	i.conns[fd] = e
	return unix.EpollCtl(i.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
}

// accept accepts the connections of processes of the same user.
func (i *iface) accept() {
	for {
		fd, _, err := unix.Accept4(i.listener, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		if err != nil {
			return
		}
		in := &inbound{i.newConn(fd)}
		peer, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		if i.poll(fd, in) != nil || err != nil || int(peer.Uid) != unix.Geteuid() {
			in.close()
		}
	}
}

// cost is one system call on each side, and the kernel between them.
var cost = uct.Cost{Send: time.Microsecond, Recv: time.Microsecond, Latency: 3 * time.Microsecond, Bandwidth: 2e9}

var ifaceAttr = uct.IfaceAttr{
	Resource: resource, Caps: uct.CapAMShort | uct.CapAMBcopy | uct.CapPutBcopy | uct.CapGetBcopy | uct.CapPending |
		uct.CapConnectIface | uct.CapErrPeer | uct.CapErrRemoteMem | uct.CapEventFD,
	AM:  uct.OpLimits{MaxShort: maxData, MaxBcopy: maxData},
	Put: uct.OpLimits{MaxBcopy: maxData}, Get: uct.OpLimits{MaxBcopy: maxData},
	DeviceAddrLen: addrLen, IfaceAddrLen: addrLen,
	Costs: uct.Costs{uct.AMShort: cost, uct.AMBcopy: cost, uct.PutBcopy: cost, uct.GetBcopy: cost},
}

func (i *iface) Attr() *uct.IfaceAttr                         { return &ifaceAttr }
func (i *iface) Ext() *uct.IfaceExt                           { return &uct.IfaceExt{Address: i, Wake: i} }
func (i *iface) SetAMHandler(id uint8, h uct.AMHandler) error { return i.handlers.Set(id, h) }
func (i *iface) DeviceAddr(b []byte) []byte                   { return appendAddr(b, i.d.host) }
func (i *iface) IfaceAddr(b []byte) []byte                    { return appendAddr(b, i.name) }

func (i *iface) Reachable(deviceAddr, ifaceAddr []byte) (ok bool, why string) {
	host, ok := parseAddr(deviceAddr)
	_, ok2 := parseAddr(ifaceAddr)
	return ok && host == i.d.host && (ok2 || ifaceAddr == nil), "not an address on this host and network"
}

// Progress handles one message of each connection that has one.
func (i *iface) Progress() int {
	n, _ := unix.EpollWait(i.epoll, i.events[:], 0)
	for k := range n {
		fd := int(i.events[k].Fd)
		if fd == i.listener {
			i.accept()
		} else if e := i.conns[fd]; e != nil { // a callback may have closed it
			i.receive(fd, e)
		}
	}
	if n > 0 {
		i.arbiter.Dispatch(nil)
	}
	return max(n, 0)
}

func (i *iface) receive(fd int, e connUser) {
	switch n, err := unix.Read(fd, i.in); {
	case n >= headerLen:
		e.handle(i.in[:n])
	case err == unix.EAGAIN, err == unix.ECONNRESET: // ECONNRESET is returned once, before messages that can still be read
	default:
		e.handleClose()
	}
}

func (i *iface) EventFD() int { return i.epoll } // readable while one of its sockets is

func (i *iface) Arm(uct.Events) error {
	if n, _ := unix.EpollWait(i.epoll, i.events[:], 0); n > 0 {
		return uct.ErrBusy
	}
	return nil
}

func (i *iface) Fence() error { return nil } // each connection preserves the order

func (i *iface) Flush(c *uct.Completion) (pending bool, err error) {
	busy := 0
	for _, e := range i.eps.All() {
		if e.done < e.sent {
			busy++
			err = cmp.Or(err, e.check(kindFlush, 0, 0))
		}
	}
	if busy == 0 || c == nil || err != nil {
		return busy > 0 && err == nil, err
	}
	c = i.flushes.Get(c, busy)
	for _, e := range i.eps.All() {
		if e.done < e.sent {
			_ = e.post(kindFlush, 0, 0, 0, 0, flight{comp: c}) // there is room
		}
	}
	return true, nil
}

func (i *iface) Close() error {
	if i.name == 0 {
		return nil
	}
	i.name = 0
	for i.eps.Len() > 0 {
		_ = i.eps.All()[0].Close()
	}
	i.accept() // peers that have connected in the meantime get bye too
	for _, e := range i.conns {
		if in, ok := e.(*inbound); ok {
			in.send(kindBye, 0, 0, 0, 0)
			in.close()
		}
	}
	i.d.Drop()
	return errors.Join(unix.Close(i.listener), unix.Close(i.epoll))
}
