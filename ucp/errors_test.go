package ucp_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// requireOneLine checks that an error is one line of ucp about an operation, which repeats nothing about a transport.
func requireOneLine(t testing.TB, err error, op string) {
	t.Helper()
	require.Error(t, err)
	text := err.Error()
	require.True(t, strings.HasPrefix(text, "ucp: "+op), text)
	require.NotContains(t, text, "\n")
	require.NotContains(t, text, "endpoint has failed")
	for reason := range strings.SplitSeq(text, "; ") {
		seen := map[string]bool{}
		for part := range strings.SplitSeq(reason, ": ") {
			require.False(t, seen[part], "%q twice in %q", part, text)
			seen[part] = true
		}
	}
}

// TestErrors_Texts compares the errors that users of a connection see.
func TestErrors_Texts(t *testing.T) {
	peerOf := func(p *ucppair.Pair) string { return fmt.Sprintf("to worker %#x", p.B.W.AddressInfo().UUID()) }
	lost := func(p *ucppair.Pair) { p.A.EP.Lane(0).EP.(*faketp.EP).Fail(ucs.StatusConnReset) }
	for _, tc := range []struct {
		name string
		do   func(p *ucppair.Pair) error
		want string // PEER stands for the peer
		is   []error
	}{
		{"no key", func(p *ucppair.Pair) error { return p.Finish(p.A.EP.Put(make([]byte, 8), 0, nil, nil)) },
			"ucp: put 8 bytes PEER: remote key not valid: there is none", []error{ucs.ErrInvalidRKey}},
		{"closed key", func(p *ucppair.Pair) error {
			p.A.Key.Close()
			return p.Finish(p.A.EP.Get(make([]byte, 1), 0, p.A.Key, nil))
		}, "ucp: get 1 byte PEER: remote key not valid: closed, or of another endpoint", []error{ucs.ErrInvalidRKey}},
		{"range", func(p *ucppair.Pair) error { return p.Finish(p.A.EP.Put(make([]byte, 8), 16, p.A.Key, nil)) },
			"ucp: put 8 bytes PEER: remote access refused: at 0x10, the key opens 65536 bytes at 0x200000000", []error{ucs.ErrRemoteAccess}},
		{"alignment", func(p *ucppair.Pair) error {
			return p.Finish(p.A.EP.AtomicFetch(uct.AtomicAdd, 8, 1, new(uint64), p.A.Key.Addr()+1, p.A.Key))
		},
			"ucp: atomic add of 8 bytes PEER: invalid parameter: address 0x200000001 is not a multiple of 8", []error{ucs.ErrInvalidParam}},
		{"region closed at the target", func(p *ucppair.Pair) error {
			mem, err := p.B.Ctx.MemAlloc(64)
			require.NoError(p.T, err)
			key, err := p.A.EP.Unpack(mem.Pack())
			require.NoError(p.T, err)
			p.T.Cleanup(key.Close)
			require.NoError(p.T, mem.Close())
			return p.Finish(p.A.EP.Get(make([]byte, 8), key.Addr(), key, nil))
		}, "ucp: get 8 bytes PEER over frc fake0:1: fake: remote access refused", []error{ucs.ErrRemoteAccess, ucs.ErrEPFailed}},
		{"lane lost under a request", func(p *ucppair.Pair) error {
			r, err := p.A.EP.Get(make([]byte, 200), p.A.Key.Addr(), p.A.Key, nil)
			lost(p)
			return p.Finish(r, err)
		}, "ucp: get 200 bytes PEER over frc fake0:1: fake: connection reset by remote peer", []error{ucs.ErrConnReset, ucs.ErrEPFailed}},
		{"lane lost under a flush", func(p *ucppair.Pair) error {
			require.NoError(p.T, p.Finish(p.A.EP.Put(make([]byte, 200), p.A.Key.Addr(), p.A.Key, nil)))
			r, err := p.A.EP.Flush()
			lost(p)
			return p.Finish(r, err)
		}, "ucp: flush PEER over frc fake0:1: fake: connection reset by remote peer", []error{ucs.ErrConnReset, ucs.ErrEPFailed}},
		{"lane lost before", func(p *ucppair.Pair) error {
			lost(p)
			return p.A.EP.AtomicPost(uct.AtomicAdd, 8, 1, p.A.Key.Addr(), p.A.Key)
		}, "ucp: atomic add of 8 bytes PEER over frc fake0:1: fake: connection reset by remote peer", []error{ucs.ErrConnReset, ucs.ErrEPFailed}},
		{"the EP", func(p *ucppair.Pair) error {
			lost(p)
			p.Until(func() bool { return p.A.EP.Err() != nil })
			return p.A.EP.Err()
		}, "ucp: endpoint PEER over frc fake0:1: fake: connection reset by remote peer", []error{ucs.ErrConnReset, ucs.ErrEPFailed}},
		{"closed by the peer", func(p *ucppair.Pair) error {
			p.B.Dial(p.T, &p.A)
			require.NoError(p.T, p.Finish(p.B.EP.Close(ucp.CloseFlush)))
			p.Until(func() bool { return p.A.EP.Err() != nil })
			return p.A.EP.Fence()
		}, "ucp: fence PEER: peer closed the connection", []error{ucs.ErrPeerClosed, ucs.ErrEPFailed}},
		{"closed here", func(p *ucppair.Pair) error {
			require.NoError(p.T, p.Finish(p.A.EP.Close(ucp.CloseFlush)))
			return p.Finish(p.A.EP.Put(make([]byte, 8), p.A.Key.Addr(), p.A.Key, nil))
		}, "ucp: put 8 bytes PEER: already closed", []error{ucs.ErrClosed}},
		{"force closed here", func(p *ucppair.Pair) error {
			r, err := p.A.EP.Get(make([]byte, 200), p.A.Key.Addr(), p.A.Key, nil)
			require.NoError(p.T, err)
			end, err := p.A.EP.Close(ucp.CloseForce)
			require.NoError(p.T, p.Finish(end, err))
			return p.Finish(r, nil)
		}, "ucp: get 200 bytes PEER: request canceled", []error{ucs.ErrCanceled}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, _ := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
			p.Connect().Warm()
			idle(p)
			err := tc.do(p)
			require.Error(t, err)
			assert.Equal(t, strings.ReplaceAll(tc.want, "PEER", peerOf(p)), err.Error())
			for _, is := range tc.is {
				assert.ErrorIs(t, err, is)
			}
		})
	}
}

