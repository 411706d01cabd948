package connectx_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/mlx5/adapter"
	"github.com/gucx/gucx/internal/mlx5/fakekernel"
	"github.com/gucx/gucx/internal/offheap"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/uverbs"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// newKernel makes a kernel whose device is on the loop fabric.
func newKernel(cfg fakekernel.Config) *fakekernel.Kernel {
	cfg.Device.Fabric = softhca.FabricLoop
	return fakekernel.New(cfg)
}

// deviceOf is the device of a kernel.
func deviceOf(t testing.TB, k *fakekernel.Kernel) *verbs.Device {
	t.Helper()
	list, err := k.Devices(mlx5.Config{})
	require.NoError(t, err)
	require.Len(t, list, 1)
	return list[0]
}

const allRights = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic

// builder makes one object of each kind. After the first error it makes no more.
type builder struct {
	err     error
	closers []func() error
}

// add calls make unless there was an error.
func add[T interface {
	comparable
	Close() error
}](b *builder, create func() (T, error)) (o T) {
	if b.err != nil {
		return o
	}
	if o, b.err = create(); b.err == nil {
		b.closers = append(b.closers, o.Close)
	}
	return o
}

// do calls f unless there was an error.
func (b *builder) do(f func() error) {
	if b.err == nil {
		b.err = f()
	}
}

// buildAll uses each call of the provider.
func (b *builder) buildAll(dev *verbs.Device) {
	ctx := add(b, dev.Open)
	b.do(func() error { _, err := ctx.QueryPort(1); return err })
	b.do(func() error { _, err := ctx.GIDs(1); return err })
	var gid verbs.GID
	b.do(func() (err error) { gid, err = ctx.QueryGID(1, 0); return err })
	pd := add(b, func() (*verbs.PD, error) { return ctx.AllocPD() })
	buf := make([]byte, 1<<12)
	add(b, func() (*verbs.MR, error) { return pd.RegMR(buf, allRights) })
	ch := add(b, func() (*verbs.CompChannel, error) { return ctx.CreateCompChannel() })
	cq := add(b, func() (*verbs.CQ, error) { return ctx.CreateCQ(verbs.CQInitAttr{Depth: 63, Channel: ch, Vector: 1}) })
	srq := add(b, func() (*verbs.SRQ, error) { return pd.CreateSRQ(verbs.SRQInitAttr{MaxWR: 16, MaxSGE: 2, Limit: 4}) })
	size := verbs.QPCap{MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 2, MaxRecvSGE: 2}
	rc := add(b, func() (*verbs.QP, error) {
		return pd.CreateQP(verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq, SRQ: srq, SigAll: true, Cap: size})
	})
	path := verbs.AHAttr{DGID: gid, Global: true, Port: 1, HopLimit: 64}
	b.do(func() error { return connect(rc, path, rc.Number()) })
	b.do(func() error { return rc.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPMaskState) })
	add(b, func() (*verbs.QP, error) {
		return pd.CreateQP(verbs.QPInitAttr{Type: verbs.QPTypeUD, SendCQ: cq, RecvCQ: cq, Cap: size})
	})
	add(b, func() (*verbs.AH, error) { return pd.CreateAH(path) })
	td := add(b, func() (*verbs.TD, error) { return ctx.AllocTD(verbs.TDInitAttr{}) })
	add(b, func() (*verbs.QP, error) {
		return pd.CreateQP(verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq, TD: td, Cap: size})
	})
	domain := add(b, func() (*verbs.XRCD, error) { return ctx.OpenXRCD(verbs.XRCDInitAttr{FD: verbs.PrivateXRCD}) })
	add(b, func() (*verbs.SRQ, error) {
		return pd.CreateSRQ(verbs.SRQInitAttr{Type: verbs.SRQTypeXRC, XRCD: domain, CQ: cq, MaxWR: 16, MaxSGE: 2})
	})
	add(b, func() (*verbs.QP, error) {
		return pd.CreateQP(verbs.QPInitAttr{Type: verbs.QPTypeXRCSend, SendCQ: cq, Cap: size})
	})
	target := add(b, func() (*verbs.QP, error) { return domain.CreateQP(verbs.QPInitAttr{Type: verbs.QPTypeXRCRecv}) })
	add(b, func() (*verbs.QP, error) { return domain.OpenQP(target.Number()) })
}

// closeAll closes what was made, the last first, and a second time what has failed. It returns the errors of the first
// time.
func (b *builder) closeAll(t testing.TB) (errs []error) {
	t.Helper()
	for i := len(b.closers) - 1; i >= 0; i-- {
		if err := b.closers[i](); err != nil {
			errs = append(errs, err)
			require.NoError(t, b.closers[i](), "closed again after: %v", err)
		}
	}
	return errs
}

