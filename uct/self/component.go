package self

import (
	"time"

	"math"
	"sync"

	"github.com/gucx/gucx/internal/sparse"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/base"
	"github.com/gucx/gucx/uct/internal/memop"
)

// Name is the name of the component, its MD and its transport.
const Name = "self"

// DeviceName is the name of the only device.
const DeviceName = "memory"

// New returns the component. cfg is used for ifaces that are opened without a Config.
func New(cfg Config) uct.Component { return &component{cfg: cfg} }

type component struct{ cfg Config }

func (c *component) Name() string { return Name }

func (c *component) MDs() ([]uct.MDResource, error) { return []uct.MDResource{{Name: Name}}, nil }

func (c *component) OpenMD(name string) (uct.MD, error) {
	if name != Name {
		return nil, &ucs.OpError{TL: Name, Op: "open md " + name, Err: uct.ErrInvalidParam}
	}
	return &domain{cfg: c.cfg, regions: sparse.New[region](memop.KeyIndexMask + 1), ifaces: map[*iface]bool{}, attr: uct.MDAttr{
		Component: Name, Name: Name, RKeyLen: memop.KeyLen, MaxReg: math.MaxInt64,
		RegCost: uct.Cost{Send: 6 * time.Microsecond}, // for any length; experiment 0087 in docs/perf
	}}, nil
}

// domain is the memory domain.
type domain struct {
	regions sparse.Table[region] // by the index in the key; index 0 is not used

	cfg        Config
	attr       uct.MDAttr
	users      base.Users
	mu         sync.Mutex
	keyIndexes memop.KeyIndexes // under mu, with the stores to regions
	ifaces     map[*iface]bool  // open ones; under mu
}

var _ uct.MD = (*domain)(nil)

// Attr implements uct.MD.
func (md *domain) Attr() *uct.MDAttr { return &md.attr }

// Ext implements uct.MD.
func (md *domain) Ext() *uct.MDExt { return &uct.MDExt{Reg: md, Alloc: md, Keys: md} }

// Resources implements uct.MD.
func (md *domain) Resources() ([]uct.Resource, error) { return []uct.Resource{resource}, nil }

var resource = uct.Resource{Transport: Name, Device: DeviceName, Kind: uct.DeviceSelf}

// Close implements uct.MD.
func (md *domain) Close() error {
	if err := md.users.Close(func() error { return nil }); err != nil {
		return &ucs.OpError{TL: Name, Op: "close md", Err: err}
	}
	return nil
}

// UnpackRKey implements uct.RKeyUnpacker.
func (md *domain) UnpackRKey(b []byte) (uct.RKey, error) { return memop.UnpackKey(b, keyMagic) }

// ReleaseRKey implements uct.RKeyUnpacker. It has no effect, because an unpacked key uses no resources.
func (md *domain) ReleaseRKey(uct.RKey) {}

// keyMagic is "self" in memory.
const keyMagic = 0x666c6573
