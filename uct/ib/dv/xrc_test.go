package dv

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct/ib/internal/ibtest"
	"github.com/gucx/gucx/uct/ib/internal/xrccore"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
	"github.com/gucx/gucx/uct/ucttest"
)

func tinyXRC(o ucttest.Options) xrccore.Config {
	return xrccore.Config{Config: tinyRC(o), QueueConns: 2, QueueTxDepth: 4, QueueCQDepth: 1 << 10}
}

// The suites have queues for a few messages.
var (
	xrcSuite = ibtest.Suite{
		Transport: XRC(XRCConfig{}),
		Config:    func(o ucttest.Options) any { return tinyXRC(o) },
		OneSided:  true,
	}
	xrcListSuite = ibtest.Suite{
		Transport: XRC(XRCConfig{}),
		Config:    func(o ucttest.Options) any { return &XRCConfig{Config: tinyXRC(o), TxPostlist: postlist} },
		OneSided:  true,
	}
	// xrcNodeSuite has an XRC domain that the ifaces of the process share.
	xrcNodeSuite = ibtest.Suite{
		Transport: XRC(XRCConfig{}),
		Config: func(o ucttest.Options) any {
			c := tinyXRC(o)
			c.ShareDomain = xrccore.ShareProcess
			return c
		},
		OneSided: true, OneSidedAM: true,
	}
	// xrcHostSuite has an XRC domain that all processes of the test share.
	xrcHostSuite = ibtest.Suite{
		Transport: XRC(XRCConfig{}),
		Config: func(o ucttest.Options) any {
			c := tinyXRC(o)
			c.ShareDomain, c.DomainDir = xrccore.ShareHost, os.Getenv(domainDirEnv)
			return c
		},
		OneSided: true, OneSidedAM: true,
	}
)

// domainDirEnv is the environment variable with the directory of the domain file.
const domainDirEnv = "GUCX_XRC_TEST_DOMAIN_DIR"

// Names of peers.
const (
	xrcPeer     = "xrc-shm"
	xrcNodePeer = "xrc-node-shm"
	xrcHostPeer = "xrc-host-shm"
)

func TestConformanceXRC_Loop(t *testing.T) {
	testenv.SkipSweep(t, "a suite; the one in a domain and that of rc_mlx5 cover it")
	ucttest.Test(t, xrcSuite.On(softhca.FabricLoop))
}

func TestConformanceXRC_NodeLoop(t *testing.T) {
	ucttest.Test(t, ibtest.Brief(xrcNodeSuite.On(softhca.FabricLoop)))
}

func TestConformanceXRC_Shm(t *testing.T) {
	testenv.SkipSweep(t, "a suite; those of rc_mlx5 and xrc over shm cover it")
	ucttest.Test(t, xrcSuite.Peers(xrcPeer))
}

func TestConformanceXRC_ListLoop(t *testing.T) {
	testenv.SkipSweep(t, "a suite; that of rc_mlx5 with lists covers it")
	ucttest.Test(t, xrcListSuite.On(softhca.FabricLoop))
}

func TestConformanceXRC_NodeShm(t *testing.T) {
	testenv.SkipSweep(t, "a suite; that of xrc over shm covers it")
	ucttest.Test(t, xrcNodeSuite.Peers(xrcNodePeer))
}

func TestConformanceXRC_HostShm(t *testing.T) {
	testenv.SkipSweep(t, "a suite; that of xrc with a domain of the host covers it")
	t.Setenv(domainDirEnv, t.TempDir())
	ucttest.Test(t, xrcHostSuite.Peers(xrcHostPeer))
}

// newXRCs makes an iface with an initiator and an XRC SRQ on a bench.
func newXRCs(t require.TestingT, b *bench) (*rcIface, *xrcSend, *xrcRecv) {
	it := &rcIface{}
	require.NoError(t, it.cq.open(b.cq))
	it.clearRecent()
	send, err := it.OpenSend(b.qp)
	require.NoError(t, err)
	recv, err := it.OpenRecv(b.srq)
	require.NoError(t, err)
	return it, send.(*xrcSend), recv.(*xrcRecv)
}

// pollXRC handles an entry like Progress. ok is false if the entry has no completion.
func (it *rcIface) pollXRC(t require.TestingT) (wc verbs.WC, ok bool) {
	s, tail := it.cq.Peek()
	require.True(t, it.cq.Owned(tail))
	it.cq.Take()
	return wc, it.xrcQueues[s.UserIndex()].parse(s, tail, &wc)
}

