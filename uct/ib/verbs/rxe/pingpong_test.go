package rxe_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/rxe"
)

// Defaults of the programs of ibverbs-utils.
const (
	pingpongPort = 18515
	pingpongQKey = 0x11111111
	pingpongPSN  = 0x123456 // PSN of the test's QP; the program uses a random one
	pingpongSize = 1024
	pingpongRuns = 200
	pingpongWait = testenv.Watchdog
	grhLen       = 40
)

// pingpongDevices returns the names of the test's device and of the program's device.
func pingpongDevices(t *testing.T) (name, peer string) {
	name = os.Getenv(deviceEnv)
	if name == "" {
		t.Skipf("%s names no device of the kernel", deviceEnv)
	}
	return name, cmp.Or(os.Getenv(peerEnv), name)
}

// TestPingpong runs ibv_rc_pingpong, with and without an SRQ on the test's side, and ibv_ud_pingpong, each as server and
// as client of the test.
func TestPingpong(t *testing.T) {
	name, peer := pingpongDevices(t)
	for _, c := range []struct {
		program string
		typ     verbs.QPType
		srq     bool
	}{
		{"ibv_rc_pingpong", verbs.QPTypeRC, false},
		{"ibv_ud_pingpong", verbs.QPTypeUD, false},
		{"ibv_rc_pingpong", verbs.QPTypeRC, true},
	} {
		for _, server := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/srq=%t/server=%t", c.program, c.srq, server), func(t *testing.T) {
				path := testenv.Command(t, c.program)
				p := newPingpong(t, name, c.typ, c.srq)
				p.run(t, path, []string{"-d", peer, "-g", strconv.Itoa(int(p.gid.Index)), "-n", strconv.Itoa(pingpongRuns), "-s", strconv.Itoa(pingpongSize)}, server)
			})
		}
	}
}

// pingpong is the test's side of the connection.
type pingpong struct {
	pd   *verbs.PD
	cq   *verbs.CQ
	qp   *verbs.QP
	srq  *verbs.SRQ
	mr   *verbs.MR
	gid  verbs.GIDEntry
	head int // bytes before the payload of each received message
	ah   *verbs.AH
	peer pingpongAddr
}

// pingpongAddr is the address that the sides exchange.
type pingpongAddr struct {
	qpn, psn uint32
	gid      verbs.GID
}

func newPingpong(t *testing.T, name string, typ verbs.QPType, srq bool) *pingpong {
	later := func(f func() error) { t.Cleanup(func() { assert.NoError(t, f()) }) }
	ctx, err := findDevice(t, name).Open()
	require.NoError(t, err)
	later(ctx.Close)
	p := &pingpong{}
	gids, err := ctx.GIDs(1)
	require.NoError(t, err)
	p.gid, _ = verbs.ChooseGID(gids)
	p.pd, err = ctx.AllocPD()
	require.NoError(t, err)
	later(p.pd.Close)
	buf, err := ctx.AllocBuffer(pingpongSize + grhLen)
	require.NoError(t, err)
	later(buf.Close)
	p.mr, err = p.pd.RegMR(buf.Bytes(), verbs.AccessLocalWrite)
	require.NoError(t, err)
	later(p.mr.Close)
	p.cq, err = ctx.CreateCQ(verbs.CQInitAttr{Depth: 2*pingpongRuns + 2})
	require.NoError(t, err)
	later(p.cq.Close)
	attr := verbs.QPInitAttr{Type: typ, SendCQ: p.cq, RecvCQ: p.cq, Cap: verbs.QPCap{MaxSendWR: 2, MaxRecvWR: pingpongRuns}}
	if srq {
		p.srq, err = p.pd.CreateSRQ(verbs.SRQInitAttr{MaxWR: pingpongRuns, MaxSGE: 1})
		require.NoError(t, err)
		later(p.srq.Close)
		attr.SRQ = p.srq
	}
	p.qp, err = p.pd.CreateQP(attr)
	require.NoError(t, err)
	later(p.qp.Close)
	init := verbs.QPMaskState | verbs.QPMaskPKeyIndex | verbs.QPMaskPort | verbs.QPMaskAccessFlags
	if typ == verbs.QPTypeUD {
		p.head = grhLen
		init = init&^verbs.QPMaskAccessFlags | verbs.QPMaskQKey
	}
	require.NoError(t, p.qp.Modify(verbs.QPAttr{State: verbs.QPStateInit, Port: 1, QKey: pingpongQKey}, init))
	for range pingpongRuns {
		p.recv(t)
	}
	return p
}