// TestErrors_OfConnecting: the error has all transports that were tried, in one line.
func TestErrors_OfConnecting(t *testing.T) {
	for _, tc := range []struct {
		name  string
		fails []string
		want  string
	}{
		{"lanes", []string{"new ep frc", "connect frd"},
			"ucp: put 8 bytes PEER: no lane left for rma: frc fake0:1: out of memory; frd fake0:1: out of memory, says the peer: its device or process has as many connections (QPs, descriptors) as it can have, or no memory"},
		{"handshake", []string{"new ep fud"}, "ucp: put 8 bytes PEER: handshake: fud fake0:1: out of memory"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			second := faketp.LikeRC()
			second.Name, second.Latency = "frd", 2*second.Latency
			p, f := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), second, faketp.LikeUD())
			p.Connect()
			for _, what := range tc.fails {
				f.FailNext(what, ucs.ErrNoMemory)
			}
			err := p.Finish(p.A.EP.Put(make([]byte, 8), p.A.Key.Addr(), p.A.Key, nil))
			require.ErrorIs(t, err, ucs.ErrNoMemory)
			assert.ErrorIs(t, err, ucs.ErrEPFailed)
			assert.Equal(t, strings.ReplaceAll(tc.want, "PEER", fmt.Sprintf("to worker %#x", p.B.W.AddressInfo().UUID())), err.Error())
			assert.NotContains(t, p.A.EP.Err().Error(), "\n")
		})
	}
}

