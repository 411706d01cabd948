package uverbs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// Context is an open device. Several goroutines may call its methods. Its fields do not change.
type Context struct {
	Info
	file   File
	driver Driver
	async  *os.File
	cells  cellPool
	// CompVectors is the number of completion vectors of the device.
	CompVectors uint32
	// AsyncFD is the descriptor of asynchronous events, for attributes of calls. The context owns it.
	AsyncFD uint32
}

// Open opens a device of a driver. attrs are attributes of the driver: AttrDriverIn and AttrDriverOut. The caller must
// close the Context. Errors: fs.ErrPermission if this process may not use the device file; ErrInvalidParam if the device
// is of another driver; ErrUnsupported if the kernel is too old.
func Open(k Kernel, info Info, driver Driver, attrs ...Attr) (_ *Context, err error) {
	f, err := k.Open(info.Path)
	if err != nil {
		return nil, openError(&info, err)
	}
	c := &Context{Info: info, file: f, driver: driver}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	var support uint64
	attrs = append([]Attr{Out(contextAttrVectors, &c.CompVectors), Out(contextAttrSupport, &support)}, attrs...)
	if err = f.Ioctl(MethodGetContext, driver, attrs); err != nil {
		if err == unix.EINVAL {
			return nil, &Error{Dev: info.Name, Op: MethodGetContext.String(), Errno: unix.EINVAL,
				Advice: fmt.Sprintf("it is no device of driver %v", driver)}
		}
		return nil, newError(info.Name, MethodGetContext.String(), err)
	}
	events := []Attr{Object(AttrHandle, 0)}
	if err = c.Call(MethodAsyncEvents, events...); err != nil {
		return nil, err
	}
	fd := int(int32(events[0].Value))
	c.AsyncFD = uint32(fd)
	if err = unix.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(newError(info.Name, "fcntl", err), unix.Close(fd))
	}
	c.async = os.NewFile(uintptr(fd), info.Path+" events")
	return c, nil
}

// openError returns the error of Open for err, the error of opening the device file.
func openError(info *Info, err error) error {
	e := newError(info.Name, "open "+info.Path, err)
	var ke *Error
	if errors.As(e, &ke) {
		switch ke.Errno {
		case unix.EACCES, unix.EPERM:
			ke.Advice = "this user may not use the device: its file wants the rights crw-rw-rw-, which rdma-core's udev rules give it"
		case unix.ENOENT, unix.ENXIO:
			ke.Advice = "the device was removed, or its file is not in this container"
		}
	}
	return e
}

// File returns the open device file. The context owns it.
func (c *Context) File() File { return c.file }

// Call calls a method of the ioctl ABI. The kernel stores results in attrs. The call may block.
func (c *Context) Call(m Method, attrs ...Attr) error {
	if err := c.file.Ioctl(m, c.driver, attrs); err != nil {
		return newError(c.Name, m.String(), err)
	}
	return nil
}

// Attributes of MethodInvokeWrite.
const (
	invokeIn      = 0
	invokeOut     = 1
	invokeCommand = 2
)

// Invoke runs a command of the write ABI. in is the struct of the command; the kernel writes the reply to out, which is
// nil if the command has none. driver has attributes of the driver: AttrDriverIn and AttrDriverOut.
func (c *Context) Invoke(cmd CommandNumber, in, out []byte, driver ...Attr) error {
	attrs := make([]Attr, 0, 5)
	attrs = append(attrs, Attr{ID: invokeIn, Data: in}, Const(invokeCommand, uint64(cmd)))
	if out != nil {
		attrs = append(attrs, Attr{ID: invokeOut, Kind: AttrOut, Data: out})
	}
	if err := c.file.Ioctl(MethodInvokeWrite, c.driver, append(attrs, driver...)); err != nil {
		return newError(c.Name, cmd.String(), err)
	}
	return nil
}

// Map maps n bytes of the device at an offset that the kernel has returned. Release them with Unmap.
func (c *Context) Map(offset uint64, n int) ([]byte, error) {
	mem, err := c.file.Map(int64(offset), n)
	if err != nil {
		return nil, newError(c.Name, "mmap", err)
	}
	return mem, nil
}

// Unmap unmaps memory from Map.
func (c *Context) Unmap(mem []byte) error {
	if err := c.file.Unmap(mem); err != nil {
		return newError(c.Name, "munmap", err)
	}
	return nil
}

// Close closes the device. The kernel destroys the remaining objects of the context. NextEvent returns ErrClosed.
func (c *Context) Close() error {
	return errors.Join(c.async.Close(), c.file.Close(), c.cells.close())
}

// Event is an asynchronous event: its type, by enum ib_event_type, and the user handle of its object, or the number of
// its port.
type Event struct {
	Type    uint32
	Element uint64
}

// NextEvent blocks until the next event. It returns ErrClosed after Close.
func (c *Context) NextEvent() (Event, error) {
	var e asyncEvent
	n, err := c.async.Read(BytesOf(&e))
	switch {
	case errors.Is(err, os.ErrClosed):
		return Event{}, ucs.ErrClosed
	case err != nil:
		return Event{}, fmt.Errorf("%s: read event: %w", c.Name, err)
	case n != len(BytesOf(&e)):
		return Event{}, fmt.Errorf("%s: read event: %d bytes: %w", c.Name, n, ucs.ErrIO)
	}
	return Event{Type: e.Type, Element: e.Element}, nil
}

