package udcore

import (
	"errors"
	"fmt"
	"time"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/base"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/internal/buffer"
	"github.com/gucx/gucx/uct/ib/internal/dgram"
	"github.com/gucx/gucx/uct/ib/internal/ibport"
	"github.com/gucx/gucx/uct/ib/internal/wake"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// SendQueue is the send queue of an iface: a verbs.QP, or direct access to the queue of one.
type SendQueue interface {
	// PostSend has the contract of verbs.QP.PostSend. The iface ensures that there is room.
	PostSend(wr []verbs.SendWR) (n int, err error)
}

// CompQueue is the completion queue of an iface: a verbs.CQ, or direct access to its memory. Its
// methods have the contracts of verbs.CQ.
type CompQueue interface {
	Poll(wc []verbs.WC) int
	Arm(solicitedOnly bool) error
}

// Driver returns the queues of an iface for a QP, which is in RTS and without posts, and its CQ.
// Transports over this package differ only in their Driver.
type Driver func(qp *verbs.QP, cq *verbs.CQ) (SendQueue, buffer.RecvPoster, CompQueue, error)

// Verbs is the Driver that uses verbs for all queues.
func Verbs(qp *verbs.QP, cq *verbs.CQ) (SendQueue, buffer.RecvPoster, CompQueue, error) {
	return qp, qp, cq, nil
}

// Params are the parameters of Open.
type Params struct {
	// Name is the name of the transport in uct.Resource.
	Name string
	Port uint8
	// Config is used for ifaces that are opened without one.
	Config Config
	// Overhead is the declared cost of a post.
	Overhead time.Duration
	Driver   Driver
	// Self is the uct.Iface for the user: the Iface, or one that embeds it.
	Self uct.Iface
}

// Open opens the iface it on a port of md. p.Config is nil, a Config or a *Config. After an error
// nothing is open.
func Open(it *Iface, md *ib.MD, own Params, p uct.IfaceParams) error {
	cfg, err := pick(own.Config, md, p)
	if err == nil {
		cfg, err = cfg.fit(md.DeviceAttr())
	}
	if err == nil {
		it.name, it.self, it.cost, it.md, it.onError, it.cfg = own.Name, own.Self, own.Overhead, md, p.OnError, cfg
		err = it.openOn(own)
	}
	if err != nil {
		return &ucs.OpError{TL: own.Name, Dev: p.Device, Op: "open iface", Err: err}
	}
	return nil
}

// pick returns the configuration in p, or defaults, and completes it.
func pick(other Config, md *ib.MD, p uct.IfaceParams) (Config, error) {
	cfg, err := base.PickConfig(p.Config, other)
	if err != nil {
		return cfg, err
	}
	cfg.IB = cfg.IB.With(md.Config().Endpoints)
	return cfg.withDefaults()
}

// openOn makes all parts of the iface.
func (it *Iface) openOn(own Params) (err error) {
	var undo cleanup.Stack
	defer func() {
		if err != nil {
			err = errors.Join(err, undo.Run())
		}
	}()
	md := it.md
	if err = md.Hold(); err != nil {
		return err
	}
	undo.Add(func() error { md.Drop(); return nil })
	if it.port, err = ibport.Open(md, own.Port, it.cfg.IB); err != nil {
		return err
	}
	it.mtu = it.port.Attr.ActiveMTU.Bytes()
	if it.pool, err = buffer.NewPool(md, it.cfg.TxBuffers, it.mtu); err != nil {
		return err
	}
	undo.Add(it.pool.Close)
	if err = it.openQueues(&undo); err != nil {
		return err
	}
	undo.Add(it.closePeers)
	if err = it.openReceives(own.Driver, &undo); err != nil {
		return err
	}
	it.prepare()
	it.fillAttr()
	md.Subscribe(it)
	it.undo = undo.Release()
	return nil
}

// openReceives opens the queues and fills the receive queue.
func (it *Iface) openReceives(drive Driver, undo *cleanup.Stack) (err error) {
	var poster buffer.RecvPoster
	if it.send, poster, it.comp, err = drive(it.qp, it.cq); err != nil {
		return err
	}
	it.rx, err = buffer.NewRecvQueue(it.md, poster, buffer.RecvParams{
		Count: it.cfg.RxDepth, Prefix: rxPrefix, Payload: it.mtu - dgram.HeaderLen,
	})
	if err != nil {
		return err
	}
	// The device writes to the buffers until the QP is destroyed.
	undo.Add(func() error { return errors.Join(it.closeQP(), it.rx.Close()) })
	return it.rx.Posted()
}

// rxPrefix is the length before the payload of a datagram: the area of the global routing header
// (IBTA volume 1, 11.4.1.2) and our header.
const (
	grhLen   = 40
	rxPrefix = grhLen + dgram.HeaderLen
)

// queueKey is the Q_Key of all gucx datagram QPs. A QP drops datagrams with another one. The top
// bit is clear, which marks unprivileged keys (IBTA volume 1, 10.2.5).
const queueKey = 0x67756378

func (it *Iface) openQueues(undo *cleanup.Stack) (err error) {
	if it.wake, err = wake.Open(it.md.Context(), &it.attn, undo.Add); err != nil {
		return err
	}
	if it.sharing, err = it.md.OpenSharing(it.name, it.port.Num, it.cfg.IB.Endpoints, undo.Add); err != nil {
		return err
	}
	depth := it.cfg.TxDepth + it.cfg.RxDepth
	if it.cq, err = it.sharing.CreateCQ(verbs.CQInitAttr{Depth: depth, Channel: it.wake.Channel()}, undo.Add); err != nil {
		return err
	}
	it.qp, err = it.sharing.CreateQP(verbs.QPInitAttr{
		Type: verbs.QPTypeUD,
		Cap: verbs.QPCap{
			MaxSendWR: it.cfg.TxDepth, MaxSendSGE: it.cfg.TxMaxSGE, MaxInline: int(it.cfg.TxMaxInline),
			MaxRecvWR: it.cfg.RxDepth, MaxRecvSGE: 1,
		},
	})
	if err != nil {
		return fmt.Errorf("create qp: %w", err)
	}
	it.qp.SetUserContext(it)
	undo.Add(it.closeQP)
	return it.qpToRTS()
}

func (it *Iface) qpToRTS() error {
	for _, step := range []struct {
		attr verbs.QPAttr
		mask verbs.QPAttrMask
	}{
		{verbs.QPAttr{State: verbs.QPStateInit, Port: it.port.Num, QKey: queueKey},
			verbs.QPMaskState | verbs.QPMaskPKeyIndex | verbs.QPMaskPort | verbs.QPMaskQKey},
		{verbs.QPAttr{State: verbs.QPStateRTR}, verbs.QPMaskState},
		{verbs.QPAttr{State: verbs.QPStateRTS}, verbs.QPMaskState | verbs.QPMaskSQPSN},
	} {
		if err := it.qp.Modify(step.attr, step.mask); err != nil {
			return fmt.Errorf("modify qp %#x to %v: %w", it.qp.Number(), step.attr.State, err)
		}
	}
	return nil
}

// closeQP destroys the QP, once.
func (it *Iface) closeQP() error {
	if it.qp == nil {
		return nil
	}
	qp := it.qp
	it.qp = nil
	return it.sharing.CloseQP(qp)
}
