package softhca_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/softhca"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// childEnv makes the test binary the other process of a test: its value is the role of the child after
// it is connected.
const childEnv = "GUCX_TEST_SOFTHCA_CHILD"

func TestMain(m *testing.M) {
	if role := os.Getenv(childEnv); role != "" {
		os.Exit(runChild(role))
	}
	testenv.Main(m)
}

// introduction has the addresses that two processes exchange.
type introduction struct {
	GID     verbs.GID
	QPN     uint32
	Addr    uint64
	RKey    uint32
	Private uint64 // memory outside the arena
	PrivKey uint32
	SRQN    uint32 // if not 0, the child is an XRC target, and QPN is that of its target
	UDQPN   uint32 // the child sends it a datagram, and is not connected; or 0
}

// child is the other process.
type child struct {
	introduction
	*testenv.Subprocess
	out *json.Decoder
}

// startChild starts a child and connects it to n.
func startChild(t *testing.T, n *node, role string) *child {
	t.Helper()
	c := newChild(t, role)
	n.join(c.GID, c.QPN, defaultLink)
	c.connectTo(t, introduction{GID: n.gid, QPN: n.qp.Number(), Addr: n.mr.Addr(), RKey: n.mr.RKey()})
	return c
}

// startSender starts a child that sends a datagram to u on the device of n, which does not dial the
// child.
func startSender(t *testing.T, n, u *node, role string) *child {
	t.Helper()
	c := newChild(t, role)
	c.connectTo(t, introduction{GID: n.gid, QPN: n.qp.Number(), UDQPN: u.qp.Number()})
	return c
}

// newChild starts a child and reads its introduction.
func newChild(t *testing.T, role string) *child {
	t.Helper()
	c := &child{Subprocess: testenv.StartSubprocess(t, testenv.Self(childEnv+"="+role))}
	c.out = json.NewDecoder(c.Out)
	require.NoError(t, c.out.Decode(&c.introduction))
	return c
}

// connectTo sends the addresses of the parent to the child, and waits until it has begun to connect.
func (c *child) connectTo(t *testing.T, parent introduction) {
	t.Helper()
	require.NoError(t, json.NewEncoder(c.In).Encode(parent))
	var ready bool
	require.NoError(t, c.out.Decode(&ready))
}

// runChild is the other process. It has no testing.T: a failure is a panic.
func runChild(role string) int {
	f := &fatal{}
	n := openNode(f, softhca.Config{})
	switch role {
	case "xrc target":
		return n.runXRCTarget()
	case "xrc initiator":
		return n.runXRCInitiator()
	case "xrc member":
		return n.runXRCMember()
	case "xrc spreader":
		return n.runXRCSpreader()
	}
	private := make([]byte, 4096)
	mr, err := n.pd.RegMR(private, anyone)
	require.NoError(f, err)
	enc, dec := json.NewEncoder(os.Stdout), json.NewDecoder(os.Stdin)
	require.NoError(f, enc.Encode(introduction{GID: n.gid, QPN: n.qp.Number(), Addr: n.mr.Addr(), RKey: n.mr.RKey(),
		Private: mr.Addr(), PrivKey: mr.RKey()}))
	var peer introduction
	require.NoError(f, dec.Decode(&peer))
	closeDevice := n.close
	if peer.UDQPN != 0 {
		closeDevice = n.sendTo(peer)
	} else {
		n.join(peer.GID, peer.QPN, defaultLink)
	}
	require.NoError(f, enc.Encode(true))
	switch role {
	case "hammer":
		n.hammer(peer)
	case "intruder":
		n.intrude(enc, dec)
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // until the parent closes it
	if role == "closer" {
		require.NoError(f, mr.Close())
		closeDevice()
	}
	return 0
}

// sendTo sends a datagram to the parent, over a link that is up. It returns a function that closes the
// device.
func (n *node) sendTo(peer introduction) (closeDevice func()) {
	n.join(peer.GID, peer.QPN, link{access: anyone, timeout: 1})
	n.send(verbs.SendWR{Opcode: verbs.OpSend, SGList: []verbs.SGE{n.mr.SGE(0, 1)}})
	n.fail(0, verbs.WCRetryExcErr) // the QP of the parent is not connected, but the link is up
	u := n.datagrams()
	ah := u.address(peer.GID)
	u.datagram(1, ah, peer.UDQPN, testQKey, 8)
	u.succeed(1)
	return func() {
		require.NoError(n.t, ah.Close())
		require.NoError(n.t, u.qp.Close())
		n.close()
	}
}

// hammer sends, and writes to the first half of the memory of the parent, in an endless loop.
func (n *node) hammer(peer introduction) {
	fill(n.buf.Bytes(), 1)
	for i := uint64(0); ; i++ {
		_, _ = n.qp.PostSend([]verbs.SendWR{
			{ID: i, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGList: []verbs.SGE{n.mr.SGE(0, 40000)},
				RemoteAddr: peer.Addr, RKey: peer.RKey},
			{ID: i, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGList: []verbs.SGE{n.mr.SGE(0, 9000)}},
		})
		n.cq.Poll(n.wcs[:])
	}
}

// fatal is a testing.TB for a process that is not a test.
type fatal struct{ testing.TB }

func (*fatal) Name() string   { return "child" }
func (*fatal) Helper()        {}
func (*fatal) Cleanup(func()) {}
func (*fatal) FailNow()       { os.Exit(3) }
func (*fatal) Errorf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}

