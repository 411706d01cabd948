package softhca

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/gucx/gucx/internal/attach"
	"github.com/gucx/gucx/internal/guard"
	"github.com/gucx/gucx/internal/memfd"
	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/offheap"
	"github.com/gucx/gucx/internal/softhca/internal/spin"
	"github.com/gucx/gucx/internal/softhca/internal/table"
	"github.com/gucx/gucx/internal/sparse"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// hca is one open device. It implements prm.Hardware and prm.Pollable.
//
// Locks, outermost first: xrcdMu, driving, queuePair.exec, that of owner, overdueMu, linkMu, mu,
// targets.mu and views.mu, then the spin locks of links, queues and runList, which are held
// for a few instructions.
type hca struct {
	cfg      Config
	gid      verbs.GID
	gidWords [2]uint64

	tableSeg *memfd.Segment // nil on the loop fabric
	arenaSeg *memfd.Segment // nil on the loop fabric
	local    *offheap.Block // table and control page on the loop fabric
	table    table.Table
	arena    *memfd.Arena // nil on the loop fabric
	ctl      *control
	claims   table.Claims
	claimID  uint64 // of this device, in the claims of peers
	cookie   *uint64
	port     *attach.Port // nil on the loop fabric

	waker    *attach.Waker
	wakeFD   int      // of the waker, to write to
	wakeFile *os.File // of the waker, to read from

	sink    atomic.Pointer[prm.AsyncSink]
	regions regions
	qps     qpTable
	xrcSRQs xrcTable
	targets targetTable
	views   viewTable

	mu     sync.Mutex
	cqs    objTable[compQueue]
	srqs   objTable[recvQueue]
	pds    objTable[uint32]
	xrcds  objTable[xrcDomain]
	qpIDs  idPool
	mrIDs  idPool
	srqIDs idPool // of XRC SRQs
	uars   *uarPool

	withSRQ  int   // QPs that have no receive queue of their own; under mu
	uarPages int64 // under mu

	xrcdMu sync.Mutex // opening and closing domains with a name

	linkMu   sync.Mutex
	links    []*outLink
	outbound atomic.Pointer[[]*outLink] // up, or up before
	inbound  atomic.Pointer[[]*inLink]
	dials    sync.WaitGroup

	driving spin.Section
	scratch prm.WQE // under driving

	runLock spin.Mutex
	runList []*queuePair
	spare   []*queuePair // under driving
	timed   []*queuePair

	revoked map[uint32]*region // keys that are invalid and whose regions peers still access; under mu
	owner   guard.Owner        // frees memory and QP numbers after the accesses of peers

	overdueMu sync.Mutex
	overdue   []guard.Visit // see awaitVisits

	closing    atomic.Bool
	sleepSeq   uint32      // twice the number of sleeps of the engine
	pollerLeft atomic.Bool // the caller that polled is about to sleep
	engineDone chan struct{}
}

// open opens a context of the device, which shares the UAR pages of uars, and starts its
// engine.
func open(cfg Config, uars *uarPool) (_ *hca, err error) {
	cfg, err = cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	h := &hca{cfg: cfg, uars: uars, engineDone: make(chan struct{}), revoked: map[uint32]*region{},
		regions: regions{sparse.New[region](table.MaxMR)}, qps: qpTable{sparse.New[queuePair](table.MaxQP)},
		xrcSRQs: xrcTable{sparse.New[recvQueue](table.MaxXRCSRQ)},
		qpIDs:   idPool{limit: table.MaxQP}, mrIDs: idPool{limit: table.MaxMR}, srqIDs: idPool{limit: table.MaxXRCSRQ, reuseAt: srqReuseAt}}
	h.owner.Links = &h.linkMu
	h.setInbound(nil)
	h.setOutbound(nil)
	defer func() {
		if err != nil {
			_ = h.release()
		}
	}()
	if err = h.identify(); err != nil {
		return nil, err
	}
	if err = h.makeSegments(); err != nil {
		return nil, err
	}
	if err = h.openWake(); err != nil {
		return nil, err
	}
	h.table.Format()
	h.table.SetCookie(h.cookie)
	if cfg.Fabric == FabricShm {
		if err = h.listen(); err != nil {
			return nil, err
		}
	}
	if cfg.Timing != nil {
		close(h.engineDone) // the thread that rings does all work
		return h, nil
	}
	go h.engine()
	return h, nil
}

