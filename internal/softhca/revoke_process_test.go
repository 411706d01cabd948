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

	"github.com/gucx/gucx/internal/softhca"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// victimLen exceeds Config.InlineBudget: a peer accesses such memory in several visits.
const victimLen = bufLen / 2

// intrude is the role of a child that accesses the memory of its parent all the time, until an access
// fails. It does so over a new QP each time the parent requests it.
func (n *node) intrude(enc *json.Encoder, dec *json.Decoder) {
	for i := range n.buf.Bytes() { // the halves have different bytes
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

// access makes the i-th access and reports whether it has succeeded. Most accesses are writes, each of
// other bytes.
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

// victim is the memory that a peer accesses: memory of the caller and memory of the device.
type victim struct {
	*node
	private []byte
	privMR  *verbs.MR
	buf     verbs.Buffer
	mr      *verbs.MR
}

// exposed returns a victim on a new device. The child has begun to access its memory.
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
	for range rand.IntN(1000) { // another time in each round
		runtime.Gosched()
	}
	return v
}

// revoke revokes the access of peers in one of several ways, and returns memory that only the owner may
// change then.
func (v *victim) revoke(how int) []byte {
	registered, allocated := v.private, v.buf.Bytes()
	switch how {
	case 0:
		testenv.ProgressWithin(v.t, patience, v.deregister)
		return registered
	case 1: // and reallocate memory of the device
		require.NoError(v.t, v.mr.CloseAndFree(v.buf))
		again, err := v.ctx.AllocBuffer(victimLen)
		require.NoError(v.t, err)
		v.t.Cleanup(func() { require.NoError(v.t, again.Close()) })
		return again.Bytes()
	case 2: // the buffer remains allocated
		testenv.ProgressWithin(v.t, patience, func() bool { return v.mr.Close() == nil })
		return allocated
	}
	testenv.ProgressWithin(v.t, patience, v.deregister)
	require.NoError(v.t, v.mr.CloseAndFree(v.buf))
	require.NoError(v.t, v.qp.Close())
	return registered
}

// deregister deregisters the memory of the caller; false if an access is in progress.
func (v *victim) deregister() bool {
	err := v.privMR.Close()
	var inUse *ucs.InUseError
	if err != nil && !errors.As(err, &inUse) {
		require.NoError(v.t, err)
	}
	return err == nil
}

// revokeVariants is the number of cases of revoke.
const revokeVariants = 4

// After revocation, memory does not change any more, although a peer in another process accesses it all
// the time.
func TestRevoke_UnderLoad(t *testing.T) {
	c := startChild(t, openNode(t, softhca.Config{}), "intruder")
	for round := range revokeVariants * testenv.Rounds(3, 250) {
		v := exposed(t, c)
		mem := v.revoke(round % revokeVariants)
		before := sample(mem)
		require.NoError(t, v.qp.Close()) // ends the child also if none of its accesses has failed
		var ended bool
		require.NoError(t, c.out.Decode(&ended))
		assert.Equal(t, before, sample(mem), "the peer has changed bytes after revocation, in round %d", round)
	}
}

// A stopped peer may be in the middle of an access. Deregistration of the caller's memory succeeds as soon
// as the access is over, or the peer is dead; until then the error names the peer. Deregistration of
// memory of the device does not wait.
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

// kept returns the memory in quarantine, after an allocation, which reclaims quarantined memory.
func kept(t *testing.T, ctx *verbs.Context) int64 {
	t.Helper()
	b, err := ctx.AllocBuffer(1)
	require.NoError(t, err)
	require.NoError(t, b.Close())
	r, ok := ctx.Resources()
	require.True(t, ok)
	return r.Bytes.Kept
}

// sample reads a byte of each page, beginning at the end, which a visit reaches last.
func sample(b []byte) (s []byte) {
	for i := len(b) - 1; i >= 0; i -= 4096 {
		s = append(s, b[i])
	}
	return s
}
