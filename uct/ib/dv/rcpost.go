package dv

import (
	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/race"
	"github.com/gucx/gucx/uct"
)

// MaxInline is the default of TX_MAX_INLINE of rc_mlx5: the maximum length in bytes of a put that
// fits in the four basic blocks of a BlueFlame buffer, as in UCX (experiment 0137 in docs/perf).
const MaxInline = 4*prm.BBLen - prm.CtrlLen - prm.RaddrLen - prm.InlineHdrLen

// Maximum lengths of short operations in one basic block.
const (
	maxPutBB  = prm.MaxShortLen
	amWordLen = 8 // the header of a short message
	maxAMBB   = prm.MaxShortSendLen - amWordLen
)

// PutShort implements uct.Putter with an inline RDMA write of one basic block. putInline writes
// longer ones.
func (e *rcEP) PutShort(buf []byte, raddr uint64, key uct.RKey) error {
	it := e.it
	pi := e.PI
	used := pi - e.CI
	n := len(buf)
	if uint(n-1) >= it.putMaxBB || used >= e.Room {
		return e.putInline(buf, raddr, key)
	}
	if race.Enabled {
		if err := e.sq.enter(); err != nil {
			return err
		}
		defer e.sq.guard.Leave()
	}
	var flags prm.CtrlFlags
	if used == 0 || pi-e.Sig >= it.Moderation {
		flags = prm.CtrlCQUpdate
		e.Sig = pi + 1
	}
	pi++
	e.PI = pi
	q := &e.sq
	b := q.BB(q.pi)
	word := q.Word(q.pi, prm.OpRDMAWrite, prm.ShortSegs(n))
	prm.PutShortWrite(b, word, flags, raddr, uint32(key))
	prm.PutShortData(b, buf)
	q.ringBB(word, b, pi)
	return nil
}

// putInline is PutShort for a WQE of several basic blocks. If buf is too long or there is no room,
// it calls PutShort of the core.
//
//go:noinline
func (e *rcEP) putInline(buf []byte, raddr uint64, key uct.RKey) error {
	it := e.it
	pi := e.PI
	used := pi - e.CI
	n := len(buf)
	if uint(n-maxPutBB-1) >= it.putInlineExtra || used >= e.Room {
		return e.EP.PutShort(buf, raddr, key)
	}
	if race.Enabled {
		if err := e.sq.enter(); err != nil {
			return err
		}
		defer e.sq.guard.Leave()
	}
	var flags prm.CtrlFlags
	if used == 0 || pi-e.Sig >= it.Moderation {
		flags = prm.CtrlCQUpdate
		e.Sig = pi + 1
	}
	pi++
	e.PI = pi
	q := &e.sq
	word := q.Word(q.pi, prm.OpRDMAWrite, prm.ShortSegs(n))
	prm.PutShortWrite(q.BB(q.pi), word, flags, raddr, uint32(key))
	q.PutWriteData(q.pi, buf)
	q.ringBBs(word, pi)
	return nil
}

// AMShort implements uct.AMSender with an inline send of one basic block. amInline writes longer
// ones.
func (e *rcEP) AMShort(id uint8, hdr uint64, payload []byte) error {
	it := e.it
	pi := e.PI
	used := pi - e.CI
	n := len(payload)
	if n > it.amMaxBB || used >= e.Room || e.Credits <= 0 || id > uct.MaxAMID {
		return e.amInline(id, hdr, payload)
	}
	if race.Enabled {
		if err := e.sq.enter(); err != nil {
			return err
		}
		defer e.sq.guard.Leave()
	}
	var flags prm.CtrlFlags
	if used == 0 || pi-e.Sig >= it.Moderation {
		flags = prm.CtrlCQUpdate
		e.Sig = pi + 1
	}
	pi++
	e.PI = pi
	q := &e.sq
	b := q.BB(q.pi)
	word := q.Word(q.pi, prm.OpSendImm, prm.ShortSendSegs(amWordLen+n))
	prm.PutShortSend(b, word, flags, e.ConsumeCredit(id), hdr, payload)
	q.ringBB(word, b, pi)
	return nil
}

// amInline is AMShort for a WQE of several basic blocks. If payload is too long or there is no room
// or credit, it calls AMShort of the core.
//
//go:noinline
func (e *rcEP) amInline(id uint8, hdr uint64, payload []byte) error {
	it := e.it
	pi := e.PI
	used := pi - e.CI
	n := len(payload)
	if uint(n-maxAMBB-1) >= it.amInlineExtra || used >= e.Room || e.Credits <= 0 || id > uct.MaxAMID {
		return e.EP.AMShort(id, hdr, payload)
	}
	if race.Enabled {
		if err := e.sq.enter(); err != nil {
			return err
		}
		defer e.sq.guard.Leave()
	}
	var flags prm.CtrlFlags
	if used == 0 || pi-e.Sig >= it.Moderation {
		flags = prm.CtrlCQUpdate
		e.Sig = pi + 1
	}
	pi++
	e.PI = pi
	q := &e.sq
	word := q.Word(q.pi, prm.OpSendImm, prm.ShortSendSegs(amWordLen+n))
	prm.PutCtrl(q.BB(q.pi), word, flags, e.ConsumeCredit(id))
	q.PutSendData(q.pi, hdr, payload)
	q.ringBBs(word, pi)
	return nil
}
