package softhca_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/softhca"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// short returns an inline RDMA write of n bytes to offset off of b's memory.
func short(b *node, id uint64, off, n int, flags verbs.SendFlags) verbs.SendWR {
	payload := make([]byte, n)
	fill(payload, byte(id))
	return verbs.SendWR{ID: id, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendInline | flags,
		Inline: payload, RemoteAddr: b.mr.Addr() + uint64(off), RKey: b.mr.RKey()}
}

// Short writes of every length, with one doorbell for all, change only their destinations.
func TestShortWrites_Sizes(t *testing.T) {
	const step = 32
	fabrics(t, defaultLink, func(t *testing.T, a, b *node) {
		want := make([]byte, depth*step)
		list := make([]verbs.SendWR, 0, depth)
		for n := range depth / 2 {
			list = append(list, short(b, uint64(n), n*step, n, verbs.SendSignaled*verbs.SendFlags(n%2)))
			copy(want[n*step:], list[n].Inline)
		}
		a.send(list...)
		for n := 1; n < depth/2; n += 2 {
			wc := a.succeed(uint64(n))
			assert.Equal(t, verbs.WCRDMAWrite, wc.Opcode)
			assert.Equal(t, a.qp.Number(), wc.QPN)
		}
		a.idle()
		require.Equal(t, want, b.buf.Bytes()[:len(want)])
	})
}

// Short writes take effect in the order of the list, also among other work requests.
func TestShortWrites_OrderAmongOthers(t *testing.T) {
	fabrics(t, defaultLink, func(t *testing.T, a, b *node) {
		clear(a.buf.Bytes()[:64])
		read := verbs.SendWR{ID: 3, Opcode: verbs.OpRDMARead, Flags: verbs.SendSignaled,
			SGList: []verbs.SGE{a.mr.SGE(0, 8)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}
		last := short(b, 4, 0, 8, verbs.SendSignaled)
		first := short(b, 1, 0, 8, 0)
		a.send(first, short(b, 2, 8, 60, 0), read, last)
		a.succeed(3)
		a.succeed(4)
		assert.Equal(t, first.Inline, a.buf.Bytes()[:8], "the read is between the writes")
		assert.Equal(t, last.Inline, b.buf.Bytes()[:8])
	})
}

// If a write in the middle of a list fails, it completes with its status, earlier writes have taken
// effect, and later ones are flushed.
func TestShortWrites_FailedWriteFlushesLater(t *testing.T) {
	for name, c := range map[string]struct {
		access verbs.Access
		spoil  func(b *node, wr *verbs.SendWR)
		want   verbs.WCStatus
	}{
		"key":          {anyone, func(_ *node, wr *verbs.SendWR) { wr.RKey ^= 1 }, verbs.WCRemAccessErr},
		"before":       {anyone, func(b *node, wr *verbs.SendWR) { wr.RemoteAddr = b.mr.Addr() - 1 }, verbs.WCRemAccessErr},
		"past the end": {anyone, func(b *node, wr *verbs.SendWR) { wr.RemoteAddr = b.mr.Addr() + bufLen - 7 }, verbs.WCRemAccessErr},
		"wraps around": {anyone, func(_ *node, wr *verbs.SendWR) { wr.RemoteAddr = ^uint64(3) }, verbs.WCRemAccessErr},
		"QP's access":  {verbs.AccessRemoteRead, func(*node, *verbs.SendWR) {}, verbs.WCRemInvReqErr},
	} {
		t.Run(name, func(t *testing.T) {
			l := defaultLink
			l.access = c.access
			fabrics(t, l, func(t *testing.T, a, b *node) {
				clear(b.buf.Bytes()[:64])
				bad, after := short(b, 2, 8, 8, 0), short(b, 3, 16, 8, verbs.SendSignaled)
				c.spoil(b, &bad)
				if c.access == anyone {
					good := short(b, 1, 0, 8, verbs.SendSignaled)
					a.send(good, bad, after)
					a.succeed(1)
					assert.Equal(t, good.Inline, b.buf.Bytes()[:8])
				} else {
					a.send(bad, after)
				}
				a.fail(2, c.want)
				a.fail(3, verbs.WCWRFlushErr)
				assert.Equal(t, make([]byte, 16), b.buf.Bytes()[8:24])
			})
		})
	}
}

// The cached grant of one region is not used for another region, or for memory beside it.
func TestShortWrites_ManyRegions(t *testing.T) {
	fabrics(t, defaultLink, func(t *testing.T, a, b *node) {
		clear(b.buf.Bytes()[:256])
		var mr [2]*verbs.MR
		for i := range mr {
			var err error
			mr[i], err = b.pd.RegMR(b.buf.Bytes()[128*i:][:128], anyone)
			require.NoError(t, err)
		}
		for i := range 16 {
			wr := short(b, uint64(i), 128*(i%2)+8*(i/2), 8, verbs.SendSignaled)
			wr.RKey = mr[i%2].RKey()
			a.send(wr)
			a.succeed(uint64(i))
			assert.Equal(t, wr.Inline, b.buf.Bytes()[128*(i%2)+8*(i/2):][:8])
		}
		wrong := short(b, 20, 128, 8, verbs.SendSignaled)
		wrong.RKey = mr[0].RKey()
		before := bytes.Clone(b.buf.Bytes()[:256])
		a.send(wrong)
		a.fail(20, verbs.WCRemAccessErr)
		assert.Equal(t, before, b.buf.Bytes()[:256])
		require.NoError(t, errors.Join(mr[0].Close(), mr[1].Close()))
	})
}

// Writes to a QP of the peer that has left RTS fail, though earlier ones have succeeded.
func TestShortWrites_PeerStops(t *testing.T) {
	l := defaultLink
	l.timeout, l.retry = 1, 0 // 8 us
	fabrics(t, l, func(t *testing.T, a, b *node) {
		for i := range uint64(3) {
			a.send(short(b, i, 0, 8, verbs.SendSignaled))
			a.succeed(i)
		}
		clear(b.buf.Bytes()[:8])
		require.NoError(t, b.qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPMaskState))
		a.send(short(b, 3, 0, 8, verbs.SendSignaled))
		a.fail(3, verbs.WCRetryExcErr)
		assert.Equal(t, make([]byte, 8), b.buf.Bytes()[:8])
	})
}

