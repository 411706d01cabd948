package xrccore

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/internal/ibtest"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// received waits until the process has received at least n messages, and returns their first bytes.
func (p *process) received(n int, sides ...*side) (got []byte) {
	p.t.Helper()
	testenv.ProgressWithin(p.t, testenv.Watchdog, func() bool {
		got = p.do(hostCommand{Do: "got"}, sides...).Got
		return len(got) >= n
	})
	return got
}

// nodeQPs returns the numbers of initiators and targets of all processes of a node. It counts a target that several
// processes opened once.
func nodeQPs(t *testing.T, procs []*process) (initiators, targets int) {
	t.Helper()
	seen := map[uint32]bool{}
	for _, p := range procs {
		r := p.do(hostCommand{Do: "count"})
		require.Equal(t, r.Initiators+len(r.Targets), r.QPs, "the device has no other QPs")
		initiators += r.Initiators
		for _, n := range r.Targets {
			seen[n] = true
		}
	}
	return initiators, len(seen)
}

// sum returns the number of QPs of all processes.
func sum(procs []*process) (n int) {
	for _, p := range procs {
		n += p.do(hostCommand{Do: "count"}).QPs
	}
	return n
}

// startHosts starts n processes in the domain of each directory of dirs. With two directories it connects each process
// to each process of the other domain, with one directory each process to each other. It then sends a message over each
// EP.
func startHosts(t *testing.T, share string, n int, dirs ...string) (nodes [][]*process) {
	t.Helper()
	for _, dir := range dirs {
		var procs []*process
		for range n {
			procs = append(procs, startHost(t, share, dir))
		}
		nodes = append(nodes, procs)
	}
	last := nodes[len(nodes)-1]
	for i, p := range nodes[0] {
		for _, q := range last[min(i+1, (2-len(dirs))*n):] {
			a, b := connectProcesses(p, q)
			p.do(hostCommand{Do: "send", EP: a, Byte: 1})
			q.do(hostCommand{Do: "send", EP: b, Byte: 2})
		}
	}
	for _, procs := range nodes {
		for _, p := range procs {
			p.received(p.eps)
		}
	}
	return nodes
}

// TestHost_QPsBetweenNodes: two nodes have n processes each, and each process has an EP to each process of the other
// node. Then each process has one initiator, and each node has one target for each process of the other node.
func TestHost_QPsBetweenNodes(t *testing.T) {
	const n = 3
	for _, procs := range startHosts(t, ShareHost, n, t.TempDir(), t.TempDir()) {
		initiators, targets := nodeQPs(t, procs)
		assert.Equal(t, n, initiators)
		assert.Equal(t, n, targets)
		for _, p := range procs {
			assert.Equal(t, n, p.eps, "without a shared domain, each EP would have a QP")
		}
	}
}

// TestHost_QPsWithinNode: n processes of one node that are all connected have n initiators and n targets; without a
// shared domain they have n*(n-1) QPs.
func TestHost_QPsWithinNode(t *testing.T) {
	const n = 4
	initiators, targets := nodeQPs(t, startHosts(t, ShareHost, n, t.TempDir())[0])
	assert.Equal(t, n, initiators)
	assert.Equal(t, n, targets)
	assert.Equal(t, n*(n-1), sum(startHosts(t, ShareNothing, n, t.TempDir())[0]))
}

// newHostSide opens an iface of this process in the domain of a directory. It appends the first byte of each message to
// got.
func newHostSide(t testing.TB, dir string) *proc {
	t.Helper()
	p := &proc{side: newSideOn(t, ibtest.NewMD(t, softhca.FabricShm, testTransport()), onHost(Config{}, dir))}
	require.NoError(t, p.ep.Close())
	require.NoError(t, p.it.SetAMHandler(testAM, uct.AMHandlerFunc(func(data []byte, _ uct.Desc) bool {
		p.got = append(p.got, data[8])
		return false
	})))
	return p
}

// hostDirs returns, for each case, the directory of the domain of this process and that of its peers.
func hostDirs(t *testing.T) map[string][2]string {
	same := t.TempDir()
	return map[string][2]string{"within a node": {same, same}, "two nodes": {t.TempDir(), t.TempDir()}}
}

