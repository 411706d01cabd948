package adapter

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/offheap"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/uverbs"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
)

func TestMain(m *testing.M) { testenv.Main(m) }

var transcriptInfo = uverbs.Info{Name: "mlx5_0", Path: "/dev/infiniband/uverbs0", Driver: uverbs.DriverMLX5, ABI: driverABI}

// script repeats the steps of the recorded program with package verbs.
type script struct {
	*transcriptKernel
	ctx     *verbs.Context
	pd      *verbs.PD
	cq, cq2 *verbs.CQ
	srq     *verbs.SRQ
	rc      *verbs.QP
	closers []func() error // in the order of the record

	queueConfig mlx5.Config
}

// later adds an object that the script closes at the end, the last one first.
func (s *script) later(c interface{ Close() error }) {
	s.closers = append([]func() error{c.Close}, s.closers...)
}

// made returns a function that checks the error of a constructor, adds the object to s and returns it.
func made[T interface{ Close() error }](s *script) func(T, error) T {
	return func(o T, err error) T {
		s.t.Helper()
		require.NoError(s.t, err)
		s.later(o)
		return o
	}
}

const allRights = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic

// counted returns a GID with the bytes first, first+1, and so on.
func counted(first byte) (g verbs.GID) {
	for i := range g {
		g[i] = first + byte(i)
	}
	return g
}

func (s *script) run() {
	t := s.t
	ctx, err := newDevice(s, transcriptInfo, s.queueConfig).Open()
	require.NoError(t, err)
	s.ctx = ctx
	s.step("query device")
	ctx.QueryDevice()
	s.step("query port")
	_, err = ctx.QueryPort(1)
	require.NoError(t, err)
	s.step("alloc PD")
	s.pd = made[*verbs.PD](s)(ctx.AllocPD())
	s.memory()
	s.queues()
	s.connections()
	s.datagrams()
	s.threadDomain()
	s.xrc()
	s.step("destroy all")
	for _, c := range s.closers {
		require.NoError(t, c())
	}
	require.NoError(t, ctx.Close())
	s.finish()
}

func (s *script) memory() {
	buf, err := offheap.Alloc(4096)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { require.NoError(s.t, buf.Free()) })
	s.step("reg MR 4096 bytes, access 15")
	made[*verbs.MR](s)(s.pd.RegMR(buf.Bytes(), allRights))
	s.step("reg MR 100 bytes at +16, local write, relaxed ordering")
	made[*verbs.MR](s)(s.pd.RegMR(buf.Bytes()[16:116], verbs.AccessLocalWrite))
}

func (s *script) queues() {
	s.step("comp channel")
	ch := made[*verbs.CompChannel](s)(s.ctx.CreateCompChannel())
	s.step("create CQ depth 63, channel, vector 2")
	s.cq = made[*verbs.CQ](s)(s.ctx.CreateCQ(verbs.CQInitAttr{Depth: 63, Channel: ch, Vector: 2}))
	s.step("create CQ depth 100, no channel")
	s.cq2 = made[*verbs.CQ](s)(s.ctx.CreateCQ(verbs.CQInitAttr{Depth: 100}))
}

const st = verbs.QPMaskState

// toRTS moves an RC QP, or an XRC target, to RTS.
func (s *script) toRTS(qp *verbs.QP) {
	s.step("modify INIT")
	require.NoError(s.t, qp.Modify(verbs.QPAttr{State: verbs.QPStateInit, Port: 1, AccessFlags: allRights},
		st|verbs.QPMaskPort|verbs.QPMaskPKeyIndex|verbs.QPMaskAccessFlags))
	s.step("modify RTR")
	require.NoError(s.t, qp.Modify(verbs.QPAttr{State: verbs.QPStateRTR, PathMTU: 3, DestQPN: 0x55, RQPSN: 0x111111, MaxDestRD: 4, MinRNRTimer: 12,
		AH: verbs.AHAttr{Global: true, Port: 1, SL: 3, HopLimit: 64, SGIDIndex: 1, TrafficClass: 0x60, FlowLabel: 0x12345, DGID: counted(0xa0)}},
		st|verbs.QPMaskAV|verbs.QPMaskPathMTU|verbs.QPMaskDestQPN|verbs.QPMaskRQPSN|verbs.QPMaskMaxDestRD|verbs.QPMaskMinRNRTimer))
	s.step("modify RTS")
	attr := verbs.QPAttr{State: verbs.QPStateRTS, Timeout: 14, SQPSN: 0x222222, RetryCnt: 7, RNRRetry: 6, MaxRDAtomic: 4}
	mask := st | verbs.QPMaskSQPSN | verbs.QPMaskTimeout | verbs.QPMaskRetryCnt | verbs.QPMaskRNRRetry | verbs.QPMaskMaxRDAtomic
	if qp.Type() == verbs.QPTypeXRCRecv { // a target does not send
		attr.RetryCnt, attr.RNRRetry, attr.MaxRDAtomic = 0, 0, 0
		mask = st | verbs.QPMaskSQPSN | verbs.QPMaskTimeout
	}
	require.NoError(s.t, qp.Modify(attr, mask))
}

