package wireup

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct"
)

func TestAddress_RoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := drawAddress(t)
		b, err := a.Pack()
		require.NoError(t, err)
		got, err := UnpackAddress(b)
		require.NoError(t, err)
		assert.Equal(t, a, got)
		assert.NoError(t, got.check())
	})
}

func drawAddress(t *rapid.T) *Address {
	addrs := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 40), 1, 4).Draw(t, "addresses")
	addr := func(label string) []byte { // often the same
		return append([]byte(nil), rapid.SampledFrom(addrs).Draw(t, label)...)
	}
	drawCost := func(label string) Cost {
		return Cost{
			Time(rapid.Byte().Draw(t, label+" overhead")), Time(rapid.Byte().Draw(t, label+" latency")),
			Rate(rapid.Byte().Draw(t, label+" bandwidth")),
		}
	}
	a := &Address{Key: keyOf(rapid.Uint64Min(1).Draw(t, "uuid"))}
	a.Key[keyLen-1] = rapid.Byte().Draw(t, "end of the key")
	for range rapid.IntRange(1, 20).Draw(t, "mds") {
		name := rapid.OneOf(rapid.SampledFrom(wireComponents[1:]), rapid.StringMatching(`[a-z]{1,16}`))
		a.MDs = append(a.MDs, MD{Component: name.Draw(t, "component")})
	}
	for range rapid.IntRange(0, 20).Draw(t, "resources") {
		r := Resource{
			Transport: rapid.OneOf(rapid.SampledFrom(wireTransports[1:]), rapid.StringMatching(`[a-z]{1,10}`)).Draw(t, "transport"),
			MD:        uint8(rapid.IntRange(0, len(a.MDs)-1).Draw(t, "md")),
			AuxOnly:   rapid.Bool().Draw(t, "aux only"),
			Caps:      uct.Caps(rapid.Uint64().Draw(t, "caps")),
			Fetch64:   uct.AtomicOps(rapid.IntRange(0, maxFetch).Draw(t, "ops")),
			Domain:    uct.AtomicDomain(rapid.IntRange(0, maxDomain).Draw(t, "domain")),
			RMA:       drawCost("rma"), AMO: drawCost("amo"), AM: drawCost("am"),
			Priority:   rapid.Int8().Draw(t, "priority"),
			AMBcopy:    Size(rapid.Byte().Draw(t, "bcopy")),
			DeviceAddr: addr("device address"),
			IfaceAddr:  addr("iface address"),
		}
		r.trim()
		a.Resources = append(a.Resources, r)
	}
	return a
}

// address makes a worker address with one MD out of resource names.
func address(t testing.TB, uuid uint64, names ...string) *Address {
	t.Helper()
	a := &Address{Key: keyOf(uuid), MDs: []MD{{Component: "ib"}}}
	all := uct.CapAM | uct.CapPut | uct.CapGet | uct.CapAtomic64 | uct.CapPending
	cost, cas := Cost{0x35, 0x51, 0x5b}, uct.AtomicSet(uct.AtomicAdd, uct.AtomicCSwap)
	for _, name := range names {
		name, dev, _ := strings.Cut(name, "@")
		r := Resource{Transport: name, Device: "hca0:1", Domain: uct.AtomicDevice, Fetch64: cas, DeviceAddr: []byte("fabric")}
		switch name {
		case "rc":
			r.Caps = all | uct.CapConnectEP
			r.RMA, r.AMO, r.AM = cost, cost, cost
		case "ud":
			r.Caps = uct.CapAMBcopy | uct.CapPending | uct.CapConnectIface
			r.AM, r.AMBcopy, r.IfaceAddr = Cost{0x3a, 0x53, 0x59}, 0x4f, []byte("qpn")
		case "sm":
			r.Caps = all | uct.CapConnectIface
			r.RMA = Cost{0x22, 0x3a, 0x61}
			r.AMO, r.AM, r.AMBcopy, r.IfaceAddr = r.RMA, r.RMA, 0x58, []byte("segment")
		}
		require.NotZero(t, r.Caps, "unknown resource %s", name)
		if dev != "" {
			r.Device, r.DeviceAddr = dev, []byte(dev)
		}
		r.trim()
		a.Resources = append(a.Resources, r)
	}
	return a
}

// keyOf returns a public key with the given UUID.
func keyOf(uuid uint64) (k PublicKey) {
	binary.LittleEndian.PutUint64(k[:], uuid)
	return k
}