// TestHost_KilledPeerFailsOnlyItsEP: one of two processes of a node is killed while messages to both are in flight. The
// EP to it fails. All messages between the other process and the sender arrive, once and in order, in both directions.
func TestHost_KilledPeerFailsOnlyItsEP(t *testing.T) {
	for name, dirs := range hostDirs(t) {
		t.Run(name, func(t *testing.T) {
			for round := range testenv.Rounds(3, 30) {
				a := newHostSide(t, dirs[0])
				b, c := startHost(t, ShareHost, dirs[1]), startHost(t, ShareHost, dirs[1])
				atB, toB := connectProcess(b, a.side)
				atC, toC := connectProcess(c, a.side)
				b.do(hostCommand{Do: "send", EP: atB, Byte: 1}, a.side)
				c.do(hostCommand{Do: "send", EP: atC, Byte: 1}, a.side)
				until(t, func() bool { return len(a.got) == 2 }, a.side)
				require.Same(t, toB.path.initiator, toC.path.initiator)
				var want []byte
				for i := range byte(20) {
					if int(i) == 5+round {
						require.NoError(t, c.Process.Kill())
					}
					push(t, []*side{a.side}, func() error { return toB.AMShort(testAM, 0, []byte{i}) })
					want = append(want, i)
					if err := toC.AMShort(testAM, 0, []byte{i}); err != nil && err != uct.ErrNoResource {
						require.ErrorIs(t, err, ucs.ErrConnReset)
					}
				}
				require.Equal(t, want, b.received(len(want), a.side))
				c.kill()
				until(t, func() bool { return !toC.Ready() }, a.side)
				require.ErrorIs(t, toC.Err(), ucs.ErrConnReset)
				require.True(t, toB.Ready())
				require.Len(t, a.errs, 1)
				a.got = nil
				b.do(hostCommand{Do: "send", EP: atB, Byte: 9}, a.side)
				until(t, func() bool { return bytes.Equal(a.got, []byte{9}) }, a.side)
				require.Empty(t, b.do(hostCommand{Do: "got"}, a.side).Failed)
			}
		})
	}
}

// TestHost_KilledPeerFailsIdleEP: if the peer of an idle EP is killed, the EP fails.
func TestHost_KilledPeerFailsIdleEP(t *testing.T) {
	for name, dirs := range hostDirs(t) {
		t.Run(name, func(t *testing.T) {
			a := newHostSide(t, dirs[0])
			b, c := startHost(t, ShareHost, dirs[1]), startHost(t, ShareHost, dirs[1])
			_, toB := connectProcess(b, a.side)
			_, toC := connectProcess(c, a.side)
			for _, e := range []*EP{toB, toC} {
				require.NoError(t, e.AMShort(testAM, 0, []byte{1}))
			}
			b.received(1, a.side)
			c.received(1, a.side)
			b.kill()
			until(t, func() bool { return len(a.errs) == 1 }, a.side)
			require.ErrorIs(t, toB.Err(), ucs.ErrConnReset)
			require.NoError(t, toC.AMShort(testAM, 0, []byte{2}))
			assert.Equal(t, []byte{1, 2}, c.received(2, a.side))
			assert.Zero(t, toC.path.initiator.epoch, "the initiator has not connected again")
		})
	}
}

// TestHost_DeliversMessagesOfExitedPeer: a process sends messages and exits before the peer polls, so the target of the
// messages does not exist any more. The messages are delivered. Within a node they are delivered before the EP fails
// with ErrPeerClosed. Between two nodes, the initiator to the other node, which has no process any more, may fail
// first.
func TestHost_DeliversMessagesOfExitedPeer(t *testing.T) {
	for name, dirs := range hostDirs(t) {
		t.Run(name, func(t *testing.T) {
			a, b := newHostSide(t, dirs[0]), startHost(t, ShareHost, dirs[1])
			atB, toB := connectProcess(b, a.side)
			for i := range byte(3) {
				b.do(hostCommand{Do: "send", EP: atB, Byte: i})
			}
			b.do(hostCommand{Do: "flush"}) // messages that wait for the link of the fabric would be lost with the process
			b.exit()
			within := dirs[0] == dirs[1]
			until(t, func() bool { return len(a.errs) > 0 && (within || len(a.got) == 3) }, a.side)
			assert.Equal(t, []byte{0, 1, 2}, a.got)
			require.Len(t, a.errs, 1)
			if within {
				assert.ErrorIs(t, toB.Err(), ucs.ErrPeerClosed)
			}
		})
	}
}