// diesWithUs returns attributes with which the kernel kills the program when this process exits.
func diesWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

func findDevice(t *testing.T, name string) *verbs.Device {
	devices, err := rxe.Devices()
	require.NoError(t, err)
	for _, d := range devices {
		if d.Name() == name {
			return d
		}
	}
	require.Fail(t, "no device "+name)
	return nil
}

func (p *pingpong) recv(t *testing.T) {
	post := p.qp.PostRecv
	if p.srq != nil {
		post = p.srq.PostRecv
	}
	_, err := post([]verbs.RecvWR{{ID: 1, SGList: []verbs.SGE{p.mr.SGE(0, pingpongSize+p.head)}}})
	require.NoError(t, err)
}

// run exchanges messages with a run of the program.
func (p *pingpong) run(t *testing.T, path string, args []string, server bool) {
	againstProgram(t, path, args, server, p.serve, p.client)
	p.play(t, !server)
}

// againstProgram runs a program of ibverbs-utils: as a client while serve runs, or as a server while client runs. The
// test fails if the program does not exit successfully within twice pingpongWait.
func againstProgram(t *testing.T, path string, args []string, server bool, serve func(*testing.T, net.Listener), client func(*testing.T)) {
	var out bytes.Buffer
	start := func(args []string) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*pingpongWait)
		cmd := exec.CommandContext(ctx, path, args...)
		cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = &out, &out, diesWithUs()
		require.NoError(t, cmd.Start())
		t.Cleanup(func() {
			assert.NoError(t, cmd.Wait(), "%s", &out)
			cancel()
		})
	}
	if !server {
		start(args)
		client(t)
		return
	}
	l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", pingpongPort))
	require.NoError(t, err)
	defer l.Close()
	start(append(args, "127.0.0.1"))
	serve(t, l)
}

// message returns the text of the address: 51 characters and a zero byte. A side must send it in one write.
func (a *pingpongAddr) message() []byte {
	return fmt.Appendf(nil, "%04x:%06x:%06x:%x\x00", 0, a.qpn, a.psn, a.gid[:])
}

// skipPingpongAddr reads an address message without parsing it.
func skipPingpongAddr(t *testing.T, c net.Conn) []byte {
	text := make([]byte, len((&pingpongAddr{}).message()))
	_, err := io.ReadFull(c, text)
	require.NoError(t, err)
	return text
}

// readPingpongAddr reads and parses an address message.
func readPingpongAddr(t *testing.T, c net.Conn) (a pingpongAddr) {
	text := skipPingpongAddr(t, c)
	parts := bytes.Split(text[:len(text)-1], []byte(":"))
	require.Len(t, parts, 4, "%s", text)
	number := func(b []byte) uint32 {
		n, err := strconv.ParseUint(string(b), 16, 24)
		require.NoError(t, err)
		return uint32(n)
	}
	a.qpn, a.psn = number(parts[1]), number(parts[2])
	_, err := hex.Decode(a.gid[:], parts[3])
	require.NoError(t, err)
	return a
}

// own returns the address of the test's QP.
func (p *pingpong) own() pingpongAddr {
	return pingpongAddr{p.qp.Number(), pingpongPSN, p.gid.GID}
}

// done is the message that a client writes after it has read the address of the server.
const done = "done\x00"

func (p *pingpong) client(t *testing.T) {
	own := p.own()
	dialPingpong(t, func(c net.Conn) {
		_, err := c.Write(own.message())
		require.NoError(t, err)
		p.peer = readPingpongAddr(t, c)
	})
	p.connect(t)
}

// dialPingpong connects to the program, which may not listen yet, and calls exchange to exchange addresses.
func dialPingpong(t *testing.T, exchange func(c net.Conn)) {
	var c net.Conn
	require.Eventually(t, func() (ok bool) {
		var err error
		c, err = net.Dial("tcp4", fmt.Sprintf("127.0.0.1:%d", pingpongPort))
		return err == nil
	}, pingpongWait, 100*time.Millisecond)
	defer c.Close()
	exchange(c)
	_, err := c.Write([]byte(done))
	require.NoError(t, err)
}