// connect connects an RC QP with one that has number peer.
func connect(qp *verbs.QP, path verbs.AHAttr, peer uint32) error {
	const st = verbs.QPMaskState
	for _, step := range []struct {
		attr verbs.QPAttr
		mask verbs.QPAttrMask
	}{
		{verbs.QPAttr{State: verbs.QPStateInit, Port: 1, AccessFlags: allRights}, st | verbs.QPMaskPKeyIndex | verbs.QPMaskPort | verbs.QPMaskAccessFlags},
		{verbs.QPAttr{State: verbs.QPStateRTR, AH: path, PathMTU: verbs.MTU1024, DestQPN: peer, RQPSN: 7, MaxDestRD: 1, MinRNRTimer: 12},
			st | verbs.QPMaskAV | verbs.QPMaskPathMTU | verbs.QPMaskDestQPN | verbs.QPMaskRQPSN | verbs.QPMaskMaxDestRD | verbs.QPMaskMinRNRTimer},
		{verbs.QPAttr{State: verbs.QPStateRTS, SQPSN: 7, Timeout: 14, RetryCnt: 7, RNRRetry: 7, MaxRDAtomic: 1},
			st | verbs.QPMaskSQPSN | verbs.QPMaskTimeout | verbs.QPMaskRetryCnt | verbs.QPMaskRNRRetry | verbs.QPMaskMaxRDAtomic},
	} {
		if err := qp.Modify(step.attr, step.mask); err != nil {
			return err
		}
	}
	return nil
}

// openFiles counts the descriptors of the process.
func openFiles(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(list)
}

// callCounter fails one call of the kernel.
type callCounter struct {
	mu    sync.Mutex
	fail  int // the number of the call; -1 for none
	errno unix.Errno
	calls []string
}

func (c *callCounter) before(call fakekernel.Call) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, call.Op)
	if len(c.calls)-1 == c.fail {
		return c.errno
	}
	return nil
}

// Each call of the kernel fails in turn: the error is that of the kernel, and nothing is left behind. An object whose
// destruction has failed can be destroyed again.
func TestTrouble_EachCallFails(t *testing.T) {
	testenv.SkipRace(t, "memory of queues is on the Go heap then, which is not counted")
	counter := &callCounter{fail: -1}
	k := newKernel(fakekernel.Config{Before: counter.before})
	dev := deviceOf(t, k)
	b := &builder{}
	b.buildAll(dev)
	require.NoError(t, b.err)
	assert.Empty(t, b.closeAll(t))
	assert.Empty(t, k.Live())
	calls := counter.calls
	require.Greater(t, len(calls), 50)
	files, memory := openFiles(t), offheap.InUse()
	for i, op := range calls {
		counter.calls, counter.fail, counter.errno = nil, i, unix.ENOMEM
		b := &builder{}
		b.buildAll(dev)
		errs := b.closeAll(t)
		if b.err != nil {
			errs = append(errs, b.err)
		}
		what := fmt.Sprintf("call %d, %s", i, op)
		if len(errs) > 0 || !tolerated(op) {
			assert.ErrorIs(t, errors.Join(errs...), unix.ENOMEM, what)
		}
		assert.Empty(t, k.Live(), what)
		assert.Equal(t, memory, offheap.InUse(), what)
	}
	runtime.GC()
	assert.LessOrEqual(t, openFiles(t), files)
}

// tolerated reports whether the failure of a call need not be an error: a QP shares a register if it gets no page, and one
// in an unknown state counts as in ERR.
func tolerated(op string) bool {
	return op == uverbs.CmdQueryQP.String() || op == uverbs.MethodMLX5AllocUAR.String() || op == "map"
}

