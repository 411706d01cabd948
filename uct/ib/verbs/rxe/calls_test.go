package rxe

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/uverbs"
	"github.com/gucx/gucx/internal/uverbs/playback"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// recordEnv is the environment variable with the name of the file for a record of the calls to the kernel.
const recordEnv = "GUCX_TEST_RECORD"

// record is the file with the replies of Linux 6.1 to useAll, with device rxe0 of the lab.
const record = "testdata/linux-6.1.txt"

var labInfo = uverbs.Info{Name: "rxe0", Path: "/dev/infiniband/uverbs0", Driver: uverbs.DriverRXE, ABI: driverABI, NetDev: "lab0"}

// objects has one object of each type.
type objects struct {
	ctx *verbs.Context
	cq  *verbs.CQ
	rc  *verbs.QP
	srq *verbs.SRQ
	ch  *verbs.CompChannel
	mr  *verbs.MR
}

// useAll creates one object of each type, calls test with them, and destroys them.
func useAll(t *testing.T, k uverbs.Kernel, test func(*objects)) {
	devices, err := devicesOf(k)
	require.NoError(t, err)
	require.NotEmpty(t, devices)
	o := &objects{}
	o.ctx, err = devices[0].Open()
	require.NoError(t, err)
	gids, err := o.ctx.GIDs(1)
	require.NoError(t, err)
	require.Greater(t, len(gids), 1)
	port, err := o.ctx.QueryPort(1)
	require.NoError(t, err)
	assert.Equal(t, verbs.PortActive, port.State)
	pd, err := o.ctx.AllocPD()
	require.NoError(t, err)
	buf, err := o.ctx.AllocBuffer(4096)
	require.NoError(t, err)
	o.mr, err = pd.RegMR(buf.Bytes(), verbs.AccessLocalWrite|verbs.AccessRemoteRead)
	require.NoError(t, err)
	o.ch, err = o.ctx.CreateCompChannel()
	require.NoError(t, err)
	o.cq, err = o.ctx.CreateCQ(verbs.CQInitAttr{Depth: 20, Channel: o.ch, SingleThreaded: true})
	require.NoError(t, err)
	o.srq, err = pd.CreateSRQ(verbs.SRQInitAttr{MaxWR: 5, MaxSGE: 2})
	require.NoError(t, err)
	o.rc, err = pd.CreateQP(verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: o.cq, RecvCQ: o.cq, SRQ: o.srq,
		Cap: verbs.QPCap{MaxSendWR: 7, MaxSendSGE: 2, MaxInline: 40}})
	require.NoError(t, err)
	ud, err := pd.CreateQP(verbs.QPInitAttr{Type: verbs.QPTypeUD, SendCQ: o.cq, RecvCQ: o.cq, Cap: verbs.QPCap{MaxSendWR: 7, MaxRecvWR: 3}})
	require.NoError(t, err)
	addr := verbs.AHAttr{DGID: gids[1].GID, SGIDIndex: gids[1].Index, Global: true, Port: 1, HopLimit: 64}
	ah, err := pd.CreateAH(addr)
	require.NoError(t, err)
	connect(t, o.rc, addr)
	require.NoError(t, o.srq.Modify(verbs.SRQAttr{Limit: 3}, verbs.SRQMaskLimit))
	limit, err := o.srq.Query()
	require.NoError(t, err)
	assert.Equal(t, 3, limit.Limit)
	test(o)
	for _, closeObject := range []func() error{ah.Close, ud.Close, o.rc.Close, o.srq.Close, o.cq.Close, o.ch.Close, o.mr.Close, buf.Close, pd.Close, o.ctx.Close} {
		require.NoError(t, closeObject())
	}
}

