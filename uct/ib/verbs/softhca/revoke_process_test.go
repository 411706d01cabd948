package softhca_test

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// victimLen is more than a doorbell moves: a peer visits such memory in parts.
const victimLen = bufLen / 2

// intrude is a child that accesses the memory of its parent all the time, until it is
// refused, over a new QP each time that the parent asks for it.
func (n *node) intrude(enc *json.Encoder, dec *json.Decoder) {
	for i := range n.buf.Bytes() { // what is in one half is nowhere in the other
		n.buf.Bytes()[i] = byte(1 + i/victimLen)
	}
	for {
		var peer introduction
		if dec.Decode(&peer) != nil {
			return
		}
		require.NoError(n.t, n.qp.Close())
		n.qp = n.newQP()
		n.join(peer.GID, peer.QPN, defaultLink)
		require.NoError(n.t, enc.Encode(introduction{GID: n.gid, QPN: n.qp.Number()}))
		for i := 0; n.access(peer, i); i++ {
		}
		for n.cq.Poll(n.wcs[:]) > 0 {
		}
		require.NoError(n.t, enc.Encode(true))
	}
}

// access does what a peer may do, for the i-th time, and reports whether it could: it
// mostly writes, other bytes each time.
func (n *node) access(p introduction, i int) bool {
	from, other := i%2*victimLen, (i+1)%2*victimLen
	target := func(op verbs.Opcode, off, length int, addr uint64, key uint32) verbs.SendWR {
		return verbs.SendWR{Opcode: op, Flags: verbs.SendSignaled, SGList: []verbs.SGE{n.mr.SGE(off, length)},
			RemoteAddr: addr, RKey: key, CompareAdd: 1}
	}
	wrs := []verbs.SendWR{
		target(verbs.OpRDMAWrite, from, victimLen, p.Private, p.PrivKey),
		target(verbs.OpRDMAWrite, from, victimLen, p.Addr, p.RKey),
	}
	if i%32 == 0 { // the target executes the last one
		wrs = append(wrs, target(verbs.OpRDMARead, other, 1000, p.Private, p.PrivKey),
			target(verbs.OpAtomicFetchAdd, other, 8, p.Addr+1024, p.RKey),
			target(verbs.OpAtomicFetchAdd, other, 8, p.Private+1024, p.PrivKey))
	}
	_, err := n.qp.PostSend(wrs)
	for done := 0; err == nil && done < len(wrs); {
		k := n.cq.Poll(n.wcs[:])
		for _, wc := range n.wcs[:k] {
			if wc.Status != verbs.WCSuccess {
				return false
			}
		}
		done += k
	}
	return err == nil
}

// victim is what a peer is made to access: memory of the caller and memory of the device.
type victim struct {
	*node
	private []byte
	privMR  *verbs.MR
	buf     verbs.Buffer
	mr      *verbs.MR
}

// exposed returns a victim on a new device whose memory the child is accessing by now.
func exposed(t *testing.T, c *child) *victim {
	t.Helper()
	n := openNode(t, softhca.Config{})
	v := &victim{node: n, private: make([]byte, victimLen)}
	var err error
	v.privMR, err = n.pd.RegMR(v.private, anyone)
	require.NoError(t, err)
	v.buf, err = n.ctx.AllocBuffer(victimLen)
	require.NoError(t, err)
	v.mr, err = n.pd.RegMR(v.buf.Bytes(), anyone)
	require.NoError(t, err)
	t.Cleanup(func() { testenv.ProgressWithin(t, patience, func() bool { return v.privMR.Close() == nil }) })
	t.Cleanup(func() { require.NoError(t, v.mr.CloseAndFree(v.buf)) })
	require.NoError(t, json.NewEncoder(c.In).Encode(introduction{GID: n.gid, QPN: n.qp.Number(),
		Addr: v.mr.Addr(), RKey: v.mr.RKey(), Private: v.privMR.Addr(), PrivKey: v.privMR.RKey()}))
	var peer introduction
	require.NoError(t, c.out.Decode(&peer))
	n.join(peer.GID, peer.QPN, defaultLink)
	testenv.ProgressWithin(t, patience, func() bool {
		return v.private[victimLen-1] != 0 && v.buf.Bytes()[victimLen-1] != 0
	})
	for range rand.IntN(1000) { // another moment each time
		runtime.Gosched()
	}
	return v
}

