package fakekernel

import (
	"errors"

	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/internal/guard"
	"github.com/gucx/gucx/internal/mlx5/adapter"
	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/mlx5/provider"
	"github.com/gucx/gucx/internal/uverbs"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// device lists the methods of the software HCA that this package uses.
type device interface {
	prm.Hardware
	prm.XRCHardware
	prm.RecvWatcher
	prm.Pollable
}

// file is an open device file.
type file struct {
	k       *Kernel
	hw      device
	ctx     *verbs.Context // context of hw
	watcher *watcher       // nil unless Config.Silicon

	mu       sync.Mutex
	opened   bool // GET_CONTEXT was called
	next     uint32
	objects  map[uint32]*object
	channels map[uint32]*pipe // by the descriptor of the process
	async    *pipe
	mapped   map[*byte]prm.UAR
}

var _ adapter.Software = (*file)(nil)

// openFile opens a device.
func (k *Kernel) openFile() (_ *file, err error) {
	cfg := k.cfg.Device
	cfg.Name, cfg.Queues = k.cfg.Name, mlx5.Config{UARPolicy: mlx5.UARLazy}
	dev, err := softhca.NewDevice(cfg)
	if err != nil {
		return nil, err
	}
	ctx, err := dev.Open()
	if err != nil {
		return nil, unix.EIO
	}
	f := &file{k: k, ctx: ctx, hw: provider.HardwareOf(ctx).(device), objects: map[uint32]*object{},
		channels: map[uint32]*pipe{}, mapped: map[*byte]prm.UAR{}}
	f.hw.SetAsyncSink(f)
	if k.cfg.Silicon {
		f.watcher = startWatcher(f.hw)
	}
	k.count("file", 1)
	return f, nil
}

// object is an object of the kernel.
type object struct {
	kind    uint16 // by enum uverbs_default_objects; kindUAR
	handle  uint32
	parents []*object
	users   int

	number     uint32 // number for processes and peers
	hw         uint32 // number in the software HCA
	userHandle uint64
	uar        prm.UAR
	destroy    func() error
}

// Types of objects, by enum uverbs_default_objects of ib_user_ioctl_cmds.h.
const (
	kindPD   = 1
	kindCQ   = 3
	kindQP   = 4
	kindSRQ  = 5
	kindAH   = 6
	kindMR   = 7
	kindXRCD = 10
	kindUAR  = 0x1008 // MLX5_IB_OBJECT_UAR of mlx5_user_ioctl_cmds.h
)

var kindNames = map[uint16]string{kindPD: "PD", kindCQ: "CQ", kindQP: "QP", kindSRQ: "SRQ", kindAH: "AH", kindMR: "MR", kindXRCD: "XRC domain", kindUAR: "UAR page"}

// add adds an object and assigns its handle. Handles begin at 0, as in the kernel.
func (f *file) add(o *object) *object {
	f.mu.Lock()
	defer f.mu.Unlock()
	o.handle = f.next
	f.next++
	f.objects[o.handle] = o
	for _, p := range o.parents {
		p.users++
	}
	f.k.count(kindNames[o.kind], 1)
	return o
}

// find returns the object of a type with a handle. Error: EINVAL if there is none.
func (f *file) find(kind uint16, handle uint64) (*object, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if o := f.objects[uint32(handle)]; o != nil && o.kind == kind && handle < 1<<32 {
		return o, nil
	}
	return nil, unix.EINVAL
}

// findNumber returns the object with a number in the software HCA, or nil.
func (f *file) findNumber(kind uint16, hw uint32) *object {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, o := range f.objects {
		if o.kind == kind && o.hw == hw {
			return o
		}
	}
	return nil
}

// remove destroys an object. Error: EBUSY while another object uses it.
func (f *file) remove(kind uint16, handle uint64) error {
	o, err := f.find(kind, handle)
	if err != nil {
		return err
	}
	f.mu.Lock()
	busy := o.users > 0
	f.mu.Unlock()
	if busy {
		return unix.EBUSY
	}
	if err := guard.AwaitUse(o.destroy); err != nil {
		return errnoOf(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.objects, o.handle)
	for _, p := range o.parents {
		p.users--
	}
	f.k.count(kindNames[o.kind], -1)
	return nil
}

// errnoOf returns the kernel's error number for an error of the software HCA.
func errnoOf(err error) error {
	var errno unix.Errno
	switch {
	case err == nil:
		return nil
	case errors.As(err, &errno):
		return errno
	case errors.Is(err, ucs.ErrInvalidParam), errors.Is(err, ucs.ErrInvalidState):
		return unix.EINVAL
	case errors.Is(err, ucs.ErrNoMemory):
		return unix.ENOMEM
	case errors.Is(err, ucs.ErrBusy):
		return unix.EBUSY
	case errors.Is(err, ucs.ErrUnsupported):
		return unix.EOPNOTSUPP
	}
	return unix.EIO
}

// Ioctl implements uverbs.File.
func (f *file) Ioctl(m uverbs.Method, driver uverbs.Driver, attrs []uverbs.Attr) error {
	c := &request{Call: Call{Op: m.String(), attrs: attrs}}
	handle := methods[m]
	if m == uverbs.MethodInvokeWrite {
		number := uverbs.CommandNumber(c.constant(attrCommand))
		c.Op, handle = number.String(), commands[number]
	}
	if err := f.k.before(c.Call); err != nil {
		return err
	}
	f.mu.Lock()
	opened := f.opened
	f.mu.Unlock()
	switch {
	case driver != uverbs.DriverMLX5 || !opened && m != uverbs.MethodGetContext:
		return unix.EINVAL
	case handle == nil:
		return unix.EPROTONOSUPPORT
	}
	err := handle(f, c)
	if err == nil {
		err = c.err
	}
	if err != nil {
		return errnoOf(err)
	}
	f.k.after(c.Call)
	return nil
}

// Write implements uverbs.File. Driver mlx5 uses no commands by write.
func (f *file) Write([]byte, bool) error { return unix.EOPNOTSUPP }

// Map implements uverbs.File.
func (f *file) Map(offset int64, n int) ([]byte, error) {
	if err := f.k.before(Call{Op: "map"}); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, o := range f.objects {
		if o.kind == kindUAR && int64(o.number)*prm.UARPageLen == offset && n == prm.UARPageLen {
			mem := page(o.uar)
			f.mapped[&mem[0]] = o.uar
			f.k.count("mapping", 1)
			return mem, nil
		}
	}
	return nil, unix.EINVAL
}

// Unmap implements uverbs.File.
func (f *file) Unmap(mem []byte) error {
	if err := f.k.before(Call{Op: "unmap"}); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.mapped[&mem[0]]; !ok {
		return unix.EINVAL
	}
	delete(f.mapped, &mem[0])
	f.k.count("mapping", -1)
	return nil
}

// Close implements uverbs.File. It destroys the remaining objects, users before the objects that they use.
func (f *file) Close() error {
	err := f.k.before(Call{Op: "close"}) // close the file even after an error
	if f.watcher != nil {
		f.watcher.stop()
	}
	var undo cleanup.Stack
	for _, kind := range []uint16{kindUAR, kindXRCD, kindPD, kindMR, kindAH, kindCQ, kindSRQ, kindQP} {
		for _, handle := range f.handles(kind) {
			undo.Add(func() error { return f.remove(kind, uint64(handle)) })
		}
	}
	errs := []error{err, undo.Run(), f.ctx.Close()}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.channels {
		errs = append(errs, p.close())
	}
	if f.async != nil {
		errs = append(errs, f.async.close())
	}
	f.k.mu.Lock()
	delete(f.k.files, f)
	f.k.mu.Unlock()
	f.k.count("mapping", -len(f.mapped))
	f.k.count("file", -1)
	return errors.Join(errs...)
}

// handles returns the sorted handles of all objects of a type.
func (f *file) handles(kind uint16) (list []uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for handle, o := range f.objects {
		if o.kind == kind {
			list = append(list, handle)
		}
	}
	slices.Sort(list)
	return list
}

// Attention implements prm.Pollable; nil with Config.Silicon.
func (f *file) Attention() *uint32 {
	if f.watcher != nil {
		return nil
	}
	return f.hw.Attention()
}

// Drive implements prm.Pollable.
func (f *file) Drive() { f.hw.Drive() }

// Doorbell implements adapter.Software.
func (f *file) Doorbell(page []byte) prm.Doorbell {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mapped[&page[0]].Doorbell
}

// RecvDoorbell implements adapter.Software.
func (f *file) RecvDoorbell(srq uint32) prm.RecvDoorbell {
	o, err := f.find(kindSRQ, uint64(srq))
	if err != nil {
		return nil
	}
	return f.hw.RecvDoorbell(o.hw)
}

// AsyncEvent implements prm.AsyncSink.
func (f *file) AsyncEvent(t verbs.EventType, number uint32) {
	kind := uint16(kindQP)
	switch t {
	case verbs.EventCQErr:
		kind = kindCQ
	case verbs.EventSRQErr, verbs.EventSRQLimitReached:
		kind = kindSRQ
	case verbs.EventUnreachable:
		return // the kernel has no such event
	}
	if o := f.findNumber(kind, number); o != nil {
		f.raise(o.userHandle, t)
	}
}

// raise queues an asynchronous event of the object with a user handle.
func (f *file) raise(userHandle uint64, t verbs.EventType) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.async != nil {
		f.async.write(append(uint64Bytes(userHandle), uint64Bytes(uint64(t))...))
	}
}

// Unreachable implements prm.AsyncSink. The kernel has no such event.
func (f *file) Unreachable(uint32, verbs.GID) {}
