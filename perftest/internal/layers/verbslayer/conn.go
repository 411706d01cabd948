// Package verbslayer measures the verbs API as a careful user would call it: one RC queue pair in a thread domain with
// a single-threaded CQ, so that neither takes a lock; inline writes up to the same limit as uct/ib/rc; completions only
// if needed. The queue lengths are those of uct/ib/rc.
package verbslayer

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/perftest/internal/layers/device"
	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/uct/ib/rc"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// Name of the layer.
const Name = "verbs"

// Defaults of uct/ib/rc, used if its configuration does not set a value.
const (
	defaultDepth      = 256
	defaultInline     = 128
	defaultModeration = 64
	defaultReads      = 16
)

// allAccess contains all access flags.
const allAccess = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic

// Layer opens connections over verbs.
type Layer struct {
	tuning   func(transport string) rc.Config
	devices  device.Lister
	contexts layer.Share[*verbs.Context]
}

// New returns the layer over devices. The queue lengths are those in tuning, the configuration of the transport with
// which verbs are compared.
func New(tuning func(transport string) rc.Config, devices device.Lister) *Layer {
	return &Layer{tuning: tuning, devices: devices}
}

// queues contains lengths and limits of a QP.
type queues struct{ depth, inline, moderation, reads int }

func queuesOf(tuning rc.Config) queues {
	return queues{
		depth:      cmp.Or(tuning.TxDepth, defaultDepth),
		inline:     cmp.Or(int(tuning.TxMaxInline), defaultInline),
		moderation: cmp.Or(tuning.Moderation, defaultModeration),
		reads:      cmp.Or(tuning.MaxRDAtomic, defaultReads),
	}
}

// Conn is one side of a connection: a QP and two buffers.
type Conn struct {
	queues queues
	cfg    layer.Config
	ctx    *verbs.Context
	port   uint8
	pd     *verbs.PD
	cq     *verbs.CQ // of sends
	recvCQ *verbs.CQ
	qp     *verbs.QP
	memory *verbs.MR
	local  *verbs.MR
	slots  *verbs.MR // of receives; the last one is for notes; nil before the first message
	psn    uint32
	link   verbs.PortAttr // set by Address
	gid    verbs.GIDEntry // set by Address; zero on InfiniBand
	peer   *address
	undo   cleanup.Stack

	// posted is the number of posted work requests; done is the ID of the last polled completion.
	posted, done uint64
	wc           [pollBatch]verbs.WC
}

// pollBatch is the maximum number of completions of one poll.
const pollBatch = 16

// Open implements layer.Opener.
func (l *Layer) Open(cfg layer.Config) (_ layer.Conn, err error) {
	dev, port, err := l.devices.Find(cfg.Fabric, cfg.Device)
	if err != nil {
		return nil, err
	}
	c := &Conn{queues: queuesOf(l.tuning(cfg.Transport)), cfg: cfg, port: port, psn: rand.Uint32() & maxPSN}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.undo.Run())
		}
	}()
	ctx, release, err := l.contexts.Get(cfg.Fabric+" "+dev.Name(), dev.Open)
	if err != nil {
		return nil, err
	}
	c.ctx = ctx
	c.undo.Add(release)
	if err := c.openMemory(); err != nil {
		return nil, err
	}
	return c, c.openQueues()
}

func (c *Conn) openMemory() (err error) {
	if c.pd, err = c.ctx.AllocPD(); err != nil {
		return err
	}
	c.undo.Add(c.pd.Close)
	if c.memory, err = c.alloc(c.cfg.MemLen); err != nil {
		return err
	}
	c.local, err = c.alloc(c.cfg.MemLen)
	return err
}

func (c *Conn) alloc(n int) (*verbs.MR, error) {
	buf, err := c.ctx.AllocBuffer(n)
	if err != nil {
		return nil, err
	}
	c.undo.Add(buf.Close)
	mr, err := c.pd.RegMR(buf.Bytes(), allAccess)
	if err != nil {
		return nil, err
	}
	c.undo.Add(mr.Close)
	return mr, nil
}

func (c *Conn) openQueues() (err error) {
	var td *verbs.TD
	if c.ctx.HasTD() {
		if td, err = c.ctx.AllocTD(verbs.TDInitAttr{}); err != nil {
			return err
		}
		c.undo.Add(td.Close)
	}
	if c.cq, err = c.ctx.CreateCQ(verbs.CQInitAttr{Depth: c.queues.depth, SingleThreaded: true}); err != nil {
		return err
	}
	c.undo.Add(c.cq.Close)
	if c.recvCQ, err = c.ctx.CreateCQ(verbs.CQInitAttr{Depth: c.receives(), SingleThreaded: true}); err != nil {
		return err
	}
	c.undo.Add(c.recvCQ.Close)
	c.qp, err = c.pd.CreateQP(verbs.QPInitAttr{
		Type: verbs.QPTypeRC, SendCQ: c.cq, RecvCQ: c.recvCQ, TD: td,
		Cap: verbs.QPCap{MaxSendWR: c.queues.depth, MaxRecvWR: c.receives(), MaxSendSGE: 1, MaxRecvSGE: 1, MaxInline: c.queues.inline},
	})
	if err != nil {
		return err
	}
	c.undo.Add(c.qp.Close)
	return c.qp.Modify(verbs.QPAttr{State: verbs.QPStateInit, Port: c.port, AccessFlags: allAccess},
		verbs.QPMaskState|verbs.QPMaskPKeyIndex|verbs.QPMaskPort|verbs.QPMaskAccessFlags)
}

