package self

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/internal/memop"
)

// Name is the name of the component, its MD and its transport.
const Name = "self"

// DeviceName is the name of the only device.
const DeviceName = "memory"

// New makes the component. cfg is for ifaces that are opened without a Config.
func New(cfg Config) uct.Component { return &component{cfg: cfg} }

type component struct{ cfg Config }

func (c *component) Name() string { return Name }

func (c *component) MDs() ([]uct.MDResource, error) { return []uct.MDResource{{Name: Name}}, nil }

func (c *component) OpenMD(name string) (uct.MD, error) {
	if name != Name {
		return nil, &ucs.OpError{TL: Name, Op: "open md " + name, Err: uct.ErrInvalidParam}
	}
	return &MD{cfg: c.cfg, attr: uct.MDAttr{
		Component: Name, Name: Name, RKeyLen: memop.KeyLen, MaxReg: math.MaxInt64,
	}}, nil
}

// MD is the memory domain. It implements uct.Registrar, uct.Allocator and
// uct.RKeyUnpacker.
type MD struct {
	regions [memop.KeyIndexMask + 1]atomic.Pointer[region] // by the index in the key; 0 is not used

	cfg    Config
	attr   uct.MDAttr
	mu     sync.Mutex
	ifaces int
	free   []int // indexes given back
	next   int   // index last taken for the first time
	mems   int
	closed bool
}

var (
	_ uct.MD           = (*MD)(nil)
	_ uct.Registrar    = (*MD)(nil)
	_ uct.Allocator    = (*MD)(nil)
	_ uct.RKeyUnpacker = (*MD)(nil)
)

// Attr implements uct.MD.
func (md *MD) Attr() *uct.MDAttr { return &md.attr }

// Resources implements uct.MD.
func (md *MD) Resources() ([]uct.Resource, error) { return []uct.Resource{resource}, nil }

var resource = uct.Resource{Transport: Name, Device: DeviceName, Kind: uct.DeviceSelf}

// Close implements uct.MD.
func (md *MD) Close() error {
	md.mu.Lock()
	defer md.mu.Unlock()
	if md.ifaces > 0 || md.mems > 0 {
		return &ucs.OpError{TL: Name, Op: "close md",
			Err: fmt.Errorf("%w: %d ifaces and %d memory handles are open", uct.ErrBusy, md.ifaces, md.mems)}
	}
	md.closed = true
	return nil
}

// UnpackRKey implements uct.RKeyUnpacker.
func (md *MD) UnpackRKey(b []byte) (uct.RKey, error) { return memop.UnpackKey(b, keyMagic) }

// keyMagic is "self" in memory.
const keyMagic = 0x666c6573