func TestUnpackAddress_Refuses(t *testing.T) {
	good, err := address(t, 7, "rc", "ud").Pack()
	require.NoError(t, err)
	edit := testenv.Editor(good)
	md := addrHeader + 1      // the first memory domain
	res := md + 1 + 1 + 6 + 1 // the first resource, behind a device address of 6 bytes
	require.Equal(t, byte(4<<4), good[res], "rc on device 0")
	for _, tc := range []struct {
		name string
		in   []byte
	}{
		{"nothing", nil},
		{"a short header", good[:addrHeader-1]},
		{"another magic", edit(0, 'X')},
		{"version 1", edit(1, 1)},
		{"a later version", edit(1, addrVersion+1)},
		{"an earlier version", edit(1, addrVersion-1)},
		{"uuid 0", append(append(bytes.Clone(good[:2]), make([]byte, keyLen)...), good[addrHeader:]...)},
		{"too many memory domains", edit(addrHeader, MaxMDs+1)},
		{"a component number that is not known", edit(md, 15<<4|1)},
		{"more devices than bytes", edit(md, 4<<4|14)},
		{"a long device address", edit(md+1, 0xff)},
		{"too many resources", edit(res-1, MaxResources+1)},
		{"a resource too many", edit(res-1, 3)},
		{"a transport number that is not known", edit(res, 9<<4)},
		{"a device that is not there", edit(res, 4<<4|1)},
		{"a transport without name", edit(res, 0)},
		{"a cut resource", good[:len(good)-1]},
		{"too long", append(bytes.Clone(good), make([]byte, MaxAddrLen)...)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := UnpackAddress(tc.in)
			assert.ErrorIs(t, err, uct.ErrInvalidAddr)
		})
	}
}

// TestAddress_ExactLimits: an address may have MaxMDs memory domains and MaxResources resources,
// and be MaxAddrLen bytes long when packed, but not more.
func TestAddress_ExactLimits(t *testing.T) {
	build := func(mds, resources, ifaceAddrs int) *Address {
		a := &Address{Key: PublicKey{1}}
		for range mds {
			a.MDs = append(a.MDs, MD{Component: "ib"})
		}
		for range resources {
			n := min(ifaceAddrs, sameAddr-1)
			ifaceAddrs -= n
			a.Resources = append(a.Resources, Resource{Transport: "rc", Caps: uct.CapAMBcopy | uct.CapConnectIface,
				DeviceAddr: []byte{1}, IfaceAddr: make([]byte, n)})
		}
		require.Zero(t, ifaceAddrs, "there are too few resources for the bytes")
		return a
	}
	const resources = MaxResources
	small, err := build(1, resources, 0).Pack()
	require.NoError(t, err)
	fill := MaxAddrLen - len(small) // each byte of an iface address is one more
	for _, tt := range []struct {
		name string
		a    *Address
		want error
	}{
		{"memory domains", build(MaxMDs, 1, 0), nil},
		{"one memory domain too many", build(MaxMDs+1, 1, 0), uct.ErrInvalidParam},
		{"resources", build(1, MaxResources, 0), nil},
		{"one resource too many", build(1, MaxResources+1, 0), uct.ErrInvalidParam},
		{"bytes", build(1, resources, fill), nil},
		{"one byte too many", build(1, resources, fill+1), uct.ErrTooLong},
	} {
		b, err := tt.a.Pack()
		require.ErrorIs(t, err, tt.want, tt.name)
		if tt.want == nil {
			got, err := UnpackAddress(b)
			require.NoError(t, err, tt.name)
			assert.Equal(t, len(tt.a.MDs), len(got.MDs), tt.name)
			assert.Equal(t, len(tt.a.Resources), len(got.Resources), tt.name)
		}
	}
}

// TestUnpackAddress_IgnoresTrailingBytes: a later version may put more behind the resources, and
// flags beside the known ones.
func TestUnpackAddress_IgnoresTrailingBytes(t *testing.T) {
	want := address(t, 7, "rc", "ud")
	b, err := want.Pack()
	require.NoError(t, err)
	b[addrHeader+1+1+1+6+1+2] |= 0x80
	got, err := UnpackAddress(append(b, "of a later version"...))
	require.NoError(t, err)
	assert.Equal(t, packable(want), got)
}

// packable is a without the names of its devices.
func packable(a *Address) *Address {
	c := *a
	c.Resources = slices.Clone(a.Resources)
	for i := range c.Resources {
		c.Resources[i].Device = ""
	}
	return &c
}