// Address implements layer.Conn.
func (c *Conn) Address() ([]byte, error) {
	var err error
	if c.link, err = c.ctx.QueryPort(c.port); err != nil {
		return nil, err
	}
	if c.link.Ethernet {
		list, err := c.ctx.GIDs(c.port)
		if err != nil {
			return nil, err
		}
		var ok bool
		if c.gid, ok = verbs.ChooseGID(list); !ok {
			return nil, errors.New("the port has no GID to send from")
		}
	}
	return address{
		GID: c.gid.GID, LID: c.link.LID, QPN: c.qp.Number(), PSN: c.psn, RKey: c.memory.RKey(),
		Memory: layer.Region{Addr: c.memory.Addr(), Len: uint64(len(c.memory.Bytes()))},
	}.append(nil), nil
}

// Retry settings of uct/ib/rc: a dead peer is detected within seconds if the device does not report it.
const (
	ackTimeoutCode = 18 // about 1 s: 4.096us * 2^18 (IBTA volume 1, Local ACK Timeout)
	retryCount     = 7
	rnrTimerCode   = 14 // 1.28 ms (IBTA volume 1, table 45)
)

// path returns the address vector of peer: its GID on Ethernet; its LID, without a global route header, on InfiniBand.
func (c *Conn) path(peer *address) verbs.AHAttr {
	if !c.link.Ethernet {
		return verbs.AHAttr{Port: c.port, DLID: peer.LID}
	}
	return verbs.AHAttr{Port: c.port, Global: true, SGIDIndex: c.gid.Index, DGID: peer.GID, HopLimit: 1}
}

// Connect implements layer.Conn. It must be called after Address.
func (c *Conn) Connect(b []byte) error {
	peer, err := parseAddress(b, c.cfg.MemLen)
	if err != nil {
		return err
	}
	err = c.qp.Modify(verbs.QPAttr{
		State: verbs.QPStateRTR, PathMTU: c.link.ActiveMTU, DestQPN: peer.QPN, RQPSN: peer.PSN,
		MaxDestRD: uint8(c.queues.reads), MinRNRTimer: rnrTimerCode,
		AH: c.path(&peer),
	}, verbs.QPMaskState|verbs.QPMaskAV|verbs.QPMaskPathMTU|verbs.QPMaskDestQPN|
		verbs.QPMaskRQPSN|verbs.QPMaskMaxDestRD|verbs.QPMaskMinRNRTimer)
	if err != nil {
		return err
	}
	err = c.qp.Modify(verbs.QPAttr{
		State: verbs.QPStateRTS, Timeout: ackTimeoutCode, RetryCnt: retryCount, RNRRetry: verbs.RNRForever,
		SQPSN: c.psn, MaxRDAtomic: uint8(c.queues.reads),
	}, verbs.QPMaskState|verbs.QPMaskTimeout|verbs.QPMaskRetryCnt|verbs.QPMaskRNRRetry|
		verbs.QPMaskSQPSN|verbs.QPMaskMaxRDAtomic)
	if err != nil {
		return err
	}
	c.peer = &peer
	return nil
}

// Memory implements layer.Conn.
func (c *Conn) Memory() []byte { return c.memory.Bytes() }

// Local implements layer.Conn.
func (c *Conn) Local() []byte { return c.local.Bytes() }

// Transport implements layer.Conn.
func (c *Conn) Transport() string { return c.cfg.Transport }

// Progress implements layer.Conn. It polls, and so drives a software device.
func (c *Conn) Progress() int { return c.cq.Poll(c.wc[:]) }

// CQ returns the completion queue of sends. A caller that polls it must pass the completions to Complete.
func (c *Conn) CQ() *verbs.CQ { return c.cq }

// RecvCQ returns the completion queue of receives.
func (c *Conn) RecvCQ() *verbs.CQ { return c.recvCQ }

// QP returns the queue pair, for a caller that posts to it and polls CQ itself.
func (c *Conn) QP() *verbs.QP { return c.qp }

// Lengths returns the depth of the send queue, and the maximum number of consecutive unsignaled work requests.
func (c *Conn) Lengths() (depth, moderation uint64) {
	return uint64(c.queues.depth), uint64(c.queues.moderation)
}

// Idle returns the Idle of the connection.
func (c *Conn) Idle() layer.Idle { return layer.NewIdle(c.cfg) }

// Complete completes the work requests of wc, which must not be empty. It returns the error of the first one that
// failed.
func (c *Conn) Complete(wc []verbs.WC) error {
	for i := range wc {
		if wc[i].Status != verbs.WCSuccess {
			return failed(&wc[i])
		}
	}
	c.done = wc[len(wc)-1].ID
	return nil
}

//go:noinline
func failed(wc *verbs.WC) error {
	return fmt.Errorf("work request %d of qp %#x: %w", wc.ID, wc.QPN, wc.Status.Err())
}

// Outstanding returns the number of posted work requests for which no completion was polled.
func (c *Conn) Outstanding() int { return int(c.posted - c.done) }

// Close implements layer.Conn.
func (c *Conn) Close() error { return c.undo.Run() }