func (p *pingpong) serve(t *testing.T, l net.Listener) {
	own := p.own()
	acceptPingpong(t, l, func(c net.Conn) {
		p.peer = readPingpongAddr(t, c)
		p.connect(t)
		_, err := c.Write(own.message())
		require.NoError(t, err)
	})
}

// acceptPingpong accepts a connection of the program and calls exchange to exchange addresses. The QP of the server must
// be connected before the client has its address.
func acceptPingpong(t *testing.T, l net.Listener, exchange func(c net.Conn)) {
	c, err := l.Accept()
	require.NoError(t, err)
	defer c.Close()
	exchange(c)
	_, err = io.ReadFull(c, make([]byte, len(done)))
	require.NoError(t, err)
}

func (p *pingpong) connect(t *testing.T) {
	if p.head == 0 {
		connectPingpong(t, p.qp, p.peer, p.gid.Index)
		return
	}
	const st = verbs.QPMaskState
	require.NoError(t, p.qp.Modify(verbs.QPAttr{State: verbs.QPStateRTR}, st))
	require.NoError(t, p.qp.Modify(verbs.QPAttr{State: verbs.QPStateRTS, SQPSN: pingpongPSN}, st|verbs.QPMaskSQPSN))
	var err error
	p.ah, err = p.pd.CreateAH(p.peer.path(p.gid.Index))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, p.ah.Close()) })
}

// path returns the attributes of an AH from the GID-table entry gidIndex to a.
func (a *pingpongAddr) path(gidIndex uint8) verbs.AHAttr {
	return verbs.AHAttr{DGID: a.gid, SGIDIndex: gidIndex, Global: true, Port: 1, HopLimit: 1}
}

// connectPingpong moves an RC QP to RTS.
func connectPingpong(t *testing.T, qp *verbs.QP, peer pingpongAddr, gidIndex uint8) {
	const st = verbs.QPMaskState
	require.NoError(t, qp.Modify(verbs.QPAttr{State: verbs.QPStateRTR, AH: peer.path(gidIndex), PathMTU: verbs.MTU1024, DestQPN: peer.qpn, RQPSN: peer.psn, MaxDestRD: 1, MinRNRTimer: 12},
		st|verbs.QPMaskAV|verbs.QPMaskPathMTU|verbs.QPMaskDestQPN|verbs.QPMaskRQPSN|verbs.QPMaskMaxDestRD|verbs.QPMaskMinRNRTimer))
	require.NoError(t, qp.Modify(verbs.QPAttr{State: verbs.QPStateRTS, SQPSN: pingpongPSN, Timeout: 14, RetryCnt: 6, RNRRetry: 7, MaxRDAtomic: 1},
		st|verbs.QPMaskSQPSN|verbs.QPMaskTimeout|verbs.QPMaskRetryCnt|verbs.QPMaskRNRRetry|verbs.QPMaskMaxRDAtomic))
}

// play sends a message whenever the last send and a receive are complete.
func (p *pingpong) play(t *testing.T, first bool) {
	sent, received, posted := 0, 0, 0
	send := func() {
		posted++
		_, err := p.qp.PostSend([]verbs.SendWR{{ID: 2, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, AH: p.ah, RemoteQPN: p.peer.qpn, RemoteQKey: pingpongQKey,
			SGList: []verbs.SGE{p.mr.SGE(p.head, pingpongSize)}}})
		require.NoError(t, err)
	}
	if first {
		send()
	}
	var wc [4]verbs.WC
	testenv.ProgressWithin(t, pingpongWait, func() bool {
		for _, c := range wc[:max(p.cq.Poll(wc[:]), 0)] {
			require.Equal(t, verbs.WCSuccess, c.Status)
			if c.ID == 1 {
				received++
				assert.EqualValues(t, pingpongSize+p.head, c.ByteLen)
			} else {
				sent++
			}
		}
		due := received // sends that the test's side may have posted by now
		if first {
			due++
		}
		if posted < min(due, pingpongRuns) && sent == posted {
			send()
		}
		return sent == pingpongRuns && received == pingpongRuns
	})
	assert.Equal(t, pingpongRuns, posted)
}