// One-sided operations complete while the target is stopped.
func TestStoppedTarget(t *testing.T) {
	testenv.NeedCMA(t) // for memory outside the arena
	a := openNode(t, softhca.Config{})
	c := startChild(t, a, "idle")
	a.send(verbs.SendWR{ID: 0, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled,
		SGList: []verbs.SGE{a.mr.SGE(0, 1)}, RemoteAddr: c.Addr, RKey: c.RKey})
	a.succeed(0) // the link is up
	c.Stop(t)
	fill(a.buf.Bytes(), 9)
	for id, at := range []struct {
		addr uint64
		key  uint32
	}{{c.Addr, c.RKey}, {c.Private, c.PrivKey}} {
		a.send(verbs.SendWR{ID: 1, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled,
			SGList: []verbs.SGE{a.mr.SGE(0, 4096)}, RemoteAddr: at.addr, RKey: at.key})
		a.succeed(1)
		a.send(verbs.SendWR{ID: 2, Opcode: verbs.OpRDMARead, Flags: verbs.SendSignaled,
			SGList: []verbs.SGE{a.mr.SGE(8192, 4096)}, RemoteAddr: at.addr, RKey: at.key})
		a.succeed(2)
		assert.Equal(t, a.buf.Bytes()[:4096], a.buf.Bytes()[8192:8192+4096], "memory %d", id)
	}
	old := binary.NativeEndian.Uint64(a.buf.Bytes()[8:])
	for i := range uint64(3) {
		a.send(verbs.SendWR{ID: 3, Opcode: verbs.OpAtomicFetchAdd, Flags: verbs.SendSignaled, CompareAdd: 1,
			SGList: []verbs.SGE{a.mr.SGE(16384, 8)}, RemoteAddr: c.Addr + 8, RKey: c.RKey})
		a.succeed(3)
		assert.Equal(t, old+i, binary.NativeEndian.Uint64(a.buf.Bytes()[16384:]))
	}
}

