package ibport

import (
	"encoding/hex"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

func TestMain(m *testing.M) { testenv.Main(m) }

var (
	local  = DeviceAddr{Ethernet: true, GID: verbs.GID{0xfe, 0x80, 7: 1, 15: 1}}
	routed = DeviceAddr{Ethernet: true, GID: verbs.GID{0x20, 0x01, 15: 1}}
	mapped = DeviceAddr{Ethernet: true, GID: verbs.GID{10: 0xff, 11: 0xff, 12: 10, 15: 1}}
	fabric = DeviceAddr{LID: 5, GID: verbs.GID{0xfe, 0x80, 15: 1}}
)

func TestDeviceAddr_Golden(t *testing.T) {
	for want, a := range map[string]DeviceAddr{
		"01020000fe800000000000010000000000000001": local,
		"01010005fe800000000000000000000000000001": fabric,
	} {
		b := a.Append(nil)
		assert.Equal(t, want, hex.EncodeToString(b))
		got, err := ParseDeviceAddr(b)
		require.NoError(t, err)
		assert.Equal(t, a, got)
	}
}

func TestParseDeviceAddr_RejectsInvalid(t *testing.T) {
	for _, tc := range []struct{ name, in string }{
		{"empty", ""},
		{"short", "01020000fe8000000000000000000000000000"},
		{"long", "01020000fe80000000000000000000000000000100"},
		{"version", "02020000fe800000000000000000000000000001"},
		{"link layer", "01030000fe800000000000000000000000000001"},
		{"LID on Ethernet", "01020001fe800000000000000000000000000001"},
		{"no LID on InfiniBand", "01010000fe800000000000000000000000000001"},
		{"zero GID", "0102000000000000000000000000000000000000"},
		{"multicast GID", "01020000ff020000000000000000000000000001"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b, err := hex.DecodeString(tc.in)
			require.NoError(t, err)
			_, err = ParseDeviceAddr(b)
			assert.ErrorIs(t, err, uct.ErrInvalidAddr)
		})
	}
}

func TestReach(t *testing.T) {
	other := func(a DeviceAddr, at int, to byte) DeviceAddr { a.GID[at] = to; return a }
	for _, tc := range []struct {
		name string
		a, b DeviceAddr
		want string
	}{
		{"itself", local, local, ""},
		{"same subnet", local, other(local, 15, 9), ""},
		{"another subnet", local, other(local, 7, 9), "different subnet"},
		{"link-local from routed", routed, local, "different subnet"},
		{"routed, another subnet", routed, other(routed, 3, 9), ""},
		{"IPv4 and IPv6", routed, mapped, "different address family"},
		{"IPv4", mapped, other(mapped, 13, 200), ""},
		{"link layers", local, fabric, "different link layer"},
		{"InfiniBand", fabric, other(fabric, 15, 3), ""},
		{"InfiniBand subnets", fabric, other(fabric, 2, 3), "different subnet"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, why := range []string{tc.a.reach(tc.b), tc.b.reach(tc.a)} {
				if tc.want == "" {
					assert.Empty(t, why)
				} else {
					assert.Contains(t, why, tc.want)
				}
			}
		})
	}
}

func TestAckTimeoutCode(t *testing.T) {
	assert.Zero(t, AckTimeoutCode(0), "forever")
	assert.Zero(t, AckTimeoutCode(-1))
	assert.EqualValues(t, 1, AckTimeoutCode(1))
	assert.EqualValues(t, 18, AckTimeoutCode(time.Second))
	assert.EqualValues(t, 31, AckTimeoutCode(1<<62))
	for code := uint8(1); code < 31; code++ {
		d := verbs.AckTimeout(code)
		assert.Equal(t, code, AckTimeoutCode(d), d)
		assert.Equal(t, code+1, AckTimeoutCode(d+1), d)
	}
}

func TestRNRTimerCode(t *testing.T) {
	assert.EqualValues(t, 1, RNRTimerCode(0), "the shortest")
	assert.EqualValues(t, 14, RNRTimerCode(960*time.Microsecond+1))
	assert.EqualValues(t, 31, RNRTimerCode(491520*time.Microsecond))
	assert.EqualValues(t, 0, RNRTimerCode(time.Hour), "the longest has code 0")
	for code := 1; code < 31; code++ {
		assert.Less(t, rnrTimers[code], rnrTimers[code+1])
	}
}

func FuzzDeviceAddr(f *testing.F) {
	f.Add(local.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if a, err := ParseDeviceAddr(b); err == nil {
			assert.Equal(t, b, a.Append(nil))
		}
	})
}

// switchedPort is a provider with a port whose state the test sets.
type switchedPort struct {
	verbs.Provider
	state *verbs.PortState
}

func (s switchedPort) QueryPort(num uint8) (verbs.PortAttr, error) {
	a, err := s.Provider.QueryPort(num)
	a.State = *s.state
	return a, err
}

// TestPort_FailureCause: the error of a request that failed on a port that is down names the state
// of the port.
func TestPort_FailureCause(t *testing.T) {
	state := verbs.PortActive
	md, err := ib.New(func() ([]*verbs.Device, error) {
		return []*verbs.Device{verbs.NewDevice("switched0", func() (verbs.Provider, error) {
			d, err := softhca.NewDevice(softhca.Config{Fabric: softhca.FabricLoop})
			require.NoError(t, err)
			ctx, err := d.Open()
			require.NoError(t, err)
			return switchedPort{ctx.Provider(), &state}, nil
		})}, nil
	}).OpenMD("switched0")
	require.NoError(t, err)
	defer func() { require.NoError(t, md.Close()) }()
	p, err := Open(md.(*ib.MD), 1, ib.PathConfig{})
	require.NoError(t, err)
	cause := verbs.WCRetryExcErr.Err()
	assert.Equal(t, cause, p.FailureCause(cause))
	state = verbs.PortDown
	assert.ErrorIs(t, p.FailureCause(cause), cause)
	assert.ErrorContains(t, p.FailureCause(cause), "port is down")
	for state = range 7 {
		_, err = Open(md.(*ib.MD), 1, ib.PathConfig{})
		want := []string{"NOP", "down", "INIT", "ARMED", "", "ACTIVE_DEFER", "in state 6"}[state]
		if want == "" {
			require.NoError(t, err)
			continue
		}
		assert.ErrorContains(t, err, "port is "+want)
		assert.ErrorContains(t, p.FailureCause(cause), "port is "+want)
	}
}
