package ib

import (
	"fmt"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// RecvPoster is a receive queue: a verbs.QP or verbs.SRQ.
type RecvPoster interface {
	PostRecv(wr []verbs.RecvWR) (n int, err error)
}

// RecvParams makes a RecvQueue. Lengths in bytes.
type RecvParams struct {
	Count   int // buffers
	Prefix  int // in front of the payload: what the device or the wire header takes
	Payload int // longest payload
}

// RecvQueue keeps a receive queue filled with registered buffers and lends them
// to handlers. It belongs to the owner of an iface; nothing allocates after
// NewRecvQueue.
//
//	| pad | prefix | payload |      the payload starts on a cache line
type RecvQueue struct {
	poster RecvPoster
	pool   *Pool
	bufs   []RecvBuf
	prefix int
	batch  int
	repost []verbs.RecvWR // buffers to post, at most batch
}

// RecvBuf is one receive buffer: the uct.Desc that handlers may keep.
type RecvBuf struct {
	q    *RecvQueue
	i    uint32
	lent bool
	sge  [1]verbs.SGE
	data []byte // prefix and payload
}

var _ uct.Desc = (*RecvBuf)(nil)

// RecvID marks the WR IDs of receives: the opcode of a failed completion is not
// valid. Transports keep the IDs of sends below it.
const RecvID = 1 << 63

// maxRepost is how many receives are posted at a time.
const maxRepost = 16

// NewRecvQueue makes the buffers and posts them all to poster.
func (md *MD) NewRecvQueue(poster RecvPoster, p RecvParams) (*RecvQueue, error) {
	q := &RecvQueue{poster: poster, prefix: p.Prefix}
	start := AlignLine(p.Prefix) - p.Prefix
	pool, err := md.NewPool(p.Count, start+p.Prefix+p.Payload)
	if err != nil {
		return nil, err
	}
	q.pool = pool
	q.bufs = make([]RecvBuf, p.Count)
	q.batch = max(min(maxRepost, p.Count/4), 1)
	q.repost = make([]verbs.RecvWR, 0, q.batch)
	for i := range q.bufs {
		b := &q.bufs[i]
		b.q, b.i = q, uint32(i)
		b.sge[0] = pool.SGE(b.i, start, p.Prefix+p.Payload)
		b.data = pool.Bytes(b.i)[start:]
		q.Put(b)
	}
	return q, nil
}

// Posted checks, after NewRecvQueue, that the device took the receives.
func (q *RecvQueue) Posted() error {
	if err := q.post(); err != nil {
		return fmt.Errorf("post receives: %w", err)
	}
	return nil
}

// Buf is the buffer that a completion with the given ID has filled.
func (q *RecvQueue) Buf(id uint64) *RecvBuf { return &q.bufs[id&^RecvID] }

// Put gives a buffer back to the device, together with others when there is a
// batch.
func (q *RecvQueue) Put(b *RecvBuf) {
	q.repost = append(q.repost, verbs.RecvWR{ID: RecvID | uint64(b.i), SGList: b.sge[:]})
	if len(q.repost) >= q.batch {
		// What the device refuses stays in repost; the next Put tries again.
		_ = q.post()
	}
}

func (q *RecvQueue) post() error {
	n, err := q.poster.PostRecv(q.repost)
	q.repost = q.repost[:copy(q.repost, q.repost[n:])]
	return err
}

// Deliver gives the payload of b, which follows the prefix and has n bytes, to
// the handler of id, and takes the buffer back unless the handler keeps it.
func (q *RecvQueue) Deliver(h AMHandlers, id uint8, b *RecvBuf, n int) {
	data := b.data[q.prefix : q.prefix+n]
	b.lent = true
	if !h.Handle(id, data, b) {
		b.lent = false
		q.Put(b)
	}
}

// AMHandlers is a base.AMTable.
type AMHandlers interface {
	Handle(id uint8, data []byte, desc uct.Desc) (keep bool)
}

// Close frees the buffers, which the device must not use any more.
func (q *RecvQueue) Close() error { return q.pool.Close() }

// Len is the number of bytes that the device may fill, with the prefix.
func (b *RecvBuf) Len() int { return int(b.sge[0].Length) }

// Bytes is the first n bytes that the device filled, n <= Len.
func (b *RecvBuf) Bytes(n int) []byte { return b.data[:n] }

// Release implements uct.Desc.
func (b *RecvBuf) Release() {
	if b.lent {
		b.lent = false
		b.q.Put(b)
	}
}
