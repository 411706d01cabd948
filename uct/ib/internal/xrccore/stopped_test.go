package xrccore

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/internal/ibtest"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// stoppedEnv makes the test binary run serveStopped.
const stoppedEnv = "GUCX_XRC_TEST_TARGET"

// largeLen is the length of a large message, in bytes.
const largeLen = 1 << 20

// serveStopped receives three messages by a queue: a small one and one of largeLen into memory allocated by the device,
// and one of largeLen into registered memory. It prints its address, reads that of the peer, and prints the number of
// the queue. After the third message it prints the last byte of each memory and the number of messages.
func serveStopped(in io.Reader, out io.Writer) error {
	md, err := ibtest.OpenMD(softhca.FabricShm, testTransport())
	if err != nil {
		return err
	}
	it, err := md.OpenIface(uct.IfaceParams{Transport: testName, Device: ibtest.Device})
	if err != nil {
		return err
	}
	ep, err := it.NewEP(uct.EPParams{})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%x %x\n", it.Ext().Address.DeviceAddr(nil), ep.Ops().Connect.EPAddr(nil))
	var dev, addr []byte
	if _, err := fmt.Fscanf(in, "%x %x\n", &dev, &addr); err != nil {
		return err
	}
	if err := ep.Ops().Connect.Connect(dev, addr); err != nil {
		return err
	}
	ours, err := md.Ext().Alloc.Alloc(largeLen, uct.AccessAll)
	if err != nil {
		return err
	}
	own := make([]byte, largeLen)
	reg, err := md.Ext().Reg.Reg(own, uct.AccessLocalWrite)
	if err != nil {
		return err
	}
	q, err := ep.Ops().Queues.NewQueue(3)
	if err != nil {
		return err
	}
	came := 0
	for _, m := range []uct.Mem{ours, ours, reg} {
		r := &uct.QueueRecv{Func: func(r *uct.QueueRecv) { came++ }}
		if err := q.Post(r, []uct.IOV{{Buf: m.Bytes(), Mem: m}}); err != nil {
			return err
		}
	}
	fmt.Fprintln(out, q.Number())
	for came < 3 {
		it.Progress()
		runtime.Gosched()
	}
	fmt.Fprintf(out, "%x %x %d\n", ours.Bytes()[largeLen-1:], own[largeLen-1:], q.Received())
	_, _ = io.Copy(io.Discard, in)
	for _, c := range []io.Closer{it, reg, ours, md} {
		if err := c.Close(); err != nil {
			return err
		}
	}
	return nil
}

// TestSend_CompletesWhileTargetIsStopped: while the process of the receiver is stopped, messages to posted receives are
// delivered, and their sends complete.
func TestSend_CompletesWhileTargetIsStopped(t *testing.T) {
	testenv.NeedCMA(t)
	p := testenv.StartSubprocess(t, testenv.Self(stoppedEnv+"=1"))
	defer p.End(t)

	a := newSide(t, softhca.FabricShm, Config{})
	big, err := a.it.MD().Alloc(largeLen, uct.AccessLocalWrite)
	require.NoError(t, err)
	defer func() {
		require.NoError(t, a.ep.Close())
		require.NoError(t, a.it.Close())
		require.NoError(t, big.Close())
	}()
	var dev, addr string
	p.Scan(t, &dev, &addr)
	require.NoError(t, a.ep.Connect(unhex(t, dev), unhex(t, addr)))
	p.Tell(t, "%x %x", a.it.DeviceAddr(nil), a.ep.EPAddr(nil))
	var number uint32
	p.Scan(t, &number)

	c := a.attach(t, number)
	first := a.send(t, c, 0, 8, 1)
	until(t, func() bool { return first.ended }, a)
	require.Equal(t, ucs.StatusOK, first.Status)
	p.Stop(t)
	copy(big.Bytes(), bytes.Repeat([]byte{0x5a}, largeLen))
	for range 2 {
		s := &sent{}
		s.Count, s.Func = 1, func(*uct.Completion) { s.ended = true }
		_, err := c.SendZcopy([]uct.IOV{{Buf: big.Bytes(), Mem: big}}, &s.Completion)
		require.NoError(t, err)
		until(t, func() bool { return s.ended }, a)
		require.Equal(t, ucs.StatusOK, s.Status)
	}
	p.Continue(t)
	assert.Equal(t, "5a 5a 3", p.Line(t))
	require.NoError(t, c.Detach())
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	require.NoError(t, err)
	return b
}