// After a region is closed, a peer that writes all the time does not write to it any more.
func TestShortWrites_UntilDereg(t *testing.T) {
	a, b := openNode(t, softhca.Config{}), openNode(t, softhca.Config{})
	for range 20 {
		connect(a, b, defaultLink)
		mr, err := b.pd.RegMR(b.buf.Bytes()[:8], anyone)
		require.NoError(t, err)
		begun, ended := make(chan struct{}), make(chan verbs.WCStatus)
		go func() { ended <- a.writeOn(mr, begun) }()
		<-begun
		testenv.ProgressWithin(t, patience, func() bool { return mr.Close() == nil })
		last := bytes.Clone(b.buf.Bytes()[:8])
		require.Equal(t, verbs.WCRemAccessErr, <-ended)
		require.Equal(t, last, b.buf.Bytes()[:8], "written after the region was closed")
		for _, n := range []*node{a, b} {
			require.NoError(t, n.qp.Close())
			n.qp = n.newQP()
		}
	}
}

// writeOn writes to a region, each time a new value, until a write fails, and returns its status; success
// means that none has failed. begun is closed after some writes, or after the first failure.
func (n *node) writeOn(mr *verbs.MR, begun chan struct{}) verbs.WCStatus {
	wr := verbs.SendWR{Opcode: verbs.OpRDMAWrite, Flags: verbs.SendInline | verbs.SendSignaled,
		Inline: make([]byte, 8), RemoteAddr: mr.Addr(), RKey: mr.RKey()}
	var wc [1]verbs.WC
	tell := sync.OnceFunc(func() { close(begun) })
	defer tell()
	end := time.Now().Add(patience)
	for i := uint64(1); time.Now().Before(end); i++ {
		binary.NativeEndian.PutUint64(wr.Inline, i)
		if k, _ := n.qp.PostSend([]verbs.SendWR{wr}); k != 1 {
			return verbs.WCFatalErr
		}
		for n.cq.Poll(wc[:]) == 0 {
			runtime.Gosched()
		}
		if i == 100 {
			tell()
		}
		if wc[0].Status != verbs.WCSuccess {
			break
		}
	}
	return wc[0].Status
}