// identify assigns the device a link-local GID with a random interface id.
func (h *hca) identify() error {
	h.gid = verbs.GID{0xfe, 0x80}
	net, err := subnet(h.cfg.Fabric)
	if err != nil {
		return err
	}
	copy(h.gid[2:], net[:])
	h.cookie = new(uint64)
	var seed [16]byte
	if _, err := rand.Read(seed[:]); err != nil {
		return err
	}
	copy(h.gid[8:], seed[:8])
	h.gidWords = table.GIDWords(h.gid)
	h.claimID = table.ClaimID(h.gidWords)
	*h.cookie = binary.NativeEndian.Uint64(seed[8:])
	return nil
}

// makeSegments creates the segments that peers map.
func (h *hca) makeSegments() (err error) {
	if h.cfg.Fabric == FabricLoop {
		if h.local, err = offheap.Alloc(table.Len + pageLen + table.ClaimsLen); err != nil {
			return err
		}
		mem := h.local.Bytes()
		h.table, _ = table.New(mem)
		h.ctl = controlOf(mem[table.Len:])
		h.claims = table.ClaimsAt(mem[table.Len+pageLen:])
		return nil
	}
	if h.tableSeg, err = memfd.Create("gucx-table", table.SharedLen, memfd.PeersRead); err != nil {
		return err
	}
	h.table, _ = table.New(h.tableSeg.Bytes())
	if h.arenaSeg, err = memfd.Create("gucx-arena", int(h.cfg.ArenaLen)+arenaStart, memfd.PeersWrite); err != nil {
		return err
	}
	h.arena = newArena(h.arenaSeg)
	h.ctl = controlOf(h.arenaSeg.Bytes())
	h.claims = table.ClaimsAt(h.arenaSeg.Bytes()[claimsOff:])
	return nil
}

func (h *hca) openWake() (err error) {
	if h.waker, err = attach.NewWaker(); err != nil {
		return err
	}
	h.wakeFD, h.wakeFile = h.waker.WakeFD(), h.waker.File("softhca-wake")
	return nil
}

func (h *hca) listen() (err error) {
	h.port, err = attach.Listen(attach.Config{
		Service: "softhca", GID: h.gid, Layout: table.Version, Table: h.tableSeg, Arena: h.arenaSeg,
		ControlLen: pageLen, LinkLen: linkLen, WakeFD: h.waker.PeerFD(),
		AllowUIDs: h.cfg.AllowUIDs, HandshakeTimeout: h.cfg.DialTimeout, OnLink: h.accept,
	})
	return err
}

// Close implements prm.Hardware. The driver has destroyed all objects.
func (h *hca) Close() error {
	if h.closing.Swap(true) {
		return nil
	}
	wake(h.wakeFD)
	<-h.engineDone
	return h.release()
}

// release undoes open, also after it has failed.
func (h *hca) release() error {
	h.closing.Store(true)
	own := h.stopDriving()
	if h.table.Base != nil {
		h.table.Closed().Store(1) // before peers see the hang-up
	}
	var errs []error
	if h.port != nil {
		errs = append(errs, h.port.Close())
	}
	h.dials.Wait()
	for _, l := range own {
		errs = append(errs, l.closeFunc())
	}
	h.unpinAll()
	errs = append(errs, h.leaveDomains())
	if h.wakeFile != nil {
		errs = append(errs, h.wakeFile.Close(), h.waker.Close())
	}
	if h.tableSeg != nil {
		errs = append(errs, h.tableSeg.Close())
	}
	if h.arenaSeg != nil {
		errs = append(errs, h.arenaSeg.Close())
	}
	if h.local != nil {
		errs = append(errs, h.local.Free())
	}
	return errors.Join(errs...)
}

// stopDriving waits for threads that drive the device or read guards, and removes all links
// from the lists, so that links can be closed. It returns the links that no port closes: the
// loop fabric's, and rejected ones.
func (h *hca) stopDriving() (own []*inLink) {
	h.driving.Lock()
	defer h.driving.Unlock()
	h.linkMu.Lock()
	defer h.linkMu.Unlock()
	for _, l := range *h.inbound.Load() {
		if h.port == nil || l.rejected {
			own = append(own, l)
		}
	}
	h.setInbound(nil)
	h.setOutbound(nil)
	return own
}

// unpinAll unpins the memory of registrations that were not closed.
func (h *hca) unpinAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.mrIDs.next + 1 {
		if r := h.regions.slot.Swap(i, nil); r != nil {
			r.unpin()
		}
	}
	for _, r := range h.revoked {
		r.unpin()
	}
	clear(h.revoked)
}

func yield() { runtime.Gosched() }

func wake(fd int) { attach.Wake(fd) }

var errNoPort = &ucs.OpError{TL: "softhca", Op: "query port or GID: there is port 1 with GID 0", Err: ucs.ErrInvalidParam}