// replies are replies that cannot be right, or not be used.
var replies = []struct {
	name  string
	op    string
	spoil func(fakekernel.Call)
	want  error
	text  string
}{
	{"old kernel", "get context", put32(uverbs.AttrDriverOut, 40, 16), ucs.ErrUnsupported, "description of UAR pages"},
	{"reply of no length", "get context", put32(uverbs.AttrDriverOut, 40, 0), ucs.ErrUnsupported, "description of UAR pages"},
	{"static UARs", "get context", put32(uverbs.AttrDriverOut, 8, 16), ucs.ErrUnsupported, "Linux 5.7"},
	{"CQE version 0", "get context", put32(uverbs.AttrDriverOut, 44, 0), ucs.ErrUnsupported, "version 0 of CQEs"},
	{"UARs of 64 KiB", "get context", put32(uverbs.AttrDriverOut, 56, 16), ucs.ErrUnsupported, "UAR pages"},
	{"UARs of 2^4294967295 bytes", "get context", put32(uverbs.AttrDriverOut, 56, 1<<32-1), ucs.ErrUnsupported, "UAR pages"},
	{"16 UARs in a page", "get context", put32(uverbs.AttrDriverOut, 60, 16), ucs.ErrUnsupported, "16 UAR pages"},
	{"BlueFlame of 64 KiB", "get context", put32(uverbs.AttrDriverOut, 4, 1<<16), ucs.ErrUnsupported, "BlueFlame registers of 65536 bytes"},
	{"no work requests", "get context", put32(uverbs.AttrDriverOut, 16, 0), ucs.ErrInternal, "work requests of at most 0 bytes"},
	{"no ports", "query device", put32(1, 168, 0), ucs.ErrInternal, "0 ports"},
	{"no SGEs", "query device", put32(1, 64, 0), ucs.ErrInternal, "of 0 SGEs"},
	{"UAR mapping of no length", "allocate UAR page", put32(0x1003, 0, 0), ucs.ErrInternal, "0 bytes at"},
	{"UAR mapping too long", "allocate UAR page", put32(0x1003, 0, 1<<31), ucs.ErrInternal, "2147483648 bytes at"},
	{"UAR mapping not at a page", "allocate UAR page", put32(0x1002, 0, 0x1234), ucs.ErrInternal, "at 0x1234"},
	{"PD of 32 bits", "allocate PD", put32(uverbs.AttrDriverOut, 0, 1<<31), ucs.ErrInternal, "PD 0x80000000"},
	{"CQ without number", "create CQ", put32(uverbs.AttrDriverOut, 0, 0), ucs.ErrInternal, "number 0x0"},
	{"CQ of 32 bits", "create CQ", put32(uverbs.AttrDriverOut, 0, 1<<24), ucs.ErrInternal, "number 0x1000000"},
	{"CQ too short", "create CQ", put32(6, 0, 1), ucs.ErrInternal, "depth 1, want 63"},
	{"CQ too long", "create CQ", put32(6, 0, 1<<32-1), ucs.ErrInternal, "depth 4294967295"},
	{"SRQ without number", "create SRQ", put32(uverbs.AttrDriverOut, 0, 0), ucs.ErrInternal, "number 0x0"},
	{"SRQ too short", "create SRQ", put32(11, 0, 3), ucs.ErrInternal, "3 receives"},
	{"SRQ without SGEs", "create SRQ", put32(12, 0, 0), ucs.ErrInternal, "of 0 SGEs"},
	{"QP without number", "create QP", put32(14, 0, 0), ucs.ErrInternal, "number 0x0"},
	{"QP of 32 bits", "create QP", put32(14, 0, 1<<24), ucs.ErrInternal, "number 0x1000000"},
	{"AH without neighbor", "create AH", put32(uverbs.AttrDriverOut, 0, 4), ucs.ErrInternal, "without the address of the neighbor"},
}

// put32 changes 4 bytes of a reply.
func put32(attr uint16, off int, v uint32) func(fakekernel.Call) {
	return func(c fakekernel.Call) {
		if data := c.Data(attr); data != nil {
			binary.NativeEndian.PutUint32(data[off:], v)
		}
	}
}

// A reply that cannot be right is an error that says so, and nothing is left behind.
func TestTrouble_AbsurdReplies(t *testing.T) {
	for _, r := range replies {
		t.Run(r.name, func(t *testing.T) {
			k := newKernel(fakekernel.Config{After: func(c fakekernel.Call) {
				if c.Op == r.op {
					r.spoil(c)
				}
			}})
			b := &builder{}
			b.buildAll(deviceOf(t, k))
			assert.ErrorIs(t, b.err, r.want)
			assert.ErrorContains(t, b.err, r.text)
			assert.Empty(t, b.closeAll(t))
			assert.Empty(t, k.Live())
		})
	}
}

