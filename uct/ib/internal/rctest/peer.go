// Package rctest tests what the reliable-connected transports promise about peers
// in other processes, beyond package ucttest: that other endpoints go on when a
// peer dies, and that counts are exact while one is stopped.
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
	// OpenMD opens a memory domain that other processes of the host reach.
	OpenMD            func() (uct.MD, error)
	Transport, Device string
	// Config is a configuration whose own timeout takes longer than a test: what is told
	// of a dead peer then comes from the device.
	Config any
}

// targetEnv makes a test binary a target: another process with an endpoint.
const targetEnv = "GUCX_TEST_RC_TARGET"

// TargetMain runs the target and returns true in a process that is to be one. Call
// it first in TestMain.
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

// side is an iface with memory.
type side struct {
	md   uct.MD
	it   uct.Iface
	mem  uct.Mem
	errs []error // what OnError was told
	lost []uct.EP
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

// addr is the device address and that of ep, in hexadecimal.
func (s *side) addr(ep uct.EP) string {
	return fmt.Sprintf("%x %x", s.it.Ext().Address.DeviceAddr(nil), ep.Ops().Connect.EPAddr(nil))
}

// serve offers memory and an endpoint: it prints addresses, key and memory address,
// reads the initiator's, and progresses until it is killed or its input ends.
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

// endpoint is what a connection to a target can do.
type endpoint interface {
	uct.EP
	uct.AMSender
	uct.Putter
	uct.Getter
	uct.Atomics
}

// target is a target process and what it offers.
type target struct {
	*testenv.Subprocess
	ep    endpoint
	key   uct.RKey
	raddr uint64
}

// startTarget starts a target and connects an endpoint of s with it.
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

// initiator opens a side that is closed with the test.
func (h Harness) initiator(t *testing.T) *side {
	t.Helper()
	s, err := h.open()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.close()) })
	return s
}

// until progresses the iface until cond holds. Other processes take part, so time is what
// bounds it.
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

// testStopped: one-sided operations need nobody at the target.
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

// testKilled: an endpoint learns from the device that its peer is dead, and the others go
// on.
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

// sendToDead posts messages, each of which ends in an error.
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