// TestHost_OfferBeforeFailure: an offer that arrives before the completion of the failure is accepted. An offer that
// replaces an earlier target is ignored.
func TestHost_OfferBeforeFailure(t *testing.T) {
	a, b := newHostSide(t, t.TempDir()), startHost(t, ShareHost, t.TempDir())
	_, toB := connectProcess(b, a.side)
	in := toB.path.initiator
	require.Equal(t, toB.path.peerAddr.Target, in.target)
	o := message{kind: kindOffer, qpn: 0x1234, psn: 1, failedTarget: in.target + 1}
	require.True(t, toB.path.handleControl(o))
	require.Nil(t, in.offer.p, "the offer replaces another target")
	o.failedTarget = in.target
	require.True(t, toB.path.handleControl(o))
	o.qpn++
	require.True(t, toB.path.handleControl(o))
	want := offer{p: toB.path, qpn: 0x1234, psn: 1}
	require.Equal(t, want, in.offer, "the first offer is accepted")
	in.holdBack()
	assert.Equal(t, want, in.offer, "the failure does not discard the offer")
	assert.Equal(t, phaseWaiting, in.phase)
}

// resources counts the resources that an iface has for its peers.
type resources struct{ qps, paths, initiators int }

func (s *side) resources() resources {
	res, _ := s.it.MD().Context().Resources()
	h := resources{qps: res.QPs, initiators: s.it.node.all.live}
	for _, p := range s.it.node.paths {
		if p != nil {
			h.paths++
		}
	}
	return h
}

// TestHost_ReleasesResourcesOfPeers: processes of a node connect and then exit or are killed, while one process stays
// connected. All resources for them are released.
func TestHost_ReleasesResourcesOfPeers(t *testing.T) {
	for name, dirs := range hostDirs(t) {
		t.Run(name, func(t *testing.T) {
			a, stays := newHostSide(t, dirs[0]), startHost(t, ShareHost, dirs[1])
			atStays, toStays := connectProcess(stays, a.side)
			push(t, []*side{a.side}, func() error { return toStays.AMShort(testAM, 0, []byte{1}) })
			stays.do(hostCommand{Do: "send", EP: atStays, Byte: 1}, a.side)
			stays.received(1, a.side)
			until(t, func() bool { return len(a.got) == 1 }, a.side)
			first, files := a.resources(), testenv.OpenFiles(t)
			for round := range testenv.Rounds(6, 60) {
				c := startHost(t, ShareHost, dirs[1])
				atC, toC := connectProcess(c, a.side)
				c.do(hostCommand{Do: "send", EP: atC, Byte: 1}, a.side)
				stays.do(hostCommand{Do: "send", EP: atStays, Byte: 1}, a.side)
				push(t, []*side{a.side}, func() error { return toC.AMShort(testAM, 0, []byte{1}) })
				c.received(1, a.side)
				if round%2 == 0 {
					until(t, func() bool { return len(a.got) == 2*(round+1)+1 }, a.side) // messages that wait for the link of the fabric would be lost with the process
					c.kill()
				} else {
					require.NoError(t, c.In.Close())
					c.drain()
					_ = c.Wait()
				}
				until(t, func() bool { return len(a.errs) == round+1 && len(a.got) == 2*(round+1)+1 }, a.side)
				require.NoError(t, toC.Close())
				push(t, []*side{a.side}, func() error { return toStays.AMShort(testAM, 0, []byte{1}) })
				stays.received(round+2, a.side)
				until(t, func() bool { return a.resources() == first }, a.side)        // QPs are destroyed after the device has flushed them
				until(t, func() bool { return testenv.OpenFiles(t) <= files }, a.side) // links of the fabric are closed in the background
			}
			left, err := os.ReadDir(dirs[1])
			require.NoError(t, err)
			assert.Len(t, left, 1, "only the file of the domain is left")
		})
	}
}