// TestErrors_BeforeTheRequestEnds: when an operation has failed with the EP, EP.Err returns the error already, over
// each transport between processes.
func TestErrors_BeforeTheRequestEnds(t *testing.T) {
	for _, tls := range tlsets.ProcessSets() {
		t.Run(tls, func(t *testing.T) {
			x := startTarget(t, tls)
			in := x.reach(t, tls)
			exercise(in.ctx, t, in.ep, in.key, 1)
			require.NoError(t, x.cmd.Process.Kill())
			var err error
			for buf := make([]byte, 20000); err == nil; {
				if err = in.ep.GetWait(in.ctx, buf, in.key.Addr(), in.key, nil); err == nil {
					err = in.ep.FlushWait(in.ctx)
				}
			}
			require.ErrorIs(t, err, ucs.ErrEPFailed)
			require.ErrorIs(t, in.ep.Err(), ucs.ErrEPFailed)
			requireOneLine(t, err, "")
			requireOneLine(t, in.ep.Err(), "endpoint to worker 0x")
			t.Log(err)
			t.Log(in.ep.Err())
		})
	}
}

// TestErrors_OfSetUp: a failure to open or register is one line too, with everything that was tried.
func TestErrors_OfSetUp(t *testing.T) {
	_, err := ucp.NewContext(ucp.Config{}, brokenComponent{}, brokenComponent{})
	requireOneLine(t, err, "no transport is left")
	assert.Contains(t, err.Error(), "no device today")
	p, f := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
	f.NoReg = true
	_, err = p.A.Ctx.MemMap(make([]byte, 8))
	require.ErrorIs(t, err, ucs.ErrUnsupported)
	require.NotContains(t, err.Error(), "\n")
	far := faketp.LikeRC()
	far.Device = "elsewhere"
	q, _ := ucppair.Fake(t, ucp.Config{}, far)
	_, err = p.A.W.NewEP(q.B.W.Address(), ucp.EPConfig{})
	requireOneLine(t, err, "new endpoint to worker 0x")
	assert.Contains(t, err.Error(), "frc fake0:1: unreachable: another fabric")
}

// TestAtomics_RejectsInvalid: a fetching atomic without a result buffer, and one at an unaligned address, is rejected and
// changes nothing, also if the transport has the operation.
func TestAtomics_RejectsInvalid(t *testing.T) {
	p, _ := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.Connect().Warm()
	idle(p)
	ep, key := p.A.EP, p.A.Key
	clear(p.B.Mem.Bytes())
	for name, fetch := range map[string]func(size int, result *uint64, addr uint64) error{
		"add": func(size int, result *uint64, addr uint64) error {
			return p.Finish(ep.AtomicFetch(uct.AtomicAdd, size, 1, result, addr, key))
		},
		"compare and swap": func(size int, result *uint64, addr uint64) error {
			return p.Finish(ep.AtomicCSwap(size, 0, 1, result, addr, key))
		},
	} {
		assert.ErrorIs(t, fetch(8, nil, key.Addr()), ucs.ErrInvalidParam, "%s without a result", name)
		for _, size := range []int{4, 8} {
			for off := uint64(1); off < uint64(size); off++ {
				assert.ErrorIs(t, fetch(size, new(uint64), key.Addr()+off), ucs.ErrInvalidParam, "%s of %d bytes at offset %d", name, size, off)
			}
		}
		assert.ErrorIs(t, fetch(3, new(uint64), key.Addr()), ucs.ErrInvalidParam, "%s of 3 bytes", name)
	}
	assert.Equal(t, make([]byte, 16), p.B.Mem.Bytes()[:16])
	var old uint64 = 7
	require.NoError(t, p.Finish(ep.AtomicCSwap(8, 0, 5, &old, key.Addr(), key)))
	assert.Zero(t, old)
}

// TestBlocking_OfAClosedWorker: each blocking call returns that the worker is closed.
func TestBlocking_OfAClosedWorker(t *testing.T) {
	p, _ := ucppair.Fake(t, ucp.Config{}, faketp.LikeSM())
	p.Connect().Warm()
	idle(p)
	require.NoError(t, p.A.W.Close())
	for range 2 {
		for _, form := range blockingForms(p) {
			assert.ErrorIs(t, form.do(t.Context()), ucs.ErrClosed, form.name)
			assert.False(t, p.A.W.Engine().Turn.Taken(), form.name)
		}
	}
}