// connections creates and connects RC QPs.
func (s *script) connections() {
	s.step("create SRQ 31 x 2")
	s.srq = made[*verbs.SRQ](s)(s.pd.CreateSRQ(verbs.SRQInitAttr{MaxWR: 31, MaxSGE: 2}))
	s.step("create RC QP 16/8, 2/2 SGEs, inline 60")
	s.rc = made[*verbs.QP](s)(s.pd.CreateQP(verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: s.cq, RecvCQ: s.cq2,
		Cap: verbs.QPCap{MaxSendWR: 16, MaxRecvWR: 8, MaxSendSGE: 2, MaxRecvSGE: 2, MaxInline: 60}}))
	s.toRTS(s.rc)
	s.step("create RC QP with SRQ, sq_sig_all")
	made[*verbs.QP](s)(s.pd.CreateQP(verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: s.cq, RecvCQ: s.cq, SRQ: s.srq, SigAll: true,
		Cap: verbs.QPCap{MaxSendWR: 4, MaxSendSGE: 1}}))
}

var queueOf16 = verbs.QPCap{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 1, MaxRecvSGE: 1}

func (s *script) datagrams() {
	s.step("create UD QP")
	qp := made[*verbs.QP](s)(s.pd.CreateQP(verbs.QPInitAttr{Type: verbs.QPTypeUD, SendCQ: s.cq, RecvCQ: s.cq, Cap: queueOf16}))
	s.step("UD INIT, RTR, RTS")
	require.NoError(s.t, qp.Modify(verbs.QPAttr{State: verbs.QPStateInit, Port: 1, QKey: 0x11111111}, st|verbs.QPMaskPort|verbs.QPMaskPKeyIndex|verbs.QPMaskQKey))
	require.NoError(s.t, qp.Modify(verbs.QPAttr{State: verbs.QPStateRTR}, st))
	require.NoError(s.t, qp.Modify(verbs.QPAttr{State: verbs.QPStateRTS, SQPSN: 5}, st|verbs.QPMaskSQPSN))
	s.step("create AH")
	made[*verbs.AH](s)(s.pd.CreateAH(verbs.AHAttr{Global: true, Port: 1, SL: 3, SGIDIndex: 1, HopLimit: 64, TrafficClass: 1, FlowLabel: 7, DGID: counted(0xb0)}))
}

func (s *script) threadDomain() {
	s.step("thread domain, parent domain, RC QP in it")
	td, err := s.ctx.AllocTD(verbs.TDInitAttr{})
	require.NoError(s.t, err)
	s.later(td)
	made[*verbs.QP](s)(s.pd.CreateQP(verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: s.cq, RecvCQ: s.cq, TD: td, Cap: queueOf16}))
}

func (s *script) xrc() {
	s.step("XRC: private domain")
	const oCreat = 0x40
	domain := made[*verbs.XRCD](s)(s.ctx.OpenXRCD(verbs.XRCDInitAttr{FD: verbs.PrivateXRCD, Flags: oCreat}))
	s.step("XRC SRQ 31 x 2")
	made[*verbs.SRQ](s)(s.pd.CreateSRQ(verbs.SRQInitAttr{Type: verbs.SRQTypeXRC, XRCD: domain, CQ: s.cq, MaxWR: 31, MaxSGE: 2}))
	s.step("XRC initiator")
	made[*verbs.QP](s)(s.pd.CreateQP(verbs.QPInitAttr{Type: verbs.QPTypeXRCSend, SendCQ: s.cq, Cap: verbs.QPCap{MaxSendWR: 16, MaxSendSGE: 2}}))
	s.step("XRC target")
	target := made[*verbs.QP](s)(domain.CreateQP(verbs.QPInitAttr{Type: verbs.QPTypeXRCRecv}))
	s.toRTS(target)
	s.step("XRC target opened by number")
	made[*verbs.QP](s)(domain.OpenQP(target.Number()))
	s.step("SRQ limit 5")
	require.NoError(s.t, s.srq.Modify(verbs.SRQAttr{Limit: 5}, verbs.SRQMaskLimit))
	s.step("query QP")
	s.step("modify ERR")
	require.NoError(s.t, s.rc.Modify(verbs.QPAttr{State: verbs.QPStateErr}, st))
}

// difference is an intended difference: a pattern of its text, in which * matches any text, and its reason.
type difference struct{ pattern, why string }

