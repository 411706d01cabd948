package fakekernel

import (
	"io/fs"
	"iter"
	"maps"
	"slices"
	"sync"
	"testing/fstest"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/mlx5/adapter"
	"github.com/gucx/gucx/internal/uverbs"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// Config is the configuration of a Kernel.
type Config struct {
	// Name is the name of the device, which must start with "mlx5". "" means "mlx5_fake0".
	Name string
	// Device is the configuration of the software HCA of each open file.
	Device softhca.Config
	// Silicon means that the device polls the doorbell records and the driver does not call it.
	Silicon bool
	// InfiniBand means that the port is an InfiniBand port, not a RoCE port.
	InfiniBand bool
	// Before is called before each call of the kernel. If it returns an error, the call fails with that error. Several
	// goroutines may call it. It may be nil.
	Before func(Call) error
	// After is called after a successful call of the kernel and may change the reply. It may be nil.
	After func(Call)
}

// Call is a call of the kernel. The process that makes the call owns the memory of its attributes.
type Call struct {
	// Op is the name of the call: of an ioctl, such as "create QP", or "open", "map", "unmap", "close".
	Op    string
	attrs []uverbs.Attr // attributes of an ioctl
}

// Data returns the memory of the attribute with an ID of the kernel's headers; nil if the call has no such attribute or
// the attribute is a number.
func (c Call) Data(id uint16) []byte {
	if a := c.attr(id); a != nil {
		return a.Data
	}
	return nil
}

// Replies yields the attributes that the kernel fills: their IDs and memory.
func (c Call) Replies() iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for _, a := range c.attrs {
			if a.Kind == uverbs.AttrOut && !yield(a.ID, a.Data) {
				return
			}
		}
	}
}

// attr returns the attribute with an ID, or nil.
func (c Call) attr(id uint16) *uverbs.Attr {
	for i := range c.attrs {
		if c.attrs[i].ID == id {
			return &c.attrs[i]
		}
	}
	return nil
}

// Kernel is a kernel with one device. Several goroutines may call its methods.
type Kernel struct {
	cfg Config

	mu    sync.Mutex
	live  map[string]int
	files map[*file]struct{}
}

const defaultName = "mlx5_fake0"

// New returns a kernel.
func New(cfg Config) *Kernel {
	if cfg.Name == "" {
		cfg.Name = defaultName
	}
	return &Kernel{cfg: cfg, live: map[string]int{}, files: map[*file]struct{}{}}
}

// Devices returns the kernel's device, as connectx.Devices returns those of the system.
func (k *Kernel) Devices(queues mlx5.Config) ([]*verbs.Device, error) {
	return adapter.Devices(system{k}, queues)
}

// system is the uverbs.Kernel of a Kernel.
type system struct{ *Kernel }

// node is the name of the device in sysfs and in /dev/infiniband.
const node = "uverbs0"

// modalias is the modalias of a ConnectX-4: vendor 15b3, device 1013.
const modalias = "pci:v000015B3d00001013sv000015B3sd00000001bc02sc07i00"

// Sys implements uverbs.Kernel.
func (k system) Sys() fs.FS {
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s + "\n")} }
	dir := "class/infiniband_verbs/"
	return fstest.MapFS{
		dir + "abi_version":                                   file("6"),
		dir + node + "/ibdev":                                 file(k.cfg.Name),
		dir + node + "/abi_version":                           file("1"),
		"class/infiniband/" + k.cfg.Name + "/device/modalias": file(modalias),
	}
}

// Live returns the number of files, mappings and objects that processes have created and not destroyed, by type. It omits
// types with the number 0.
func (k *Kernel) Live() map[string]int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.live)
}

func (k *Kernel) count(kind string, n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.live[kind] += n; k.live[kind] == 0 {
		delete(k.live, kind)
	}
}

// before returns the error of Config.Before.
func (k *Kernel) before(c Call) error {
	if k.cfg.Before == nil {
		return nil
	}
	return k.cfg.Before(c)
}

func (k *Kernel) after(c Call) {
	if k.cfg.After != nil {
		k.cfg.After(c)
	}
}

// Open implements uverbs.Kernel.
func (k system) Open(path string) (uverbs.File, error) {
	if err := k.before(Call{Op: "open"}); err != nil {
		return nil, err
	}
	if path != "/dev/infiniband/"+node {
		return nil, unix.ENOENT
	}
	f, err := k.openFile()
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.files[f] = struct{}{}
	return f, nil
}

// Remove raises the event of a removed device in each open file. Calls of a removed device fail with EIO, which
// Config.Before must return.
func (k *Kernel) Remove() {
	k.mu.Lock()
	files := slices.Collect(maps.Keys(k.files))
	k.mu.Unlock() // lock order: first the file, then the kernel
	for _, f := range files {
		f.raise(0, verbs.EventDeviceFatal)
	}
}
