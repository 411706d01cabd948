package buffer

import (
	"fmt"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// RecvPoster posts to a receive queue, such as a verbs.QP or verbs.SRQ.
type RecvPoster interface {
	PostRecv(wr []verbs.RecvWR) (n int, err error)
}

// RecvParams are the parameters of a RecvQueue. Lengths are in bytes.
type RecvParams struct {
	Count   int // number of buffers
	Prefix  int // length before the payload, for the device and the wire header
	Payload int // maximum length of the payload
}

// RecvQueue fills a receive queue with registered buffers and passes received ones to handlers. The
// owner of an iface owns it; its methods do not allocate.
//
//	| pad | prefix | payload |      the payload starts on a cache line
type RecvQueue struct {
	poster RecvPoster
	pool   *Pool
	bufs   []RecvBuf
	prefix int
	batch  int
	repost []verbs.RecvWR // receives to post, at most batch
}

// RecvBuf is a receive buffer: the uct.Desc that handlers may retain.
type RecvBuf struct {
	q           *RecvQueue
	i           uint32
	handlerOwns bool
	sge         [1]verbs.SGE
	data        []byte // prefix and payload
}

var _ uct.Desc = (*RecvBuf)(nil)

// RecvID is a bit in the WR IDs of receives, because the opcode of a failed completion is not
// valid. IDs of sends must be below it.
const RecvID = 1 << 63

// maxRepost is the maximum number of receives that are posted together.
const maxRepost = 16

// NewRecvQueue makes the buffers in md and posts them to poster.
func NewRecvQueue(md *ib.MD, poster RecvPoster, p RecvParams) (*RecvQueue, error) {
	q := &RecvQueue{poster: poster, prefix: p.Prefix}
	start := alignLine(p.Prefix) - p.Prefix
	pool, err := NewPool(md, p.Count, start+p.Prefix+p.Payload)
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

// Posted checks, after NewRecvQueue, that the device has accepted the receives.
func (q *RecvQueue) Posted() error {
	if err := q.post(); err != nil {
		return fmt.Errorf("post receives: %w", err)
	}
	return nil
}

// Buf returns the buffer of a completion with this ID.
func (q *RecvQueue) Buf(id uint64) *RecvBuf { return &q.bufs[id&^RecvID] }

// Put posts a buffer again, together with others when there are enough for a batch.
func (q *RecvQueue) Put(b *RecvBuf) {
	q.repost = append(q.repost, verbs.RecvWR{ID: RecvID | uint64(b.i), SGList: b.sge[:]})
	if len(q.repost) >= q.batch {
		// Receives that the device rejects remain in repost; the next Put posts them again.
		_ = q.post()
	}
}

func (q *RecvQueue) post() error {
	n, err := q.poster.PostRecv(q.repost)
	q.repost = q.repost[:copy(q.repost, q.repost[n:])]
	return err
}

// Deliver passes the payload of b, which follows the prefix and has n bytes, to the handler of id.
// It posts the buffer again unless the handler retains it.
func (q *RecvQueue) Deliver(h AMHandlers, id uint8, b *RecvBuf, n int) {
	data := b.data[q.prefix : q.prefix+n]
	b.handlerOwns = true
	if !h.Handle(id, data, b) {
		b.handlerOwns = false
		q.Put(b)
	}
}

// AMHandlers is a base.AMTable.
type AMHandlers interface {
	Handle(id uint8, data []byte, desc uct.Desc) (keep bool)
}

// Close frees the buffers. The device must not use them any more.
func (q *RecvQueue) Close() error { return q.pool.Close() }

// Len returns the number of bytes that the device may write, including the prefix.
func (b *RecvBuf) Len() int { return int(b.sge[0].Length) }

// Bytes returns the first n bytes that the device has written; n <= Len.
func (b *RecvBuf) Bytes(n int) []byte { return b.data[:n] }

// Release implements uct.Desc.
func (b *RecvBuf) Release() {
	if b.handlerOwns {
		b.handlerOwns = false
		b.q.Put(b)
	}
}