// takeBack ends the rights of peers in one of the ways that there are, and returns memory
// that is the owner's then.
func (v *victim) revoke(how int) []byte {
	registered, allocated := v.private, v.buf.Bytes()
	switch how {
	case 0:
		testenv.ProgressWithin(v.t, patience, v.deregister)
		return registered
	case 1: // and memory that the device hands out again
		require.NoError(v.t, v.mr.CloseAndFree(v.buf))
		again, err := v.ctx.AllocBuffer(victimLen)
		require.NoError(v.t, err)
		v.t.Cleanup(func() { require.NoError(v.t, again.Close()) })
		return again.Bytes()
	case 2: // the buffer itself stays
		testenv.ProgressWithin(v.t, patience, func() bool { return v.mr.Close() == nil })
		return allocated
	}
	testenv.ProgressWithin(v.t, patience, v.deregister)
	require.NoError(v.t, v.mr.CloseAndFree(v.buf))
	require.NoError(v.t, v.qp.Close())
	return registered
}

// revoked deregisters the caller's memory; false if a peer is inside.
func (v *victim) deregister() bool {
	err := v.privMR.Close()
	var inUse *ucs.InUseError
	if err != nil && !errors.As(err, &inUse) {
		require.NoError(v.t, err)
	}
	return err == nil
}

// waysToTakeBack is how many cases takeBack has.
const revokeVariants = 4

// Memory that was taken back, in whatever way, while a peer of another process accesses
// it all the time, does not change any more.
func TestRevoke_UnderLoad(t *testing.T) {
	c := startChild(t, openNode(t, softhca.Config{}), "intruder")
	for round := range revokeVariants * testenv.Rounds(3, 250) {
		v := exposed(t, c)
		mem := v.revoke(round % revokeVariants)
		before := sample(mem)
		require.NoError(t, v.qp.Close()) // the child ends also if it saw nothing of it
		var ended bool
		require.NoError(t, c.out.Decode(&ended))
		assert.Equal(t, before, sample(mem), "the peer has changed bytes after revocation, in round %d", round)
	}
}

// A peer that is stopped may be inside. The owner gets its memory as soon as the peer is
// out, or dead, and the peer is named until then; memory of the device is not waited for.
func TestRevoke_PeerStopped(t *testing.T) {
	for name, end := range map[string]syscall.Signal{"continues": syscall.SIGCONT, "dies": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			c := startChild(t, openNode(t, softhca.Config{}), "intruder")
			v := exposed(t, c)
			c.Stop(t)
			err := v.privMR.Close()
			var inUse *ucs.InUseError
			if errors.As(err, &inUse) {
				assert.Equal(t, []int{c.Process.Pid}, inUse.PIDs)
			} else {
				require.NoError(t, err)
			}
			require.NoError(t, v.mr.CloseAndFree(v.buf))
			again, err := v.ctx.AllocBuffer(victimLen)
			require.NoError(t, err)
			fresh := sample(again.Bytes())

			require.NoError(t, c.Process.Signal(end))
			testenv.ProgressWithin(t, patience, v.deregister)
			before := sample(v.private)
			if end == syscall.SIGCONT {
				var ended bool
				require.NoError(t, c.out.Decode(&ended))
			}
			assert.Equal(t, before, sample(v.private))
			assert.Equal(t, fresh, sample(again.Bytes()))
			require.NoError(t, again.Close())
			testenv.ProgressWithin(t, patience, func() bool { return kept(t, v.ctx) == 0 })
		})
	}
}

// kept is how much memory the device keeps because of peers that are inside, after it
// had a reason to look.
func kept(t *testing.T, ctx *verbs.Context) int64 {
	t.Helper()
	b, err := ctx.AllocBuffer(1)
	require.NoError(t, err)
	require.NoError(t, b.Close())
	r, ok := ctx.Resources()
	require.True(t, ok)
	return r.Bytes.Kept
}

// sample reads a byte of each page, from the end, which a visit reaches last.
func sample(b []byte) (s []byte) {
	for i := len(b) - 1; i >= 0; i -= 4096 {
		s = append(s, b[i])
	}
	return s
}
