package ucp

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
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
	peerOf := func(p *pair) string { return fmt.Sprintf("to worker %#x", p.b.w.net.addr.UUID()) }
	lost := func(p *pair) { p.a.ep.lane(0).EP.(*faketp.EP).Fail(ucs.StatusConnReset) }
	for _, tc := range []struct {
		name string
		do   func(p *pair) error
		want string // PEER stands for the peer
		is   []error
	}{
		{"no key", func(p *pair) error { return p.finish(p.a.ep.Put(make([]byte, 8), 0, nil, nil)) },
			"ucp: put 8 bytes PEER: remote key not valid: there is none", []error{ucs.ErrInvalidRKey}},
		{"closed key", func(p *pair) error {
			p.a.key.Close()
			return p.finish(p.a.ep.Get(make([]byte, 1), 0, p.a.key, nil))
		}, "ucp: get 1 byte PEER: remote key not valid: closed, or of another endpoint", []error{ucs.ErrInvalidRKey}},
		{"range", func(p *pair) error { return p.finish(p.a.ep.Put(make([]byte, 8), 16, p.a.key, nil)) },
			"ucp: put 8 bytes PEER: remote access refused: at 0x10, the key opens 65536 bytes at 0x200000000", []error{ucs.ErrRemoteAccess}},
		{"alignment", func(p *pair) error {
			return p.finish(p.a.ep.AtomicFetch(uct.AtomicAdd, 8, 1, new(uint64), p.a.key.Addr()+1, p.a.key))
		},
			"ucp: atomic add of 8 bytes PEER: invalid parameter: address 0x200000001 is not a multiple of 8", []error{ucs.ErrInvalidParam}},
		{"region closed at the target", func(p *pair) error {
			mem, err := p.b.ctx.MemAlloc(64)
			require.NoError(p.t, err)
			key, err := p.a.ep.Unpack(mem.Pack())
			require.NoError(p.t, err)
			p.t.Cleanup(key.Close)
			require.NoError(p.t, mem.Close())
			return p.finish(p.a.ep.Get(make([]byte, 8), key.Addr(), key, nil))
		}, "ucp: get 8 bytes PEER over frc fake0:1: fake: remote access refused", []error{ucs.ErrRemoteAccess, ucs.ErrEPFailed}},
		{"lane lost under a request", func(p *pair) error {
			r, err := p.a.ep.Get(make([]byte, 200), p.a.key.Addr(), p.a.key, nil)
			lost(p)
			return p.finish(r, err)
		}, "ucp: get 200 bytes PEER over frc fake0:1: fake: connection reset by remote peer", []error{ucs.ErrConnReset, ucs.ErrEPFailed}},
		{"lane lost under a flush", func(p *pair) error {
			require.NoError(p.t, p.finish(p.a.ep.Put(make([]byte, 200), p.a.key.Addr(), p.a.key, nil)))
			r, err := p.a.ep.Flush()
			lost(p)
			return p.finish(r, err)
		}, "ucp: flush PEER over frc fake0:1: fake: connection reset by remote peer", []error{ucs.ErrConnReset, ucs.ErrEPFailed}},
		{"lane lost before", func(p *pair) error {
			lost(p)
			return p.a.ep.AtomicPost(uct.AtomicAdd, 8, 1, p.a.key.Addr(), p.a.key)
		}, "ucp: atomic add of 8 bytes PEER over frc fake0:1: fake: connection reset by remote peer", []error{ucs.ErrConnReset, ucs.ErrEPFailed}},
		{"the EP", func(p *pair) error {
			lost(p)
			p.until(func() bool { return p.a.ep.Err() != nil })
			return p.a.ep.Err()
		}, "ucp: endpoint PEER over frc fake0:1: fake: connection reset by remote peer", []error{ucs.ErrConnReset, ucs.ErrEPFailed}},
		{"closed by the peer", func(p *pair) error {
			p.b.dial(p.t, &p.a)
			require.NoError(p.t, p.finish(p.b.ep.Close(CloseFlush)))
			p.until(func() bool { return p.a.ep.Err() != nil })
			return p.a.ep.Fence()
		}, "ucp: fence PEER: peer closed the connection", []error{ucs.ErrPeerClosed, ucs.ErrEPFailed}},
		{"closed here", func(p *pair) error {
			require.NoError(p.t, p.finish(p.a.ep.Close(CloseFlush)))
			return p.finish(p.a.ep.Put(make([]byte, 8), p.a.key.Addr(), p.a.key, nil))
		}, "ucp: put 8 bytes PEER: already closed", []error{ucs.ErrClosed}},
		{"force closed here", func(p *pair) error {
			r, err := p.a.ep.Get(make([]byte, 200), p.a.key.Addr(), p.a.key, nil)
			require.NoError(p.t, err)
			end, err := p.a.ep.Close(CloseForce)
			require.NoError(p.t, p.finish(end, err))
			return p.finish(r, nil)
		}, "ucp: get 200 bytes PEER: request canceled", []error{ucs.ErrCanceled}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, _ := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
			p.connect().warm()
			p.idle()
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
			p, f := fakePair(t, Config{}, faketp.LikeRC(), second, faketp.LikeUD())
			p.connect()
			for _, what := range tc.fails {
				f.FailNext(what, ucs.ErrNoMemory)
			}
			err := p.finish(p.a.ep.Put(make([]byte, 8), p.a.key.Addr(), p.a.key, nil))
			require.ErrorIs(t, err, ucs.ErrNoMemory)
			assert.ErrorIs(t, err, ucs.ErrEPFailed)
			assert.Equal(t, strings.ReplaceAll(tc.want, "PEER", fmt.Sprintf("to worker %#x", p.b.w.net.addr.UUID())), err.Error())
			assert.NotContains(t, p.a.ep.Err().Error(), "\n")
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
	_, err := NewContext(Config{}, brokenComponent{}, brokenComponent{})
	requireOneLine(t, err, "no transport is left")
	assert.Contains(t, err.Error(), "no device today")
	p, f := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
	f.NoReg = true
	_, err = p.a.ctx.MemMap(make([]byte, 8))
	require.ErrorIs(t, err, ucs.ErrUnsupported)
	require.NotContains(t, err.Error(), "\n")
	far := faketp.LikeRC()
	far.Device = "elsewhere"
	q, _ := fakePair(t, Config{}, far)
	_, err = p.a.w.NewEP(q.b.w.Address(), EPConfig{})
	requireOneLine(t, err, "new endpoint to worker 0x")
	assert.Contains(t, err.Error(), "frc fake0:1: unreachable: another fabric")
}

// TestAtomics_RejectsInvalid: a fetching atomic without a result buffer, and one at an unaligned address, is rejected and
// changes nothing, also if the transport has the operation.
func TestAtomics_RejectsInvalid(t *testing.T) {
	p, _ := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.connect().warm()
	p.idle()
	ep, key := p.a.ep, p.a.key
	clear(p.b.mem.Bytes())
	for name, fetch := range map[string]func(size int, result *uint64, addr uint64) error{
		"add": func(size int, result *uint64, addr uint64) error {
			return p.finish(ep.AtomicFetch(uct.AtomicAdd, size, 1, result, addr, key))
		},
		"compare and swap": func(size int, result *uint64, addr uint64) error {
			return p.finish(ep.AtomicCSwap(size, 0, 1, result, addr, key))
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
	assert.Equal(t, make([]byte, 16), p.b.mem.Bytes()[:16])
	var old uint64 = 7
	require.NoError(t, p.finish(ep.AtomicCSwap(8, 0, 5, &old, key.Addr(), key)))
	assert.Zero(t, old)
}

// TestBlocking_OfAClosedWorker: each blocking call returns that the worker is closed.
func TestBlocking_OfAClosedWorker(t *testing.T) {
	p, _ := fakePair(t, Config{}, faketp.LikeSM())
	p.connect().warm()
	p.idle()
	require.NoError(t, p.a.w.Close())
	for range 2 {
		for _, form := range p.blockingForms() {
			assert.ErrorIs(t, form.do(t.Context()), ucs.ErrClosed, form.name)
			assert.False(t, p.a.w.engine.Turn.Taken(), form.name)
		}
	}
}