// Numbers that two objects have are noticed.
func TestTrouble_NumberTwice(t *testing.T) {
	const number = 0x77
	for op, attr := range map[string]uint16{"allocate PD": uverbs.AttrDriverOut, "create CQ": uverbs.AttrDriverOut,
		"create SRQ": uverbs.AttrDriverOut, "create QP": 14} {
		t.Run(op, func(t *testing.T) {
			k := newKernel(fakekernel.Config{After: func(c fakekernel.Call) {
				if c.Op == op {
					put32(attr, 0, number)(c)
				}
			}})
			dev := deviceOf(t, k)
			b := &builder{}
			ctx := add(b, dev.Open)
			for range 2 {
				pd := add(b, func() (*verbs.PD, error) { return ctx.AllocPD() })
				cq := add(b, func() (*verbs.CQ, error) { return ctx.CreateCQ(verbs.CQInitAttr{Depth: 5}) })
				add(b, func() (*verbs.SRQ, error) { return pd.CreateSRQ(verbs.SRQInitAttr{MaxWR: 5, MaxSGE: 1}) })
				add(b, func() (*verbs.QP, error) {
					return pd.CreateQP(verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq, Cap: verbs.QPCap{MaxSendWR: 1, MaxSendSGE: 1}})
				})
			}
			var reply *adapter.ReplyError
			require.ErrorAs(t, b.err, &reply)
			assert.Equal(t, op, reply.Op)
			assert.Empty(t, b.closeAll(t))
			assert.Empty(t, k.Live())
		})
	}
}

// Replies with any bytes, but for handles and descriptors, are used or refused, and nothing is left behind.
func FuzzReplies(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0xff, 0, 0xff, 0, 1, 2, 3, 4, 0xff, 0xff, 0xff, 0xff, 0x80})
	f.Fuzz(func(t *testing.T, noise []byte) {
		var mu sync.Mutex
		at := 0
		k := newKernel(fakekernel.Config{After: func(c fakekernel.Call) {
			mu.Lock()
			defer mu.Unlock()
			for id, reply := range c.Replies() {
				if id == 1 && len(reply) <= 32 { // a handle
					continue
				}
				for i := range reply {
					if at < len(noise) {
						reply[i] ^= noise[at]
						at++
					}
				}
			}
		}})
		b := &builder{}
		b.buildAll(deviceOf(t, k))
		b.closeAll(t)
		assert.Empty(t, k.Live())
	})
}

func TestTrouble_NoPermission(t *testing.T) {
	k := newKernel(fakekernel.Config{Before: func(c fakekernel.Call) error {
		if c.Op == "open" {
			return unix.EACCES
		}
		return nil
	}})
	_, err := deviceOf(t, k).Open()
	assert.ErrorIs(t, err, unix.EACCES)
	assert.ErrorContains(t, err, "this user may not use the device")
}

func TestTrouble_Arguments(t *testing.T) {
	k := newKernel(fakekernel.Config{})
	ctx, err := deviceOf(t, k).Open()
	require.NoError(t, err)
	defer func() { require.NoError(t, ctx.Close()) }()
	_, err = ctx.QueryPort(2)
	assert.ErrorIs(t, err, ucs.ErrInvalidParam)
	_, err = ctx.QueryGID(1, 7)
	assert.ErrorIs(t, err, ucs.ErrInvalidParam)
	_, err = ctx.CreateCQ(verbs.CQInitAttr{Depth: 1, Vector: 1 << 20})
	assert.ErrorIs(t, err, ucs.ErrInvalidParam)
	assert.ErrorContains(t, err, "no completion vector 1048576 of 4")
	assert.Equal(t, 940, ctx.QueryDevice().MaxInline)
}

// The kernel gives the number of an object to another one before the call that destroys the first has returned.
func TestTrouble_NumberReused(t *testing.T) {
	const numberOfPD, numberOfCQ = 0x51, 0x52
	var ctx *verbs.Context
	during := map[string]func() error{} // what another goroutine does during a destruction
	k := newKernel(fakekernel.Config{After: func(c fakekernel.Call) {
		switch c.Op {
		case "allocate PD":
			put32(uverbs.AttrDriverOut, 0, numberOfPD)(c)
		case "create CQ":
			put32(uverbs.AttrDriverOut, 0, numberOfCQ)(c)
		case "free PD", "destroy CQ":
			if f := during[c.Op]; f != nil {
				delete(during, c.Op)
				assert.NoError(t, f(), c.Op)
			}
		}
	}})
	b := &builder{}
	ctx = add(b, deviceOf(t, k).Open)
	require.NoError(t, b.err)
	pd, err := ctx.AllocPD()
	require.NoError(t, err)
	cq, err := ctx.CreateCQ(verbs.CQInitAttr{Depth: 5})
	require.NoError(t, err)
	during["free PD"] = func() error {
		add(b, func() (*verbs.PD, error) { return ctx.AllocPD() })
		return b.err
	}
	during["destroy CQ"] = func() error {
		add(b, func() (*verbs.CQ, error) { return ctx.CreateCQ(verbs.CQInitAttr{Depth: 5}) })
		return b.err
	}
	require.NoError(t, pd.Close())
	require.NoError(t, cq.Close())
	assert.Empty(t, b.closeAll(t), "the new objects are not lost")
	assert.Empty(t, k.Live())
}
