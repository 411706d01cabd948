package sm

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/internal/memfd"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/base"
	"github.com/gucx/gucx/uct/internal/memop"
)

// Name is the name of the component, its MD and its transport.
const Name = "sm"

// DeviceName is the name of the only device.
const DeviceName = "memory"

// New makes the component. cfg is for the memory domain, and for ifaces that are
// opened without a Config.
func New(cfg Config) uct.Component { return &component{cfg: cfg} }

type component struct{ cfg Config }

func (c *component) Name() string { return Name }

func (c *component) MDs() ([]uct.MDResource, error) { return []uct.MDResource{{Name: Name}}, nil }

func (c *component) OpenMD(name string) (uct.MD, error) {
	md, err := openMD(name, c.cfg)
	if err != nil {
		return nil, &ucs.OpError{TL: Name, Op: "open md " + name, Err: err}
	}
	return md, nil
}

// MD is the memory domain: the arena and the table of this process. It implements
// uct.Registrar, uct.Allocator and uct.RKeyUnpacker.
type MD struct {
	cfg       Config
	attr      uct.MDAttr
	tableSeg  *memfd.Segment
	arenaSeg  *memfd.Segment
	pages     string // of the arena, for people
	table     table
	arena     *memfd.Arena
	expedited bool
	cookie    *uint64 // what peers read to make sure that they reach this process

	users    base.Users
	mu       sync.Mutex
	controls [maxControls]bool
	mems     map[uint64]*Mem // open, by key
	places   memop.Places
	links    map[*inLink]struct{}
	parked   []parked
}

var (
	_ uct.MD           = (*MD)(nil)
	_ uct.Registrar    = (*MD)(nil)
	_ uct.Allocator    = (*MD)(nil)
	_ uct.RKeyUnpacker = (*MD)(nil)
)

func openMD(name string, cfg Config) (_ *MD, err error) {
	if name != Name {
		return nil, uct.ErrInvalidParam
	}
	if cfg, err = cfg.withDefaults(); err != nil {
		return nil, err
	}
	md := &MD{cfg: cfg, links: map[*inLink]struct{}{}, mems: map[uint64]*Mem{}, expedited: expedited(), cookie: new(uint64)}
	md.attr = uct.MDAttr{Component: Name, Name: Name, RKeyLen: memop.KeyLen, MaxReg: math.MaxInt64}
	var undo cleanup.Stack
	defer func() {
		if err != nil {
			err = errors.Join(err, undo.Run())
		}
	}()
	if md.tableSeg, err = memfd.Create("gucx-sm-table", tableLen, memfd.PeersRead); err != nil {
		return nil, err
	}
	undo.Add(md.tableSeg.Close)
	if md.arenaSeg, md.pages, err = createArena(&cfg); err != nil {
		return nil, err
	}
	undo.Add(md.arenaSeg.Close)
	md.format()
	return md, nil
}

// format fills the table.
func (md *MD) format() {
	md.arena = memfd.NewArena(md.arenaSeg, controlLen)
	md.table = newTable(md.tableSeg.Bytes())
	var b [8]byte
	_, _ = rand.Read(b[:]) // does not fail
	*md.cookie = binary.NativeEndian.Uint64(b[:])
	h := md.table.header()
	h.version.Store(layoutVersion)
	h.cookieAddr.Store(addrOf(md.cookie))
	h.cookie.Store(*md.cookie)
	if md.expedited {
		h.expedited.Store(1)
	}
}

// Attr implements uct.MD.
func (md *MD) Attr() *uct.MDAttr { return &md.attr }

// Resources implements uct.MD.
func (md *MD) Resources() ([]uct.Resource, error) { return []uct.Resource{resource}, nil }

var resource = uct.Resource{Transport: Name, Device: DeviceName, Kind: uct.DeviceShm}

// UnpackRKey implements uct.RKeyUnpacker.
func (md *MD) UnpackRKey(b []byte) (uct.RKey, error) { return memop.UnpackKey(b, keyMagic) }

// keyMagic is "smem" in memory.
const keyMagic = 0x6d656d73

// takeControl reserves a control block for a new iface.
func (md *MD) takeControl() (uint32, error) {
	if err := md.users.Hold(); err != nil {
		return 0, err
	}
	md.mu.Lock()
	defer md.mu.Unlock()
	for i := range md.controls {
		if !md.controls[i] {
			md.controls[i] = true
			return uint32(i), nil
		}
	}
	md.users.Drop()
	return 0, fmt.Errorf("%w: %d ifaces are open", uct.ErrNoMemory, maxControls)
}

func (md *MD) giveControl(i uint32) {
	md.mu.Lock()
	md.controls[i] = false
	md.mu.Unlock()
	md.users.Drop()
}

// Close implements uct.MD.
func (md *MD) Close() error {
	err := md.users.Close(func() error { return errors.Join(md.arenaSeg.Close(), md.tableSeg.Close()) })
	if err != nil {
		return &ucs.OpError{TL: Name, Op: "close md", Err: err}
	}
	return nil
}
