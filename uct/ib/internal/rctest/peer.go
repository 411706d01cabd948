// Package rctest tests rules of the reliable-connected transports about peers in other processes, in addition to package
// ucttest: other endpoints continue to work when a peer dies, and atomics execute exactly once while the target's process
// is stopped.
package rctest

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// Harness is a transport under test.
type Harness struct {
	// OpenMD opens a memory domain that other processes of the host can access.
	OpenMD            func() (uct.MD, error)
	Transport, Device string
	// Config must have a timeout longer than a test, so that only an event of the device can report a dead peer.
	Config any
}

// targetEnv is set in the environment of a target: a child process with an endpoint and memory.
const targetEnv = "GUCX_TEST_RC_TARGET"

// TargetMain runs the target and returns true if startTarget started this process; otherwise it returns false. TestMain
// must call it first.
func TargetMain(h Harness) bool {
	if os.Getenv(targetEnv) == "" {
		return false
	}
	if err := h.serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}

// side is an iface with its memory domain and memory.
type side struct {
	md   uct.MD
	it   uct.Iface
	mem  uct.Mem
	errs []error  // errors of the calls of OnError
	lost []uct.EP // EPs of the calls of OnError
}

func (h Harness) open() (s *side, err error) {
	s = &side{}
	if s.md, err = h.OpenMD(); err != nil {
		return nil, err
	}
	s.it, err = s.md.OpenIface(uct.IfaceParams{Transport: h.Transport, Device: h.Device, Config: h.Config,
		OnError: func(ep uct.EP, err error) { s.lost, s.errs = append(s.lost, ep), append(s.errs, err) }})
	if err != nil {
		return nil, err
	}
	s.mem, err = s.md.Ext().Alloc.Alloc(4096, uct.AccessAll)
	return s, err
}

func (s *side) close() error { return errors.Join(s.it.Close(), s.mem.Close(), s.md.Close()) }

// addr returns the device address and the address of ep, in hexadecimal.
func (s *side) addr(ep uct.EP) string {
	return fmt.Sprintf("%x %x", s.it.Ext().Address.DeviceAddr(nil), ep.Ops().Connect.EPAddr(nil))
}

// serve runs a target: it writes its addresses, key and memory address to output, reads the addresses of the initiator,
// and progresses until input returns EOF.
func (h Harness) serve(input io.Reader, output io.Writer) error {
	s, err := h.open()
	if err != nil {
		return err
	}
	ep, err := s.it.NewEP(uct.EPParams{})
	if err != nil {
		return err
	}
	key, err := s.mem.PackRKey(nil)
	if err != nil {
		return err
	}
	fmt.Fprintf(output, "%s %x %d\n", s.addr(ep), key, s.mem.Addr())
	in := bufio.NewReader(input)
	var dev, addr []byte
	if _, err := fmt.Fscanf(in, "%x %x\n", &dev, &addr); err != nil {
		return err
	}
	if err := ep.Ops().Connect.Connect(dev, addr); err != nil {
		return err
	}
	fmt.Fprintln(output, "connected")
	end := make(chan struct{})
	go func() { _, _ = in.ReadByte(); close(end) }()
	for {
		select {
		case <-end:
			return nil
		default:
			if s.it.Progress() == 0 {
				runtime.Gosched()
			}
		}
	}
}

// endpoint lists the operations that the tests use.
type endpoint interface {
	uct.EP
	uct.AMSender
	uct.Putter
	uct.Getter
	uct.Atomics
}

// target is a target process, with an EP to it and its memory.
type target struct {
	*testenv.Subprocess
	ep    endpoint
	key   uct.RKey
	raddr uint64
}

// startTarget starts a target and connects an EP of s to it.
func startTarget(t *testing.T, s *side) *target {
	t.Helper()
	tg := &target{Subprocess: testenv.StartSubprocess(t, testenv.Self(targetEnv+"=1"))}
	f := strings.Fields(tg.Line(t))
	require.Len(t, f, 4)
	unhex := func(s string) []byte {
		b, err := hex.DecodeString(s)
		require.NoError(t, err)
		return b
	}
	var err error
	tg.key, err = s.md.Ext().Keys.UnpackRKey(unhex(f[2]))
	require.NoError(t, err)
	_, err = fmt.Sscan(f[3], &tg.raddr)
	require.NoError(t, err)
	ep, err := s.it.NewEP(uct.EPParams{})
	require.NoError(t, err)
	tg.ep = ep.(endpoint)
	require.NoError(t, ep.Ops().Connect.Connect(unhex(f[0]), unhex(f[1])))
	tg.Tell(t, "%s", s.addr(ep))
	require.Equal(t, "connected", tg.Line(t))
	return tg
}

