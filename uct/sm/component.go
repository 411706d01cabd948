package sm

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/internal/guard"
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

// New returns the component. cfg is used for the memory domain, and for ifaces that are
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

// mapper maps the tables and arenas of peers, once for all domains of this process.
var mapper memfd.Mapper

// domain is the memory domain: the arena and the table of this process.
type domain struct {
	cfg       Config
	attr      uct.MDAttr
	tableSeg  *memfd.Segment
	arenaSeg  *memfd.Segment
	pages     string // description of the pages of the arena
	table     table
	arena     *memfd.Arena
	expedited bool
	cookie    *uint64 // peers read it to verify that they access this process

	users      base.Users
	mu         sync.Mutex
	controls   [maxControls]int   // number of users of each: its iface, and links that outlive it
	mems       map[uint64]*memory // open Mems, by key
	keyIndexes memop.KeyIndexes
	lastCtl    int                  // the control block that was reserved last
	links      map[*inLink]struct{} // links whose peers may access memory of this domain
	closed     bool                 // the arena is unmapped
	owner      guard.Owner          // revokes memory that peers may access
}

var _ uct.MD = (*domain)(nil)

// allocReach is the time of a store to mapped memory. For other memory, a put of 8 bytes and a flush take 1.2 to 2.5 us,
// by a system call or by the target.
const allocReach = 15 * time.Nanosecond

// regReach is the cost of cross-memory attach (experiment 0087 in docs/perf).
var regReach = uct.Cost{Send: 1100 * time.Nanosecond, Bandwidth: 17e9}

func openMD(name string, cfg Config) (_ *domain, err error) {
	if name != Name {
		return nil, uct.ErrInvalidParam
	}
	if cfg, err = cfg.withDefaults(); err != nil {
		return nil, err
	}
	md := &domain{cfg: cfg, links: map[*inLink]struct{}{}, mems: map[uint64]*memory{}, expedited: expedited(), cookie: new(uint64)}
	md.owner.Links = &md.mu
	md.attr = uct.MDAttr{Component: Name, Name: Name, RKeyLen: memop.KeyLen, MaxReg: math.MaxInt64, AllocReach: allocReach,
		RegCost: uct.Cost{Send: 6 * time.Microsecond}, RegReach: regReach} // for any length; experiment 0087 in docs/perf
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
	openDomains.Store(md, nil)
	return md, nil
}

// format fills the table.
func (md *domain) format() {
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
func (md *domain) Attr() *uct.MDAttr { return &md.attr }

// Ext implements uct.MD.
func (md *domain) Ext() *uct.MDExt { return &uct.MDExt{Reg: md, Alloc: md, Keys: md} }

// Resources implements uct.MD.
func (md *domain) Resources() ([]uct.Resource, error) { return []uct.Resource{resource}, nil }

var resource = uct.Resource{Transport: Name, Device: DeviceName, Kind: uct.DeviceShm}

// UnpackRKey implements uct.RKeyUnpacker.
func (md *domain) UnpackRKey(b []byte) (uct.RKey, error) { return memop.UnpackKey(b, keyMagic) }

// ReleaseRKey implements uct.RKeyUnpacker. It has no effect, because an unpacked key uses no resources.
func (md *domain) ReleaseRKey(uct.RKey) {}

// keyMagic is "smem" in memory.
const keyMagic = 0x6d656d73

// reserveControl reserves a control block for a new iface: the one that was free for the longest time,
// because late peers of an earlier iface may still clear armed bits.
func (md *domain) reserveControl() (uint32, error) {
	if err := md.users.Hold(); err != nil {
		return 0, err
	}
	md.mu.Lock()
	defer md.mu.Unlock()
	for range md.controls {
		md.lastCtl = (md.lastCtl + 1) % maxControls
		if md.controls[md.lastCtl] == 0 {
			md.controls[md.lastCtl] = 1
			return uint32(md.lastCtl), nil
		}
	}
	md.users.Drop()
	return 0, fmt.Errorf("%w: the limit of %d open ifaces of this domain is reached: open another context for more workers", uct.ErrNoMemory, maxControls)
}

func (md *domain) releaseControl(i uint32) {
	md.mu.Lock()
	md.controls[i]--
	md.mu.Unlock()
	md.users.Drop()
}

// Close implements uct.MD. Memory in quarantine is unmapped here; only peers still map it.
func (md *domain) Close() error {
	if err := md.users.Close(md.release); err != nil {
		return &ucs.OpError{TL: Name, Op: "close md", Err: err}
	}
	return nil
}

// release releases the resources of a domain without ifaces and memory.
func (md *domain) release() error {
	errs := md.closeLinks()
	openDomains.Delete(md)
	return errors.Join(errs, md.arenaSeg.Close(), md.tableSeg.Close())
}

// openDomains prevents garbage collection of open domains: peers can still access a Mem that was not
// closed.
var openDomains sync.Map
