package uverbs

import (
	"errors"
	"io/fs"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Kernel is the interface of this package to the operating system. System returns the kernel of this host.
type Kernel interface {
	// Sys returns the tree of sysfs, which has "class/infiniband_verbs".
	Sys() fs.FS
	// Open opens a device file, such as /dev/infiniband/uverbs0.
	Open(path string) (File, error)
}

// File is an open device file. Several goroutines may call its methods.
type File interface {
	// Ioctl calls a method of the device and stores the results of the kernel in attrs. The error is a unix.Errno.
	Ioctl(m Method, driver Driver, attrs []Attr) error
	// Write passes a command of the write ABI to the kernel. command must be outside the Go heap. The error is a
	// unix.Errno. Write does not allocate. For brief see Command.Run.
	Write(command []byte, brief bool) error
	// Map maps n bytes of the device at an offset that the kernel has returned. Release them with Unmap.
	Map(offset int64, n int) ([]byte, error)
	Unmap(mem []byte) error
	Close() error
}

// AttrKind is the direction and encoding of an attribute.
type AttrKind uint8

// Values of AttrKind.
const (
	// AttrIn passes Data to the kernel: up to 8 bytes in the attribute itself, more by address.
	AttrIn AttrKind = iota
	// AttrOut passes the address of Data, which the kernel fills.
	AttrOut
	// AttrConst passes Value, an 8-byte number.
	AttrConst
	// AttrObject passes Value, the handle of an object or a descriptor. If the method creates an object, the kernel
	// stores its handle in Value.
	AttrObject
)

// Attr is one attribute of a method.
type Attr struct {
	ID    uint16
	Kind  AttrKind
	Value uint64
	Data  []byte
}

// In returns an attribute that passes the bytes of *v, which must have no pointers.
func In[T any](id uint16, v *T) Attr { return Attr{ID: id, Data: BytesOf(v)} }

// Out returns an attribute that the kernel stores to *v, which must have no pointers.
func Out[T any](id uint16, v *T) Attr { return Attr{ID: id, Kind: AttrOut, Data: BytesOf(v)} }

// Const returns an attribute that passes a number.
func Const(id uint16, v uint64) Attr { return Attr{ID: id, Kind: AttrConst, Value: v} }

// Object returns an attribute that passes a handle: 0 for an object that the method creates.
func Object(id uint16, handle uint32) Attr {
	return Attr{ID: id, Kind: AttrObject, Value: uint64(handle)}
}

// Attributes that carry the data of a driver.
const (
	AttrDriverIn  = 0x1000
	AttrDriverOut = 0x1001
)

// System returns the kernel of this host.
func System() Kernel { return system{} }

type system struct{}

func (system) Sys() fs.FS { return os.DirFS("/sys") }

// Open opens a device file. Child processes do not inherit it.
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

// Ioctl implements File. It repeats a call that a signal has interrupted.
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

// Map implements File. A child process does not inherit the mapping.
func (f *deviceFile) Map(offset int64, n int) ([]byte, error) {
	mem, err := unix.Mmap(f.fd, offset, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	_ = unix.Madvise(mem, unix.MADV_DONTFORK) // most mappings of devices already have this flag
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