// QueryDevice queries the limits of the device.
func (c *Context) QueryDevice() (verbs.DeviceAttr, error) {
	var in QueryDevice
	var r QueryDeviceReply
	if err := c.Invoke(CmdQueryDevice, BytesOf(&in), BytesOf(&r)); err != nil {
		return verbs.DeviceAttr{}, err
	}
	return r.attr(), nil
}

// attr converts the reply. It limits counts to the maximum of an int32.
func (r *QueryDeviceReply) attr() verbs.DeviceAttr {
	count := func(n uint32) int { return int(min(n, 1<<31-1)) }
	return verbs.DeviceAttr{
		FWVer:    fmt.Sprintf("%d.%d.%d", r.FWVer>>32, r.FWVer>>16&0xffff, r.FWVer&0xffff),
		NodeGUID: binary.BigEndian.Uint64(BytesOf(&r.NodeGUID)), VendorID: r.VendorID, VendorPartID: r.VendorPartID,
		MaxMRSize: r.MaxMRSize, MaxQP: count(r.MaxQP), MaxQPWR: count(r.MaxQPWR), MaxSGE: count(r.MaxSGE),
		MaxCQ: count(r.MaxCQ), MaxCQE: count(r.MaxCQE), MaxMR: count(r.MaxMR), MaxPD: count(r.MaxPD), MaxAH: count(r.MaxAH),
		MaxSRQ: count(r.MaxSRQ), MaxSRQWR: count(r.MaxSRQWR), MaxSRQSGE: count(r.MaxSRQSGE),
		MaxRDAtomic: int(min(r.MaxQPRDAtom, 255)), MaxInitRD: int(min(r.MaxQPInitRDAtom, 255)),
		AtomicCap: verbs.AtomicCap(min(r.AtomicCap, uint32(verbs.AtomicGlob))),
		PhysPorts: r.PhysPorts, PortCount: r.PhysPorts,
	}
}

// linkEthernet is the link layer of RoCE, by enum ib_port_attr: IB_LINK_LAYER_ETHERNET.
const linkEthernet = 2

// QueryPort queries a port, numbered from 1, and returns its attributes and its maximum message size in bytes. Error:
// ErrInvalidParam if the device has no such port.
func (c *Context) QueryPort(port uint8) (verbs.PortAttr, uint32, error) {
	var r QueryPortReply
	if err := c.Call(MethodQueryPort, Const(portAttrNumber, uint64(port)), Out(portAttrReply, &r)); err != nil {
		return verbs.PortAttr{}, 0, err
	}
	return verbs.PortAttr{
		State: verbs.PortState(r.State), MaxMTU: verbs.MTU(r.MaxMTU), ActiveMTU: verbs.MTU(r.ActiveMTU),
		GIDs: int(min(r.GIDTableLen, 256)), LID: r.LID, Ethernet: r.LinkLayer == linkEthernet, SpeedGbps: r.speed(),
	}, r.MaxMsgSize, nil
}

// laneGbps is the rate of a lane in Gb/s, for each bit of enum ib_port_speed. Drivers of Ethernet use the bits of QDR and
// FDR10 for 10 and 10.3125 Gb/s.
var laneGbps = [...]float64{2.5, 5, 10, 10.3125, 14.0625, 25.78125, 50, 100, 200}

// speed returns the number of lanes times the rate of a lane, in Gb/s. Width and speed have one bit set each.
func (r *QueryPortReply) speed() float64 {
	lanes := [...]float64{1, 4, 8, 12, 2} // enum ib_port_width
	width, speed := bits.TrailingZeros8(r.ActiveWidth), bits.TrailingZeros32(max(r.ActiveSpeedEx, uint32(r.ActiveSpeed)))
	if width >= len(lanes) || speed >= len(laneGbps) {
		return 0
	}
	return lanes[width] * laneGbps[speed]
}

// maxGIDs is the maximum number of entries of all ports that GIDs reads. An envelope cannot contain more.
const maxGIDs = 224

// GIDs returns the used entries of a port's GID table with an index up to 255, sorted by index.
func (c *Context) GIDs(port uint8) ([]verbs.GIDEntry, error) {
	var table [maxGIDs]GIDEntry
	var count uint64
	var flags uint32
	err := c.Call(MethodGIDTable, Const(gidsAttrEntryLen, uint64(len(BytesOf(&table[0])))), In(gidsAttrFlags, &flags), Out(gidsAttrReply, &table),
		Out(gidsAttrCount, &count))
	if err != nil {
		return nil, err
	}
	var list []verbs.GIDEntry
	for _, e := range table[:min(count, maxGIDs)] {
		if e.Port == uint32(port) && e.Index <= 255 {
			list = append(list, verbs.GIDEntry{GID: e.GID, Index: uint8(e.Index), Type: verbs.GIDType(min(e.Type, uint32(verbs.GIDUnknown)))})
		}
	}
	return list, nil
}

// GID returns an entry of a port's GID table. Error: ErrInvalidParam if the entry is not used.
func (c *Context) GID(port uint8, index int) (verbs.GIDEntry, error) {
	var e GIDEntry
	var flags uint32
	if err := c.Call(MethodGIDEntry, Const(gidAttrPort, uint64(port)), Const(gidAttrIndex, uint64(index)), In(gidAttrFlags, &flags),
		Out(gidAttrReply, &e)); err != nil {
		return verbs.GIDEntry{}, err
	}
	return verbs.GIDEntry{GID: e.GID, Index: uint8(index), Type: verbs.GIDType(min(e.Type, uint32(verbs.GIDUnknown)))}, nil
}