// TestAddress_Golden: the packed form does not change unnoticed.
func TestAddress_Golden(t *testing.T) {
	a := address(t, 0x0102030405060708, "rc", "ud", "sm")
	a.Key[keyLen-1] = 0x20
	a.MDs = append(a.MDs, MD{Component: "foreign"})
	a.Resources[2].MD, a.Resources[2].Transport = 1, "other"
	a.Resources[2].IfaceAddr = a.Resources[2].DeviceAddr
	a.Resources[1].AuxOnly, a.Resources[1].Priority = true, -2
	b, err := a.Pack()
	require.NoError(t, err)
	want := strings.Join([]string{
		"57 05", "08 07 06 05 04 03 02 01" + strings.Repeat("00", 23) + "20",
		"02",                                  // memory domains
		"41 06 66 61 62 72 69 63",             // ib with 1 device, "fabric"
		"01 07 66 6f 72 65 69 67 6e",          // "foreign" with 1 device
		"06 66 61 62 72 69 63",                //
		"03",                                  // resources
		"40 bf 05 35 51 5b 35 51 61 35 51 5b", // rc on device 0
		"50 01 33 fe 3a 53 59 4f 03 71 70 6e", // ud on device 0, aux only, priority -2
		"01 05 6f 74 68 65 72 bf 03 22 3a 61 22 3a 61 22 3a 61 58 ff",
	}, " ")
	assert.Equal(t, strings.ReplaceAll(want, " ", ""), hex.EncodeToString(b))
}

func TestAddress_PackRefuses(t *testing.T) {
	for _, tc := range []struct {
		name string
		edit func(a *Address)
		want error
	}{
		{"no uuid", func(a *Address) { a.Key = keyOf(0) }, uct.ErrInvalidParam},
		{"no component name", func(a *Address) { a.MDs[0].Component = "" }, uct.ErrInvalidParam},
		{"a long component name", func(a *Address) { a.MDs[0].Component = strings.Repeat("x", 17) }, uct.ErrInvalidParam},
		{"no transport name", func(a *Address) { a.Resources[0].Transport = "" }, uct.ErrInvalidParam},
		{"a long transport name", func(a *Address) { a.Resources[0].Transport = "elevenchars" }, uct.ErrInvalidParam},
		{"a wrong md", func(a *Address) { a.Resources[0].MD = 1 }, uct.ErrInvalidParam},
		{"a long iface address", func(a *Address) { a.Resources[0].IfaceAddr = make([]byte, 255) }, uct.ErrInvalidParam},
		{"too many resources", func(a *Address) { a.Resources = make([]Resource, MaxResources+1) }, uct.ErrInvalidParam},
		{"too long", func(a *Address) {
			a.Resources[0].IfaceAddr = make([]byte, 254)
			a.Resources[0].Caps |= uct.CapConnectIface
			for len(a.Resources) < MaxResources {
				a.Resources = append(a.Resources, a.Resources[0])
			}
		}, uct.ErrTooLong},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := address(t, 7, "rc")
			tc.edit(a)
			_, err := a.Pack()
			assert.ErrorIs(t, err, tc.want)
		})
	}
}

func TestNewResource_Clamps(t *testing.T) {
	attr := &uct.IfaceAttr{
		Resource: uct.Resource{Transport: "rc", Device: "d:1"},
		Caps:     uct.CapPut | uct.CapErrPeer,
		Priority: 1 << 20,
	}
	attr.Costs.Set(uct.Cost{Send: -time.Second, Latency: time.Hour, Bandwidth: 10e9, SharedBandwidth: 4e9}, uct.PutShort, uct.PutBcopy, uct.PutZcopy)
	r := NewResource(attr, 3)
	assert.Equal(t, Time(255), r.RMA.Latency)
	assert.Equal(t, Time(0), r.RMA.Overhead)
	assert.InEpsilon(t, 4e9, float64(r.RMA.Bandwidth.BytesPerSecond()), 1./16)
	assert.Zero(t, r.AM, "it has no active messages")
	assert.Equal(t, int8(127), r.Priority)
	assert.Equal(t, uint8(3), r.MD)
	assert.Equal(t, uct.CapPutBcopy|uct.CapPutZcopy, r.Caps, "what choosing looks at")
	assert.Zero(t, r.AMBcopy)

	attr.Costs = uct.Costs{}
	assert.Equal(t, Rate(1), NewResource(attr, 0).RMA.Bandwidth, "an unknown bandwidth scores worst")
}