// initiator opens a side, which the clean-up of the test closes.
func (h Harness) initiator(t *testing.T) *side {
	t.Helper()
	s, err := h.open()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.close()) })
	return s
}

// until progresses the iface until cond is true, at most for testenv.Watchdog. The limit is a time, not a number of
// rounds, because cond depends on other processes.
func (s *side) until(t *testing.T, cond func() bool) {
	t.Helper()
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
		s.it.Progress()
		return cond()
	})
}

func (s *side) flush(t *testing.T, ep uct.EP) {
	t.Helper()
	s.until(t, func() bool {
		pending, err := ep.Flush(nil)
		require.NoError(t, err)
		return !pending
	})
}

// Test runs all tests of the package.
func Test(t *testing.T, h Harness) {
	t.Run("stopped", h.testStopped)
	t.Run("killed idle", func(t *testing.T) { h.testKilled(t, false) })
	t.Run("killed busy", func(t *testing.T) { h.testKilled(t, true) })
}

// testStopped checks that one-sided operations complete while the target's process is stopped.
func (h Harness) testStopped(t *testing.T) {
	s := h.initiator(t)
	tg := startTarget(t, s)
	require.NoError(t, tg.ep.PutShort([]byte{1, 0, 0, 0, 0, 0, 0, 0}, tg.raddr, tg.key))
	s.flush(t, tg.ep)
	tg.Stop(t)
	var old uint64
	got := make([]byte, 8)
	for i := range uint64(100) {
		_, err := tg.ep.AtomicFetch(uct.AtomicAdd, 8, 1, &old, tg.raddr, tg.key, nil)
		require.NoError(t, err)
		s.flush(t, tg.ep)
		assert.Equal(t, 1+i, old)
	}
	_, err := tg.ep.GetBcopy(got, tg.raddr, tg.key, nil)
	require.NoError(t, err)
	s.flush(t, tg.ep)
	assert.Equal(t, []byte{101, 0, 0, 0, 0, 0, 0, 0}, got)
	assert.Empty(t, s.errs)
}

// testKilled checks that an EP fails when its peer is killed, by an event of the device, and that other EPs continue to
// work.
func (h Harness) testKilled(t *testing.T, busy bool) {
	s := h.initiator(t)
	tg, other := startTarget(t, s), startTarget(t, s)
	require.NoError(t, tg.ep.PutShort([]byte{9}, tg.raddr, tg.key))
	s.flush(t, tg.ep)
	tg.Kill(t)
	if busy {
		h.sendToDead(t, s, tg)
	}
	s.until(t, func() bool { return len(s.errs) == 1 })
	assert.Equal(t, []uct.EP{tg.ep}, s.lost)
	assert.ErrorIs(t, tg.ep.PutShort([]byte{1}, tg.raddr, tg.key), uct.ErrEPFailed)

	require.NoError(t, other.ep.PutShort([]byte{1}, other.raddr, other.key))
	s.flush(t, other.ep)
	require.NoError(t, tg.ep.Close())
	require.NoError(t, other.ep.Close())
}

// sendToDead posts messages to a dead peer and checks that each completes with an error.
func (h Harness) sendToDead(t *testing.T, s *side, tg *target) {
	const messages = 3
	var ended []uct.Status
	note := func(c *uct.Completion) { ended = append(ended, c.Status) }
	iov := []uct.IOV{{Buf: s.mem.Bytes()[:64], Mem: s.mem}}
	for range messages {
		c := &uct.Completion{Count: 1, Func: note}
		if _, err := tg.ep.AMZcopy(0, nil, iov, c); err != nil {
			require.ErrorIs(t, err, uct.ErrEPFailed)
			ended = append(ended, ucs.StatusConnReset)
		}
	}
	s.until(t, func() bool { return len(ended) == messages })
	for _, st := range ended {
		assert.NotEqual(t, ucs.StatusOK, st)
	}
}
