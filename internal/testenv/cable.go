package testenv

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// IP runs ip(8).
func IP(t testing.TB, args ...string) error {
	t.Helper()
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %v: %w: %s", args, err, out)
	}
	return nil
}

// Cable is a pair of devices, one of them in a network namespace of its own, and their addresses.
type Cable struct {
	NS, Near, Far     string
	NearAddr, FarAddr netip.Addr
}

var cables int // made so far: the kernel takes time to remove one

// NewCable makes a cable. It skips the test if that is not permitted.
func NewCable(t testing.TB) *Cable {
	t.Helper()
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("needs ip(8): ", err)
	}
	cables++
	n := fmt.Sprintf("%d-%d", os.Getpid(), cables)
	c := &Cable{NS: "gucx" + n, Near: "ga" + n, Far: "gb" + n}
	c.NearAddr, c.FarAddr = testNet(cables)
	if err := IP(t, "netns", "add", c.NS); err != nil {
		t.Skip("needs the right to make network namespaces: ", err)
	}
	t.Cleanup(func() { report(t, IP(t, "netns", "del", c.NS)) })
	if err := IP(t, "link", "add", c.Near, "type", "veth", "peer", "name", c.Far, "netns", c.NS); err != nil {
		t.Skip("needs veth devices: ", err)
	}
	t.Cleanup(func() { report(t, IP(t, "link", "del", c.Near)) })
	for _, args := range [][]string{
		{"addr", "add", c.NearAddr.String() + "/30", "dev", c.Near},
		{"link", "set", c.Near, "up"},
		{"-n", c.NS, "addr", "add", c.FarAddr.String() + "/30", "dev", c.Far},
		{"-n", c.NS, "link", "set", "lo", "up"},
		{"-n", c.NS, "link", "set", c.Far, "up"},
	} {
		if err := IP(t, args...); err != nil {
			t.Fatal(err)
		}
	}
	c.waitUp(t)
	return c
}

// testNets is the number of networks of a process before the first one is used again.
const testNets = 16

// testNet returns two addresses of a network of four. Nearby numbers have different networks: test runs at the same
// time on one host, whose process numbers are near each other, do not share them. The network is for tests, RFC 2544.
func testNet(number int) (near, far netip.Addr) {
	number = os.Getpid()*testNets + number%testNets
	const networks = 1 << (30 - 15) // of /30 in 198.18.0.0/15
	at := uint32(198<<24|18<<16) + uint32(number%networks)*4
	addr := func(host uint32) netip.Addr {
		return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, at+host)))
	}
	return addr(1), addr(2)
}

// FarFromCables returns an address that no cable has.
func FarFromCables() netip.Addr {
	addr, _ := testNet(cables + testNets/2)
	return addr
}

// waitUp waits until the kernel reports both ends as running, which it does a little later.
func (c *Cable) waitUp(t testing.TB) {
	t.Helper()
	for start := time.Now(); ; {
		near, err := net.InterfaceByName(c.Near)
		if err != nil {
			t.Fatal(err)
		}
		far, err := exec.Command("ip", "-n", c.NS, "link", "show", c.Far).CombinedOutput()
		switch {
		case err != nil:
			t.Fatal(err)
		case near.Flags&net.FlagRunning != 0 && strings.Contains(string(far), "state UP"):
			return
		case time.Since(start) > Watchdog:
			t.Fatalf("link down: %s", far)
		}
	}
}

func report(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}