// connect connects a QP to itself.
func connect(t *testing.T, qp *verbs.QP, addr verbs.AHAttr) {
	const st = verbs.QPMaskState
	require.NoError(t, qp.Modify(verbs.QPAttr{State: verbs.QPStateInit, Port: 1, AccessFlags: verbs.AccessRemoteRead},
		st|verbs.QPMaskPKeyIndex|verbs.QPMaskPort|verbs.QPMaskAccessFlags))
	require.NoError(t, qp.Modify(verbs.QPAttr{State: verbs.QPStateRTR, AH: addr, PathMTU: verbs.MTU1024, DestQPN: qp.Number(), RQPSN: 77, MaxDestRD: 1, MinRNRTimer: 12},
		st|verbs.QPMaskAV|verbs.QPMaskPathMTU|verbs.QPMaskDestQPN|verbs.QPMaskRQPSN|verbs.QPMaskMaxDestRD|verbs.QPMaskMinRNRTimer))
	require.NoError(t, qp.Modify(verbs.QPAttr{State: verbs.QPStateRTS, SQPSN: 77, Timeout: 14, RetryCnt: 7, RNRRetry: 7, MaxRDAtomic: 1},
		st|verbs.QPMaskSQPSN|verbs.QPMaskTimeout|verbs.QPMaskRetryCnt|verbs.QPMaskRNRRetry|verbs.QPMaskMaxRDAtomic))
	assert.Equal(t, verbs.QPStateRTS, qp.State())
}

// TestCalls_Record creates the record that TestCalls_Playback replays.
func TestCalls_Record(t *testing.T) {
	path := os.Getenv(recordEnv)
	if path == "" {
		t.Skipf("%s names no file to record calls in", recordEnv)
	}
	r := &playback.Recorder{Kernel: uverbs.System()}
	useAll(t, r, func(*objects) {})
	require.NoError(t, os.WriteFile(path, []byte(r.Text()), 0o644))
}

func player(t *testing.T) *playback.Player {
	text, err := os.ReadFile(record)
	require.NoError(t, err)
	return playback.NewPlayer(labInfo, string(text))
}

// TestCalls_Playback checks that the provider makes the calls of the record.
func TestCalls_Playback(t *testing.T) {
	p := player(t)
	useAll(t, p, func(o *objects) {
		assert.False(t, o.ctx.HasTD())
		_, err := o.ctx.OpenXRCD(verbs.XRCDInitAttr{FD: verbs.PrivateXRCD})
		assert.ErrorIs(t, err, ucs.ErrUnsupported)
		assert.Equal(t, 31, o.cq.Depth())
	})
	require.NoError(t, p.Err())
	assert.Zero(t, p.Left())
}

// briefKernel is a player that does not replay writes but records their argument brief.
type briefKernel struct {
	*playback.Player
	brief []bool
}

func (k *briefKernel) Open(path string) (uverbs.File, error) {
	f, err := k.Player.Open(path)
	return &briefFile{File: f, k: k}, err
}

type briefFile struct {
	uverbs.File
	k *briefKernel
}

func (f *briefFile) Write(_ []byte, brief bool) error {
	f.k.brief = append(f.k.brief, brief)
	return nil
}

// During a post of up to 64 KiB or 16 packets the goroutine keeps its P (brief). A larger post takes longer and releases
// the P.
func TestPostSend_BriefUpTo64KiB(t *testing.T) {
	k := &briefKernel{Player: player(t)}
	useAll(t, k, func(o *objects) {
		post := func(lens ...uint32) {
			wrs := make([]verbs.SendWR, len(lens))
			for i, n := range lens {
				wrs[i] = verbs.SendWR{Opcode: verbs.OpRDMARead, SGList: []verbs.SGE{{Length: n}}}
			}
			n, err := o.rc.Provider().PostSend(wrs)
			require.NoError(t, err)
			require.Equal(t, len(lens), n)
		}
		post(8)
		post(briefLen)
		post(briefLen + 1)
		post(briefLen/2, briefLen/2+1)
		post(8, briefLen-packetCost+1)
		require.NoError(t, o.cq.Arm(false))
	})
	assert.Equal(t, []bool{true, true, false, false, false, true}, k.brief)
}
