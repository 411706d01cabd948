package uverbs

import (
	"errors"
	"io/fs"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Kernel is what this package asks of the operating system. System is the real one.
type Kernel interface {
	// Sys is the tree of sysfs: "class/infiniband_verbs".
	Sys() fs.FS
	// Open opens a device file, such as /dev/infiniband/uverbs0.
	Open(path string) (File, error)
}

// File is an open device file. Its methods may be called by any goroutine.
type File interface {
	// Ioctl calls a method of the device, and stores what the kernel returns in attrs. The error is a
	// unix.Errno.
	Ioctl(m Method, driver Driver, attrs []Attr) error
	// Write passes a command of the write ABI, in memory that is off the Go heap. The error is a
	// unix.Errno. It does not allocate. brief: see Command.Run.
	Write(command []byte, brief bool) error
	// Map maps n bytes of the device at an offset that it has named. Unmap undoes it.
	Map(offset int64, n int) ([]byte, error)
	Unmap(mem []byte) error
	Close() error
}

// AttrKind is how an attribute is passed.
type AttrKind uint8

// Kinds of attributes.
const (
	// AttrIn passes Data: up to 8 bytes in the attribute itself, more by address.
	AttrIn AttrKind = iota
	// AttrOut has the kernel fill Data.
	AttrOut
	// AttrConst passes Value, a number of 8 bytes.
	AttrConst
	// AttrObject passes Value, the handle of an object or a descriptor. The kernel stores that of a new
	// object there.
	AttrObject
)

// Attr is one attribute of a method.
type Attr struct {
	ID    uint16
	Kind  AttrKind
	Value uint64
	Data  []byte
}

// In passes the bytes of *v, which has no pointers.
func In[T any](id uint16, v *T) Attr { return Attr{ID: id, Data: BytesOf(v)} }

// Out has the kernel store to *v, which has no pointers.
func Out[T any](id uint16, v *T) Attr { return Attr{ID: id, Kind: AttrOut, Data: BytesOf(v)} }

// Const passes a number.
func Const(id uint16, v uint64) Attr { return Attr{ID: id, Kind: AttrConst, Value: v} }

// Object passes a handle. A new object has the handle 0 before the call.
func Object(id uint16, handle uint32) Attr {
	return Attr{ID: id, Kind: AttrObject, Value: uint64(handle)}
}

// Attributes that carry the data of a driver.
const (
	AttrDriverIn  = 0x1000
	AttrDriverOut = 0x1001
)

// System is the kernel that this process runs on.
func System() Kernel { return system{} }

type system struct{}

func (system) Sys() fs.FS { return os.DirFS("/sys") }

// Open opens a device file. Programs that this process starts do not inherit it.
func (system) Open(path string) (File, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR {
		return nil, errors.Join(unix.ENODEV, err, unix.Close(fd))
	}
	return &deviceFile{fd: fd}, nil
}

// deviceFile is a File of the kernel.
type deviceFile struct {
	fd int

	mu   sync.Mutex
	free []*envelope
}

// getEnvelope returns memory for one call.
func (f *deviceFile) getEnvelope() (*envelope, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if last := len(f.free) - 1; last >= 0 {
		e := f.free[last]
		f.free = f.free[:last]
		return e, nil
	}
	return newEnvelope()
}

func (f *deviceFile) putEnvelope(e *envelope) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.free = append(f.free, e)
}

// Ioctl implements File. A signal may interrupt the call before it has done anything.
func (f *deviceFile) Ioctl(m Method, driver Driver, attrs []Attr) error {
	e, err := f.getEnvelope()
	if err != nil {
		return unix.ENOMEM
	}
	defer f.putEnvelope(e)
	if err := e.encode(m, driver, attrs); err != nil {
		return err
	}
	errno := unix.EINTR
	for errno == unix.EINTR {
		errno = e.ioctl(f.fd)
	}
	if errno != 0 {
		return errno
	}
	e.decode(attrs)
	return nil
}

// Write implements File.
func (f *deviceFile) Write(command []byte, brief bool) error {
	write := unix.Write
	if brief {
		write = writeBrief
	}
	for {
		n, err := write(f.fd, command)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return err
		case n != len(command):
			return unix.EIO
		default:
			return nil
		}
	}
}

// Map implements File. A child made by fork does not get the mapping, as the device file does not allow it.
func (f *deviceFile) Map(offset int64, n int) ([]byte, error) {
	mem, err := unix.Mmap(f.fd, offset, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	_ = unix.Madvise(mem, unix.MADV_DONTFORK) // mappings of devices have it already
	return mem, nil
}

// Unmap implements File.
func (*deviceFile) Unmap(mem []byte) error { return unix.Munmap(mem) }

// Close implements File.
func (f *deviceFile) Close() error {
	f.mu.Lock()
	free := f.free
	f.free = nil
	f.mu.Unlock()
	errs := []error{unix.Close(f.fd)}
	for _, e := range free {
		errs = append(errs, e.block.Free())
	}
	return errors.Join(errs...)
}