// A QP whose peer dies goes to ERR without a post, and its completion has the vendor error.
func TestKilledTarget(t *testing.T) {
	a := openNode(t, softhca.Config{})
	c := startChild(t, a, "idle")
	a.send(verbs.SendWR{ID: 1, Opcode: verbs.OpSend, SGList: []verbs.SGE{a.mr.SGE(0, 100)}},
		verbs.SendWR{ID: 2, Opcode: verbs.OpRDMAWrite, SGList: []verbs.SGE{a.mr.SGE(0, 100)}, RemoteAddr: c.Addr, RKey: c.RKey})
	a.recv(3, 0, 64)
	start := time.Now()
	require.NoError(t, c.Process.Kill())
	var sends []verbs.WCStatus // in order; completions of the receive queue have no order with them
	for range 3 {
		switch wc := a.completion(); wc.ID {
		case 3:
			assert.Equal(t, verbs.WCWRFlushErr, wc.Status)
		default:
			sends = append(sends, wc.Status)
			assert.EqualValues(t, len(sends), wc.ID)
		}
	}
	t.Logf("detected after %v", time.Since(start))
	assert.Equal(t, []verbs.WCStatus{verbs.WCRetryExcErr, verbs.WCWRFlushErr}, sends)
	assert.Equal(t, verbs.QPStateErr, a.qp.State())
	a.send(verbs.SendWR{ID: 4, Opcode: verbs.OpSend, SGList: []verbs.SGE{a.mr.SGE(0, 100)}})
	a.fail(4, verbs.WCWRFlushErr)
}

// A target dies while the kernel copies from and to its private memory: the completion has the vendor
// error of a dead peer also if the kernel has rejected the copy before the link has gone down.
func TestKilledTarget_WhileAccessed(t *testing.T) {
	for _, op := range []verbs.Opcode{verbs.OpRDMAWrite, verbs.OpRDMARead} {
		refused := 0
		for range testenv.Rounds(20, 200) {
			a := openNode(t, softhca.Config{})
			c := startChild(t, a, "idle")
			access := verbs.SendWR{ID: 1, Opcode: op, Flags: verbs.SendSignaled,
				SGList: []verbs.SGE{a.mr.SGE(0, 4096)}, RemoteAddr: c.Private, RKey: c.PrivKey}
			a.send(access)
			a.succeed(1) // the link is up
			require.NoError(t, c.Process.Kill())
			status := verbs.WCSuccess
			testenv.ProgressWithin(t, patience, func() bool {
				a.send(access)
				status = a.completion().Status
				return status != verbs.WCSuccess
			})
			if status == verbs.WCWRFlushErr {
				continue // the link went down while nothing was posted
			}
			require.Equal(t, verbs.WCRetryExcErr, status)
			require.Equal(t, verbs.VendorPeerGone, a.wcs[0].VendorErr)
			refused++
		}
		t.Logf("%v: an access has detected %d deaths; the number is random", op, refused)
	}
}

// The death of an initiator that writes and sends affects neither the target nor its other connections
// nor the rest of its memory.
func TestKilledInitiator(t *testing.T) {
	a := openNode(t, softhca.Config{})
	peer := openNode(t, softhca.Config{})
	survivor := a.sibling()
	connect(survivor, peer, defaultLink)
	fill(a.buf.Bytes()[bufLen/2:], 77)
	want := append([]byte(nil), a.buf.Bytes()[bufLen/2:]...)
	for i := range testenv.Rounds(8, 200) {
		require.NoError(t, a.qp.Close())
		a.qp = a.newQP()
		c := startChild(t, a, "hammer")
		for k := range uint64(3 + i) { // another time of death in each round
			a.recv(k, bufLen/4, 9000)
			require.NotEqual(t, verbs.WCGeneralErr, a.completion().Status)
		}
		require.NoError(t, c.Process.Kill())
		testenv.ProgressWithin(t, patience, func() bool {
			a.cq.Poll(a.wcs[:])
			return a.qp.State() == verbs.QPStateErr
		})
		survivor.send(verbs.SendWR{ID: 9, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled,
			SGList: []verbs.SGE{survivor.mr.SGE(0, 64)}, RemoteAddr: peer.mr.Addr(), RKey: peer.mr.RKey()})
		survivor.succeed(9)
		for a.cq.Poll(a.wcs[:]) > 0 {
		}
	}
	assert.Equal(t, want, a.buf.Bytes()[bufLen/2:], "bytes outside of the writes")
}