// TestFloat8 checks every code, and that rounding is to the nearest one.
func TestFloat8(t *testing.T) {
	for c := range 256 {
		v := unfloat8(uint8(c))
		assert.Equal(t, uint8(c), float8(v))
		assert.Equal(t, Size(c), floor8(v))
		if c > 0 {
			assert.Greater(t, v, unfloat8(uint8(c-1)))
			assert.Equal(t, Size(c-1), floor8(v-1))
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.Uint64().Draw(t, "v")
		c := float8(v)
		got := unfloat8(c)
		if c == 255 {
			return
		}
		assert.LessOrEqual(t, max(got, v)-min(got, v), v/16)
		assert.LessOrEqual(t, floor8(v).Bytes(), v)
	})
	assert.Equal(t, uint8(255), float8(math.MaxUint64))
}

func FuzzUnpackAddress(f *testing.F) {
	for _, names := range [][]string{{"rc"}, {"rc", "ud"}, {"sm", "rc@x", "ud@y"}} {
		b, err := address(f, 7, names...).Pack()
		require.NoError(f, err)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := UnpackAddress(b)
		if err != nil {
			assert.ErrorIs(t, err, uct.ErrInvalidAddr)
			return
		}
		packed, err := a.Pack()
		require.NoError(t, err)
		again, err := UnpackAddress(packed)
		require.NoError(t, err)
		assert.Equal(t, a, again)
	})
}

// TestCostOf: of the variants that an iface has, the least times and the largest bandwidth count. A message costs
// half of what both sides pay, anything else the CPU that posts it. What others use too counts as their share.
func TestCostOf(t *testing.T) {
	var attr uct.IfaceAttr
	assert.Zero(t, costOf(&attr, uct.AMShort, uct.PutShort), "neither is there")
	attr.Costs[uct.AMShort] = uct.Cost{Send: 60, Recv: 100, Latency: 300}
	attr.Costs[uct.AMBcopy] = uct.Cost{Send: 20, Recv: 20, Latency: 10, Bandwidth: 64 * rateUnit}
	attr.Costs[uct.AMZcopy] = uct.Cost{Send: 200, Recv: 100, Latency: 400, Bandwidth: 32 * rateUnit}
	attr.Costs[uct.PutShort] = uct.Cost{Send: 60, Latency: 300, Bandwidth: 32 * rateUnit, SharedBandwidth: 16 * rateUnit}
	attr.Costs[uct.PutBcopy] = uct.Cost{Send: 50, Recv: 50, Latency: 200, Bandwidth: 8 * rateUnit, SharedBandwidth: 64 * rateUnit}
	attr.Caps = uct.CapAMShort | uct.CapAMZcopy | uct.CapPutShort
	assert.Equal(t, Cost{timeOf(80), timeOf(300), rateOf(32 * rateUnit)}, costOf(&attr, uct.AMShort, uct.AMBcopy, uct.AMZcopy))
	assert.Equal(t, Cost{timeOf(150), timeOf(400), rateOf(32 * rateUnit)}, costOf(&attr, uct.AMZcopy))
	assert.Equal(t, Cost{timeOf(80), timeOf(300), 1}, costOf(&attr, uct.AMShort), "the length does not count")
	assert.Equal(t, Cost{timeOf(60), timeOf(300), rateOf(16 * rateUnit)}, costOf(&attr, uct.PutShort, uct.PutBcopy))
	attr.Caps |= uct.CapPutBcopy
	assert.Equal(t, Cost{timeOf(60), timeOf(200), rateOf(16 * rateUnit)}, costOf(&attr, uct.PutShort, uct.PutBcopy))
	assert.Equal(t, Cost{timeOf(100), timeOf(200), rateOf(8 * rateUnit)}, costOf(&attr, uct.PutBcopy))
}

// TestRate_Least: no bandwidth is less than one unit.
func TestRate_Least(t *testing.T) {
	for _, bw := range []float64{0, -1, 1, rateUnit, math.NaN()} {
		assert.EqualValues(t, 1, rateOf(bw), "%v", bw)
	}
	assert.EqualValues(t, rateUnit, Rate(0).BytesPerSecond())
	assert.EqualValues(t, rateUnit, Rate(1).BytesPerSecond())
	assert.EqualValues(t, 2*rateUnit, Rate(2).BytesPerSecond())
}

// TestUnpackAddress_Length: the length of an address alone is refused before anything is read.
func TestUnpackAddress_Length(t *testing.T) {
	for n, refused := range map[int]bool{addrHeader - 1: true, addrHeader: false, MaxAddrLen: false, MaxAddrLen + 1: true} {
		_, err := UnpackAddress(make([]byte, n))
		require.ErrorIs(t, err, uct.ErrInvalidAddr)
		assert.Equal(t, refused, strings.Contains(err.Error(), fmt.Sprint("length ", n)), "%d bytes: %v", n, err)
	}
}
