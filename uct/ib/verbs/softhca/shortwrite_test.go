package softhca_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/uct/ib/verbs"
)

// short is an inline RDMA write of n bytes to offset off of b's memory.
func short(b *node, id uint64, off, n int, flags verbs.SendFlags) verbs.SendWR {
	payload := make([]byte, n)
	fill(payload, byte(id))
	return verbs.SendWR{ID: id, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendInline | flags,
		Inline: payload, RemoteAddr: b.mr.Addr() + uint64(off), RKey: b.mr.RKey()}
}

// Short writes of every length, one doorbell for all, change what they should and
// nothing beside it.
func TestShortWrites_Sizes(t *testing.T) {
	const step = 32
	fabrics(t, plain, func(t *testing.T, a, b *node) {
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

// Short writes take effect in the order of the list, among work requests that go the
// general way.
func TestShortWrites_OrderAmongOthers(t *testing.T) {
	fabrics(t, plain, func(t *testing.T, a, b *node) {
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

// A write that is refused in the middle of a list ends with its status, those before
// it have been done, those after it are flushed.
func TestShortWrites_Refused(t *testing.T) {
	for name, c := range map[string]struct {
		access verbs.Access
		spoil  func(b *node, wr *verbs.SendWR)
		want   verbs.WCStatus
	}{
		"key":          {anyone, func(_ *node, wr *verbs.SendWR) { wr.RKey ^= 1 }, verbs.WCRemAccessErr},
		"before":       {anyone, func(b *node, wr *verbs.SendWR) { wr.RemoteAddr = b.mr.Addr() - 1 }, verbs.WCRemAccessErr},
		"past the end": {anyone, func(b *node, wr *verbs.SendWR) { wr.RemoteAddr = b.mr.Addr() + bufLen - 7 }, verbs.WCRemAccessErr},
		"wraps around": {anyone, func(_ *node, wr *verbs.SendWR) { wr.RemoteAddr = ^uint64(3) }, verbs.WCRemAccessErr},
		"QP's right":   {verbs.AccessRemoteRead, func(*node, *verbs.SendWR) {}, verbs.WCRemInvReqErr},
	} {
		t.Run(name, func(t *testing.T) {
			l := plain
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
