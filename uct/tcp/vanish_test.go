package tcp

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// farEnv has the device of the process in another network namespace.
const farEnv = "TCP_FAR_DEVICE"

// serveFar is that process: it opens the device, tells its address, and answers
// until its standard input ends.
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

// ip runs ip(8).
func ip(t *testing.T, args ...string) error {
	t.Helper()
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %v: %w: %s", args, err, out)
	}
	return nil
}

// cable is a pair of devices, one of them in a network namespace of its own, and their addresses.
type cable struct {
	ns, near, far     string
	nearAddr, farAddr netip.Addr
}

var cables int // laid so far: the kernel takes time to remove one

// newCable lays a cable; it skips the test where that is not permitted.
func newCable(t *testing.T) *cable {
	t.Helper()
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("needs ip(8): ", err)
	}
	cables++
	n := fmt.Sprintf("%d-%d", os.Getpid(), cables)
	c := &cable{ns: "gucx" + n, near: "ga" + n, far: "gb" + n}
	c.nearAddr, c.farAddr = testNet(cables)
	if err := ip(t, "netns", "add", c.ns); err != nil {
		t.Skip("needs the right to make network namespaces: ", err)
	}
	t.Cleanup(func() { assert.NoError(t, ip(t, "netns", "del", c.ns)) })
	if err := ip(t, "link", "add", c.near, "type", "veth", "peer", "name", c.far, "netns", c.ns); err != nil {
		t.Skip("needs veth devices: ", err)
	}
	t.Cleanup(func() { assert.NoError(t, ip(t, "link", "del", c.near)) })
	require.NoError(t, ip(t, "addr", "add", c.nearAddr.String()+"/30", "dev", c.near))
	require.NoError(t, ip(t, "link", "set", c.near, "up"))
	require.NoError(t, ip(t, "-n", c.ns, "addr", "add", c.farAddr.String()+"/30", "dev", c.far))
	require.NoError(t, ip(t, "-n", c.ns, "link", "set", "lo", "up"))
	require.NoError(t, ip(t, "-n", c.ns, "link", "set", c.far, "up"))
	c.waitUp(t)
	return c
}

// testNets is how many networks a process has before it takes the first again.
const testNets = 16

// testNet is two addresses of a network of four, another one for each of some numbers: runs side by
// side on one host, whose process numbers are neighbors, do not share it. It is one for tests,
// RFC 2544.
func testNet(number int) (near, far netip.Addr) {
	number = os.Getpid()*testNets + number%testNets
	const networks = 1 << (30 - 15) // of /30 in 198.18.0.0/15
	at := uint32(198<<24|18<<16) + uint32(number%networks)*4
	addr := func(host uint32) netip.Addr {
		return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, at+host)))
	}
	return addr(1), addr(2)
}

// waitUp waits until both ends are said to be running, which the kernel does a
// little later.
func (c *cable) waitUp(t *testing.T) {
	t.Helper()
	for start := time.Now(); ; {
		near, err := net.InterfaceByName(c.near)
		require.NoError(t, err)
		far, err := exec.Command("ip", "-n", c.ns, "link", "show", c.far).CombinedOutput()
		require.NoError(t, err)
		if near.Flags&net.FlagRunning != 0 && strings.Contains(string(far), "state UP") {
			return
		}
		require.Less(t, time.Since(start), limit, "link down: %s", far)
	}
}

// cut makes the far host vanish: its packets and those for it are lost, and
// nobody says so.
func (c *cable) cut(t *testing.T) {
	require.NoError(t, ip(t, "-n", c.ns, "addr", "flush", "dev", c.far))
	require.NoError(t, ip(t, "-n", c.ns, "link", "set", c.far, "arp", "off"))
	require.NoError(t, ip(t, "neigh", "replace", c.farAddr.String(), "lladdr", "02:00:00:00:00:01", "dev", c.near, "nud", "permanent"))
}

// startFar starts the process at the far end and returns its addresses.
func (c *cable) startFar(t *testing.T) (dev, iface []byte) {
	t.Helper()
	cmd := exec.Command("ip", "netns", "exec", c.ns, os.Args[0])
	cmd.Env = append(os.Environ(), farEnv+"="+c.far)
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

// TestVanishedHost: a host that is gone without a word is noticed, whether something is
// under way to it or not.
func TestVanishedHost(t *testing.T) {
	cable := newCable(t)
	dev, iface := cable.startFar(t)
	var ends [2]*end // to which data is under way, and which is silent
	var eps [2]*EP
	for i := range ends {
		e := newEndOn(t, cable.near, Config{
			KeepIdle: time.Second, KeepInterval: time.Second, UserTimeout: 1500 * time.Millisecond,
		})
		require.NotZero(t, e.it.Attr().Caps&uct.CapInterNode)
		got, err := e.it.NewEP(uct.EPParams{DeviceAddr: dev, IfaceAddr: iface})
		require.NoError(t, err)
		ends[i], eps[i] = e, got.(*EP)
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