// TestParseXRC_LikeVerbs polls the entries of an initiator and of an XRC SRQ like verbs, several
// times round the queue. An entry of a send with the user index of the SRQ is invalid, and the
// reverse.
func TestParseXRC_LikeVerbs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newTwins(t, t.Cleanup, verbs.QPTypeXRCSend)
		it, send, recv := newXRCs(t, w.direct)
		i := w.fillRing(t, &send.sendQueue, verbs.OpSend, [2]*verbs.AH{})
		for range i {
			it.cq.Take()
		}
		r := receives{post: [2]func([]verbs.RecvWR) (int, error){w.over.srq.PostRecv, recv.PostRecv}}
		for range rapid.IntRange(1, 200).Draw(t, "entries") {
			head, _ := recv.Ends()
			r.postTo(t, uint64(i), head)
			s := drawCQE(t, w.over.qp.Number(), w.qpIndex(), r.waiting[0])
			if s.Tail().OfReceive() {
				s = withIndex(s, recv.index)
			}
			w.cqe(t, i, slotBytes(s))
			i++
			var over [2]verbs.WC
			n := w.over.cq.Poll(over[:])
			got, ok := it.pollXRC(t)
			require.Equal(t, n == 1, ok)
			if ok {
				requireSame(t, verbs.QPTypeRC, over[0], got)
				if got.ID >= recvIDs {
					r.waiting = r.waiting[1:]
				}
			}
		}
	})
}

// withIndex returns an entry with another user index.
func withIndex(s *prm.CQESlot, index uint32) *prm.CQESlot {
	var e prm.CQE
	s.Read(&e, 0)
	e.UserIndex = index
	out := &prm.CQESlot{}
	out.Write(&e, 0)
	return out
}

// TestParseXRC_RejectsWrongQueueType: an entry with the user index of the other type of queue has
// no completion, and frees no receive.
func TestParseXRC_RejectsWrongQueueType(t *testing.T) {
	b := newBench(t, t.Cleanup, verbs.QPTypeXRCSend, rcLimits)
	it, send, recv := newXRCs(t, b)
	head, tail := recv.Ends()
	for i, e := range []prm.CQE{
		{Opcode: prm.CQERespSend, UserIndex: send.index},
		{Opcode: prm.CQERespErr, UserIndex: send.index},
		{Opcode: prm.CQEReq, UserIndex: recv.index},
		{Opcode: prm.CQEReqErr, UserIndex: recv.index},
	} {
		b.cqe(t, uint32(i), &e)
		_, ok := it.pollXRC(t)
		assert.False(t, ok, "entry %d", i)
	}
	gotHead, gotTail := recv.Ends()
	assert.Equal(t, [2]uint16{head, tail}, [2]uint16{gotHead, gotTail})
}

// TestXRC_RemovesCompletions: a reset or close of a queue removes its completions, and not those of
// others.
func TestXRC_RemovesCompletions(t *testing.T) {
	for name, end := range map[string]func(*rcIface, *xrcSend, *xrcRecv) (gone uint32){
		"reset":      func(it *rcIface, s *xrcSend, _ *xrcRecv) uint32 { it.ResetSend(s); return s.index },
		"close send": func(it *rcIface, s *xrcSend, _ *xrcRecv) uint32 { it.CloseSend(s); return s.index },
		"close recv": func(it *rcIface, _ *xrcSend, r *xrcRecv) uint32 { it.CloseRecv(r); return r.index },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, t.Cleanup, verbs.QPTypeXRCSend, rcLimits)
			it, send, recv := newXRCs(t, b)
			for i := range uint32(6) {
				e := prm.CQE{Opcode: prm.CQEReq, UserIndex: send.index, WQECounter: uint16(i)}
				if i%2 == 1 {
					e.Opcode, e.UserIndex = prm.CQERespSend, recv.index
				}
				b.cqe(t, i, &e)
			}
			gone := end(it, send, recv)
			for range 3 {
				s, tail := it.cq.Peek()
				require.True(t, it.cq.Owned(tail))
				assert.NotEqual(t, gone, s.UserIndex())
				it.cq.Take()
			}
			_, tail := it.cq.Peek()
			assert.False(t, it.cq.Owned(tail))
		})
	}
}

// TestResetSend_StartsAtZero: the first work request after RESET is at index 0, where the device
// expects it.
func TestResetSend_StartsAtZero(t *testing.T) {
	b := newBench(t, t.Cleanup, verbs.QPTypeXRCSend, rcLimits)
	it, q, _ := newXRCs(t, b)
	wr := []verbs.SendWR{{ID: 7, Opcode: verbs.OpSend, SRQN: 3, Flags: verbs.SendInline, Inline: pattern(8)}}
	for range 3 {
		_, err := q.PostSend(wr)
		require.NoError(t, err)
	}
	require.NoError(t, b.qp.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPMaskState))
	it.ResetSend(q)
	wr[0].ID = 8
	_, err := q.PostSend(wr)
	require.NoError(t, err)
	assert.EqualValues(t, 1, b.raw.DBRec.Send())
	assert.EqualValues(t, 8, *q.id(0))
	last := b.hw.rings[len(b.hw.rings)-1]
	assert.Equal(t, bytesOf(b.raw.SQ)[:64], last.page[:64])
}
