package tcp

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// farEnv is the environment variable with the device of the process in another network namespace.
const farEnv = "TCP_FAR_DEVICE"

// serveFar runs that process. It opens the device, prints its address and calls Progress until its
// standard input is closed.
func serveFar(device string) {
	err := func() error {
		md, err := New(Config{}).OpenMD(Name)
		if err != nil {
			return err
		}
		it, err := md.OpenIface(uct.IfaceParams{Transport: Name, Device: device})
		if err != nil {
			return err
		}
		a := it.Ext().Address
		fmt.Println(hex.EncodeToString(a.IfaceAddr(a.DeviceAddr(nil))))
		_ = unix.SetNonblock(0, true)
		for b := make([]byte, 1); ; it.Progress() {
			if n, err := unix.Read(0, b); n == 0 && err == nil {
				return nil
			}
		}
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// cable is a cable with a process in the namespace of its far end.
type cable struct{ *testenv.Cable }

func newCable(t *testing.T) cable { return cable{testenv.NewCable(t)} }

// cut drops all packets from and to the far host without any error packet.
func (c cable) cut(t *testing.T) {
	require.NoError(t, testenv.IP(t, "-n", c.NS, "addr", "flush", "dev", c.Far))
	require.NoError(t, testenv.IP(t, "-n", c.NS, "link", "set", c.Far, "arp", "off"))
	require.NoError(t, testenv.IP(t, "neigh", "replace", c.FarAddr.String(), "lladdr", "02:00:00:00:00:01", "dev", c.Near, "nud", "permanent"))
}

// startFar starts the process at the far end and returns the addresses of its iface.
func (c cable) startFar(t *testing.T) (dev, iface []byte) {
	t.Helper()
	cmd := exec.Command("ip", "netns", "exec", c.NS, os.Args[0])
	cmd.Env = append(os.Environ(), farEnv+"="+c.Far)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		in.Close()
		assert.NoError(t, cmd.Wait())
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	addr, err := hex.DecodeString(strings.TrimSpace(line))
	require.NoError(t, err)
	return addr[:len(addr)-ifaceLen], addr[len(addr)-ifaceLen:]
}

// TestUserTimeout_HostBehindCableGone: a host that stops replying is detected, with and without
// bytes in flight.
func TestUserTimeout_HostBehindCableGone(t *testing.T) {
	testenv.SkipShort(t, "timers of the kernel take as long in every build")
	cable := newCable(t)
	dev, iface := cable.startFar(t)
	var ends [2]*end // the first has bytes in flight, the second has none
	var eps [2]*endpoint
	for i := range ends {
		e := newEndOn(t, cable.Near, Config{
			KeepIdle: time.Second, KeepInterval: time.Second, UserTimeout: 1500 * time.Millisecond,
		})
		require.NotZero(t, e.it.Attr().Caps&uct.CapInterNode)
		got, err := e.it.NewEP(uct.EPParams{DeviceAddr: dev, IfaceAddr: iface})
		require.NoError(t, err)
		ends[i], eps[i] = e, got.(*endpoint)
		e.eps = append(e.eps, eps[i])
		require.NoError(t, eps[i].AMShort(msgID, 0, nil))
		flush(t, eps[i], e)
	}
	cable.cut(t)
	c := newCounter(1)
	require.NoError(t, eps[0].AMShort(msgID, 0, nil))
	_, err := eps[0].Flush(&c.Completion)
	require.NoError(t, err)
	until(t, func() bool { return len(ends[0].errs) == 1 && len(ends[1].errs) == 1 }, ends[:]...)
	for _, e := range ends {
		assert.ErrorIs(t, e.errs[0], ucs.ErrTimedOut)
	}
	assert.Equal(t, 1, c.fired)
	assert.Equal(t, ucs.StatusTimedOut, c.Status)
}