// differences lists the intended differences of all records.
var differences = []difference{
	{"open: get context: attribute 4096 at 8: 01000000, gucx 00000000", "DEVX is not used"},
	{"open: only libmlx5: method 4096 of object 4096", "a query of DEVX"},
	{"open: only libmlx5: query device", "libmlx5 probes whether the ioctl invokes commands; here the first command fails if not"},
	{"open: only libmlx5: command 2147483649", "the extended query, whose additions are not used"},
	{"open: only gucx: query device", "the limits are queried when the device is opened"},
	{"query device: only libmlx5: query device", "the limits are known"},
	{"reg MR 100 bytes*: register memory: attribute 0 at 36: 01001000, gucx 01000000", "relaxed ordering is not offered"},
	{"*create SRQ: attribute 5 at 0: 3f000000, gucx 1f000000", "libmlx5 adds room for its wait queue"},
	{"*create QP: attribute 8 at 16: *", "a send queue has the room for inline data that whole basic blocks leave"},
	{"*create QP: attribute 4096 at 16: *", "libmlx5 adds room for a UMR to each work request"},
	{"*create QP: attribute 4096 at 28: 02040000, gucx 00040000", "no scatter to CQEs"},
	{"*create QP: attribute 4096 at 32: *", "user indexes begin at 1"},
	{"XRC SRQ 31 x 2: create SRQ: attribute 4096 at 24: 04000000, gucx 05000000", "user indexes begin at 1"},
	{"modify RTR: only gucx: query port", "package verbs checks the address, and queries the port once"},
	{"XRC target: create QP: attribute 4096 at 8: +*, gucx +000", "a target has no doorbell record"},
	{"XRC target: create QP: attribute 4096 at 36: *, gucx 00000000", "a target has no register"},
	{"modify RTS: modify QP: attribute 0 at 68: 012e0100, gucx 01020100", "package verbs refuses attributes of a requester for a target"},
	{"modify RTS: modify QP: attribute 0 at 100: 00040000, gucx 00000000", "the same: the number of reads and atomics"},
	{"modify RTS: modify QP: attribute 0 at 104: 000e0706, gucx 000e0000", "the same: retries"},
	{"XRC target opened by number: only gucx: query QP", "another process may have moved the target"},
	{"modify ERR: only gucx: query QP", "package verbs checks the transition, and in RTS only the device knows the state"},
	{"destroy all: only gucx: destroy QP", "the recorded program has not closed the opened target"},
}

// blueFlameDifferences lists the intended differences of records in which a target uses a UAR page of its own.
var blueFlameDifferences = []difference{
	{"XRC target: only libmlx5: allocate UAR page", "a target has no register"},
	{"XRC target: only libmlx5: map len 4096 offset *", "a target has no register"},
	{"destroy all: only libmlx5: free UAR page", "a target has no register"},
}

// unexplained returns the differences that are not in the list, and the patterns that match no difference.
func unexplained(diffs []string, list []difference) (unknown, unused []string) {
	used := make([]bool, len(list))
	for _, d := range diffs {
		known := false
		for i := range list {
			pattern := strings.ReplaceAll(regexp.QuoteMeta(list[i].pattern), `\*`, ".*")
			if regexp.MustCompile("^" + pattern + "$").MatchString(d) {
				known, used[i] = true, true
			}
		}
		if !known {
			unknown = append(unknown, d)
		}
	}
	for i := range list {
		if !used[i] {
			unused = append(unused, list[i].pattern)
		}
	}
	return unknown, unused
}

// The calls equal those of libmlx5, except for the listed differences.
func TestLibmlx5(t *testing.T) {
	for _, test := range []struct {
		name   string
		queues mlx5.Config
		extra  []difference
		equal  int // calls without a difference
	}{
		{name: "lazy", extra: blueFlameDifferences, equal: 49},
		{name: "ib", extra: blueFlameDifferences, equal: 46},
		{name: "nobf", queues: mlx5.Config{ShutUpBF: true}, equal: 43},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := &script{transcriptKernel: newTranscriptKernel(t, "testdata/libmlx5-"+test.name+".txt"), queueConfig: test.queues}
			s.run()
			unknown, unused := unexplained(s.diffs, slices.Concat(differences, test.extra))
			assert.Empty(t, unknown, "differences without a reason")
			assert.Empty(t, unused, "reasons without a difference")
			assert.Equal(t, test.equal, s.equal, "equal calls")
		})
	}
}

// unexplained reports differences that the list lacks and patterns that match no difference.
func TestUnexplained(t *testing.T) {
	list := []difference{{"a: * b", ""}, {"c", ""}}
	unknown, unused := unexplained([]string{"a: 1 b", "a: 1 bb"}, list)
	assert.Equal(t, []string{"a: 1 bb"}, unknown)
	assert.Equal(t, []string{"c"}, unused)
}

// Open fails for a kernel that assigns static UARs to QPs, with the reason.
func TestLibmlx5_StaticUARs(t *testing.T) {
	k := newTranscriptKernel(t, "testdata/libmlx5-static.txt")
	_, err := newDevice(k, transcriptInfo, mlx5.Config{}).Open()
	assert.ErrorIs(t, err, ucs.ErrUnsupported)
	assert.ErrorContains(t, err, "dynamic UAR pages")
	assert.ErrorContains(t, err, "Linux 5.7")
}
