package verbs

import "github.com/gucx/gucx/ucs"

// SRQ is a shared receive queue: messages that arrive at its QPs consume its receives in the order of
// arrival. Several goroutines may call PostRecv unless the
// queue is in a thread domain.
type SRQ struct {
	pd   *PD
	typ  SRQType
	p    SRQProvider
	up   parents
	life lifetime
}

// CreateSRQ makes a shared receive queue. ErrTooLong beyond the limits of
// DeviceAttr; ErrInvalidParam for an unknown type, an XRC queue without domain or CQ, a
// basic one with, negative values or parents of another context; ErrUnsupported for an
// XRC queue where there is no XRC.
func (pd *PD) CreateSRQ(attr SRQInitAttr) (*SRQ, error) {
	const op = "create SRQ"
	dev := &pd.ctx.attr
	if err := pd.checkSRQParents(&attr); err != nil {
		return nil, err
	}
	if attr.MaxWR < 1 || attr.MaxSGE < 0 {
		return nil, invalid(op, "max_wr %d, max_sge %d", attr.MaxWR, attr.MaxSGE)
	}
	if attr.MaxWR > dev.MaxSRQWR {
		return nil, tooLong(op, "max_wr", attr.MaxWR, dev.MaxSRQWR)
	}
	if attr.MaxSGE > dev.MaxSRQSGE {
		return nil, tooLong(op, "max_sge", attr.MaxSGE, dev.MaxSRQSGE)
	}
	srq := &SRQ{pd: pd, typ: attr.Type, up: parents{&pd.life}}
	if attr.Type == SRQTypeXRC {
		srq.up = append(srq.up, &attr.XRCD.life, &attr.CQ.life)
	}
	if attr.TD != nil {
		srq.up = append(srq.up, &attr.TD.life)
	}
	if err := srq.up.adopt(op); err != nil {
		return nil, err
	}
	p, err := pd.ctx.p.CreateSRQ(srq, attr)
	if err != nil {
		srq.up.release()
		return nil, err
	}
	srq.p = p
	return srq, nil
}

// checkSRQParents checks the type, and that it has the parents that it needs.
func (pd *PD) checkSRQParents(a *SRQInitAttr) error {
	const op = "create SRQ"
	switch {
	case a.Type > SRQTypeXRC:
		return invalid(op, "type %v", a.Type)
	case a.Type == SRQTypeBasic && (a.XRCD != nil || a.CQ != nil):
		return invalid(op, "type %v with an XRC domain or a CQ", a.Type)
	case a.Type == SRQTypeXRC && (a.XRCD == nil || a.CQ == nil):
		return invalid(op, "type %v without XRC domain or CQ", a.Type)
	case a.XRCD != nil && (a.XRCD.ctx != pd.ctx || a.CQ.ctx != pd.ctx):
		return invalid(op, "XRC domain or CQ of another context")
	case a.TD != nil && a.TD.ctx != pd.ctx:
		return invalid(op, "thread domain of another context")
	}
	return nil
}

// Type returns the type of the queue.
func (s *SRQ) Type() SRQType { return s.typ }

// PD is the protection domain of the queue.
func (s *SRQ) PD() *PD { return s.pd }

// Number returns the SRQN: 24 bits. For an XRC queue it is the number for SendWR.SRQN at peers, and
// is unique in the domain.
func (s *SRQ) Number() uint32 { return s.p.Number() }

// PostRecv posts receives in order. n is how many were posted; err is why wr[n]
// was not: ErrNoResource (bare) when the queue is full, ErrInvalidParam for too
// many SGEs. The memory belongs to the device until the receive completes.
func (s *SRQ) PostRecv(wr []RecvWR) (n int, err error) { return s.p.PostRecv(wr) }

// Modify sets the attributes in mask. SRQMaskMaxWR is ErrUnsupported: queues do
// not resize.
func (s *SRQ) Modify(attr SRQAttr, mask SRQAttrMask) error {
	if mask&^(SRQMaskMaxWR|SRQMaskLimit) != 0 {
		return invalid("modify SRQ", "unknown attributes %#x", mask)
	}
	return s.p.Modify(attr, mask)
}

// Query returns the attributes.
func (s *SRQ) Query() (SRQAttr, error) { return s.p.Query() }

// Provider returns the provider's half.
func (s *SRQ) Provider() SRQProvider { return s.p }

// Stop stops an XRC queue: when it has returned nil, the queue receives no more messages, and all its
// completions are in the CQ, where they can be polled until Close. No receives can be posted afterwards. Stop does not
// wait. Errors: ErrUnsupported for a basic queue; *ucs.InUseError while a message of a peer is arriving, which lasts
// as long as a copy unless the peer is stopped meanwhile: call Stop again. Idempotent.
func (s *SRQ) Stop() error {
	p, ok := s.p.(SRQStopper)
	if !ok || s.typ != SRQTypeXRC {
		return opError("stop SRQ", ucs.ErrUnsupported)
	}
	return p.Stop()
}

// Close destroys the queue. Posted receives get no completion, and completions of an
// XRC queue are removed from its CQ. A message that an XRC target is receiving
// into the queue fails like a message to an SRQ that does not exist. Close waits for messages of peers in progress. If
// they are not complete within ucs.RevokeLimit, it returns an *ucs.InUseError, and can be
// called again. ErrBusy while QPs use a basic queue. Idempotent.
func (s *SRQ) Close() error {
	return s.life.close("close SRQ", func() error {
		if err := s.p.Close(); err != nil {
			return err
		}
		s.up.release()
		return nil
	})
}
