package rxe_test

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct/ib/verbs"
)

const (
	srqQPs   = 4
	srqDepth = 100
	// srqAddrs is the number of addresses that each side of ibv_srq_pingpong writes. Only the first srqQPs are valid.
	srqAddrs = 256
)

// TestSRQPingpong runs ibv_srq_pingpong as server and as client of the test.
func TestSRQPingpong(t *testing.T) {
	name, peer := pingpongDevices(t)
	for _, server := range []bool{true, false} {
		t.Run(fmt.Sprintf("server=%t", server), func(t *testing.T) {
			path := testenv.Command(t, "ibv_srq_pingpong")
			p := newSRQPingpong(t, name)
			args := []string{"-d", peer, "-g", strconv.Itoa(int(p.gid.Index)), "-n", strconv.Itoa(pingpongRuns), "-s", strconv.Itoa(pingpongSize),
				"-q", strconv.Itoa(srqQPs), "-r", strconv.Itoa(srqDepth)}
			againstProgram(t, path, args, server, p.serve, p.client)
			p.play(t, !server)
		})
	}
}

// srqPingpong is the test's side: several QPs with one SRQ and one CQ.
type srqPingpong struct {
	cq    *verbs.CQ
	srq   *verbs.SRQ
	mr    *verbs.MR
	gid   verbs.GIDEntry
	qps   []*verbs.QP
	peers []pingpongAddr
}

func newSRQPingpong(t *testing.T, name string) *srqPingpong {
	later := func(f func() error) { t.Cleanup(func() { assert.NoError(t, f()) }) }
	ctx := openContext(t, name)
	p := &srqPingpong{}
	gids, err := ctx.GIDs(1)
	require.NoError(t, err)
	p.gid, _ = verbs.ChooseGID(gids)
	pd, err := ctx.AllocPD()
	require.NoError(t, err)
	later(pd.Close)
	buf, err := ctx.AllocBuffer(pingpongSize)
	require.NoError(t, err)
	later(buf.Close)
	p.mr, err = pd.RegMR(buf.Bytes(), verbs.AccessLocalWrite)
	require.NoError(t, err)
	later(p.mr.Close)
	p.cq, err = ctx.CreateCQ(verbs.CQInitAttr{Depth: srqDepth + srqQPs})
	require.NoError(t, err)
	later(p.cq.Close)
	p.srq, err = pd.CreateSRQ(verbs.SRQInitAttr{MaxWR: srqDepth, MaxSGE: 1})
	require.NoError(t, err)
	later(p.srq.Close)
	for range srqQPs {
		qp, err := pd.CreateQP(verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: p.cq, RecvCQ: p.cq, SRQ: p.srq, Cap: verbs.QPCap{MaxSendWR: 1}})
		require.NoError(t, err)
		later(qp.Close)
		require.NoError(t, qp.Modify(verbs.QPAttr{State: verbs.QPStateInit, Port: 1},
			verbs.QPMaskState|verbs.QPMaskPKeyIndex|verbs.QPMaskPort|verbs.QPMaskAccessFlags))
		p.qps = append(p.qps, qp)
	}
	for range srqDepth {
		p.recv(t)
	}
	return p
}

func (p *srqPingpong) recv(t *testing.T) {
	_, err := p.srq.PostRecv([]verbs.RecvWR{{ID: 1, SGList: []verbs.SGE{p.mr.SGE(0, pingpongSize)}}})
	require.NoError(t, err)
}

func (p *srqPingpong) write(t *testing.T, c net.Conn) {
	for i := range srqAddrs {
		own := pingpongAddr{psn: pingpongPSN, gid: p.gid.GID}
		if i < srqQPs {
			own.qpn = p.qps[i].Number()
		}
		_, err := c.Write(own.message())
		require.NoError(t, err)
	}
}

// read reads the addresses and ignores those after the first srqQPs.
func (p *srqPingpong) read(t *testing.T, c net.Conn) {
	for range srqQPs {
		p.peers = append(p.peers, readPingpongAddr(t, c))
	}
	for range srqAddrs - srqQPs {
		skipPingpongAddr(t, c)
	}
}

func (p *srqPingpong) connect(t *testing.T) {
	for i, qp := range p.qps {
		connectPingpong(t, qp, p.peers[i], p.gid.Index)
	}
}

func (p *srqPingpong) client(t *testing.T) {
	dialPingpong(t, func(c net.Conn) {
		p.write(t, c)
		p.read(t, c)
	})
	p.connect(t)
}

func (p *srqPingpong) serve(t *testing.T, l net.Listener) {
	acceptPingpong(t, l, func(c net.Conn) {
		p.read(t, c)
		p.connect(t)
		p.write(t, c)
	})
}

// play sends on each QP when its last send and a receive are complete. A client sends first. Both sides count sends and
// receives of all QPs together, and stop sending when pingpongRuns sends are complete.
func (p *srqPingpong) play(t *testing.T, first bool) {
	var due [srqQPs]struct{ send, recv bool } // completions that each QP waits for
	send := func(i int) {
		due[i].send, due[i].recv = true, true
		_, err := p.qps[i].PostSend([]verbs.SendWR{{ID: 2, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGList: []verbs.SGE{p.mr.SGE(0, pingpongSize)}}})
		require.NoError(t, err)
	}
	for i := range p.qps {
		if due[i].recv = true; first {
			send(i)
		}
	}
	sent, received := 0, 0
	var wc [4]verbs.WC
	testenv.ProgressWithin(t, pingpongWait, func() bool {
		for _, c := range wc[:max(p.cq.Poll(wc[:]), 0)] {
			require.Equal(t, verbs.WCSuccess, c.Status)
			i := slices.IndexFunc(p.qps, func(qp *verbs.QP) bool { return qp.Number() == c.QPN })
			require.GreaterOrEqual(t, i, 0, "a completion of QP %#x", c.QPN)
			if c.ID == 1 {
				received++
				due[i].recv = false
				assert.EqualValues(t, pingpongSize, c.ByteLen)
				p.recv(t)
			} else {
				sent++
				due[i].send = false
			}
			if sent < pingpongRuns && !due[i].send && !due[i].recv {
				send(i)
			}
		}
		return sent >= pingpongRuns && received >= pingpongRuns
	})
}
