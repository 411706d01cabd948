package rc

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// targetEnv makes this test binary a target: another process with an endpoint.
const targetEnv = "GUCX_TEST_RC_TARGET"

// targetMain offers memory and an endpoint on the shm fabric: it prints device
// address, endpoint address, key and memory address, reads the initiator's, and
// progresses until it is killed or its standard input ends.
func targetMain() error {
	md, err := openMD(softhca.FabricShm)
	if err != nil {
		return err
	}
	iface, err := md.OpenIface(uct.IfaceParams{Transport: Name, Device: "dev:1"})
	if err != nil {
		return err
	}
	uep, err := iface.NewEP(uct.EPParams{})
	if err != nil {
		return err
	}
	mem, err := md.(*ib.MD).Alloc(4096, uct.AccessAll)
	if err != nil {
		return err
	}
	key, err := mem.PackRKey(nil)
	if err != nil {
		return err
	}
	it, ep := iface.(*Iface), uep.(*EP)
	fmt.Printf("%x %x %x %d\n", it.DeviceAddr(nil), ep.EPAddr(nil), key, mem.Addr())
	in := bufio.NewReader(os.Stdin)
	var dev, addr []byte
	if _, err := fmt.Fscanf(in, "%x %x\n", &dev, &addr); err != nil {
		return err
	}
	if err := ep.Connect(dev, addr); err != nil {
		return err
	}
	fmt.Println("connected")
	end := make(chan struct{})
	go func() { _, _ = in.ReadByte(); close(end) }()
	for {
		select {
		case <-end:
			return nil
		default:
			if it.Progress() == 0 {
				runtime.Gosched()
			}
		}
	}
}

// target is a target process and what it offers.
type target struct {
	cmd   *exec.Cmd
	ep    *EP
	key   uct.RKey
	raddr uint64
}

// startTarget starts a target and connects an endpoint of s with it.
func startTarget(t *testing.T, s *side) *target {
	t.Helper()
	tg := &target{cmd: exec.Command(os.Args[0])}
	tg.cmd.Env = append(os.Environ(), targetEnv+"=1")
	tg.cmd.Stderr = os.Stderr
	stdin, err := tg.cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := tg.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, tg.cmd.Start())
	t.Cleanup(func() {
		_ = tg.cmd.Process.Kill()
		_ = tg.cmd.Wait()
	})
	out := bufio.NewReader(stdout)
	line, err := out.ReadString('\n')
	require.NoError(t, err)
	f := strings.Fields(line)
	require.Len(t, f, 4)
	unhex := func(s string) []byte {
		b, err := hex.DecodeString(s)
		require.NoError(t, err)
		return b
	}
	tg.key, err = s.md.UnpackRKey(unhex(f[2]))
	require.NoError(t, err)
	_, err = fmt.Sscan(f[3], &tg.raddr)
	require.NoError(t, err)
	tg.ep = s.newEP(t)
	require.NoError(t, tg.ep.Connect(unhex(f[0]), unhex(f[1])))
	_, err = fmt.Fprintf(stdin, "%x %x\n", s.it.DeviceAddr(nil), tg.ep.EPAddr(nil))
	require.NoError(t, err)
	line, err = out.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "connected\n", line)
	return tg
}

// initiator opens a side on the shm fabric.
func initiator(t *testing.T) *side {
	t.Helper()
	md, err := openMD(softhca.FabricShm)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, md.Close()) })
	return newSide(t, md.(*ib.MD), Config{})
}

// TestPeer_Stopped: one-sided operations need nobody at the target.
func TestPeer_Stopped(t *testing.T) {
	s := initiator(t)
	tg := startTarget(t, s)
	require.NoError(t, tg.ep.PutShort([]byte{1, 0, 0, 0, 0, 0, 0, 0}, tg.raddr, tg.key))
	flush(t, tg.ep, s)
	require.NoError(t, tg.cmd.Process.Signal(syscall.SIGSTOP))
	var old uint64
	got := &keep{}
	for i := range uint64(100) {
		_, err := tg.ep.AtomicFetch(uct.AtomicAdd, 8, 1, &old, tg.raddr, tg.key, nil)
		require.NoError(t, err)
		flush(t, tg.ep, s)
		assert.Equal(t, 1+i, old)
	}
	_, err := tg.ep.GetBcopy(got, 8, tg.raddr, tg.key, nil)
	require.NoError(t, err)
	flush(t, tg.ep, s)
	assert.Equal(t, []byte{101, 0, 0, 0, 0, 0, 0, 0}, got.b)
	assert.Empty(t, s.errs)
}

type keep struct{ b []byte }

func (k *keep) Unpack(b []byte) { k.b = append(k.b[:0], b...) }

// TestPeer_Killed: an idle endpoint and a busy one learn of it, and soon.
func TestPeer_Killed(t *testing.T) {
	for _, busy := range []bool{false, true} {
		s := initiator(t)
		tg, other := startTarget(t, s), startTarget(t, s)
		var c comps
		require.NoError(t, tg.ep.PutShort([]byte{9}, tg.raddr, tg.key))
		flush(t, tg.ep, s)
		require.NoError(t, tg.cmd.Process.Kill())
		_ = tg.cmd.Wait()
		start := time.Now()
		if busy {
			iov := []uct.IOV{{Buf: s.mem.Bytes()[:64], Mem: s.mem}}
			for range 3 {
				if _, err := tg.ep.AMZcopy(0, nil, iov, c.get()); err != nil {
					require.ErrorIs(t, err, uct.ErrEPFailed)
					c.ended = append(c.ended, ucs.StatusConnReset)
				}
			}
			until(t, func() bool { return len(c.ended) == 3 }, s)
			for _, st := range c.ended {
				assert.NotEqual(t, ucs.StatusOK, st)
			}
		}
		until(t, func() bool { return len(s.errs) == 1 }, s)
		assert.Less(t, time.Since(start), 2*time.Second, "the device tells within 100 ms; the machine may be busy")
		assert.Equal(t, []uct.EP{tg.ep}, s.failed)
		assert.ErrorIs(t, tg.ep.PutShort([]byte{1}, tg.raddr, tg.key), uct.ErrEPFailed)

		require.NoError(t, other.ep.PutShort([]byte{1}, other.raddr, other.key))
		flush(t, other.ep, s)
		require.NoError(t, tg.ep.Close())
		require.NoError(t, other.ep.Close())
	}
}
