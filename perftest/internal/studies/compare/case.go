package compare

import (
	"cmp"
	"fmt"
	"regexp"
)

// Case is one comparison.
type Case struct {
	// Group is a transport of this perftest, or "cma": sm with memory that is registered and not
	// mapped.
	Name string
	// Test of this perftest, Size in bytes, Layout short, bcopy or zcopy of UCT; or LayoutUCP for a
	// test of UCP on both sides.
	Test   string
	Size   int
	Layout string
	// UCX describes the run of UCX.
	UCX Peer
	// Metric is the printed quantity, and Goal the goal for its ratio.
	Metric Metric
	Goal   float64
}

// Peer is the same test in ucx_perftest.
type Peer struct {
	Transport, Device, Test string
	// Layout is the layout of UCX if it differs: puts of any length are short in UCX's posix, and
	// those of sm above 8 KiB are zcopy. Both are one copy by the CPU.
	Layout string
	// Loop: one process sends to itself.
	Loop bool
}

// LayoutUCP replaces the layout if UCP is measured, which selects by size.
const LayoutUCP = "ucp"

// layer returns the measured layer of this perftest.
func (c Case) layer() string {
	if c.Layout == LayoutUCP {
		return "ucp"
	}
	return "uct"
}

// String returns the name of the case, such as "sm/am_lat/8/short".
func (c Case) String() string {
	return fmt.Sprintf("%s/%s/%d/%s", c.Name, c.Test, c.Size, c.Layout)
}

// ucxLayout returns the layout of UCX.
func (c Case) ucxLayout() string { return cmp.Or(c.UCX.Layout, c.Layout) }

// Transport of this perftest.
func (c Case) Transport() string {
	if c.Name == cmaGroup {
		return "sm"
	}
	return c.Name
}

// cmaGroup is the group of cases of cross-memory attach.
const cmaGroup = "cma"

// Sizes of messages, in bytes.
const (
	kib = 1 << 10
	mib = 1 << 20
)

// Peers by group, with the names of devices in UCX 1.13.
var (
	posix = Peer{Transport: "posix", Device: "memory"}
	cma   = Peer{Transport: "cma", Device: "memory"}
	tcp   = Peer{Transport: "tcp", Device: "lo"}
	self  = Peer{Transport: "self", Device: "memory0", Loop: true}
)

// UCP over the same transports, otherwise with UCX's defaults.
var (
	ucpShm = Peer{Transport: "posix,cma,self"}
	ucpTCP = Peer{Transport: "tcp,self", Device: "lo"}
)

// env restricts UCP to the transports and the device; ucx_perftest has no flags for that.
func (c Case) env() (env []string) {
	if c.Layout != LayoutUCP {
		return nil
	}
	env = append(env, "UCX_TLS="+c.UCX.Transport)
	if c.UCX.Device != "" {
		env = append(env, "UCX_NET_DEVICES="+c.UCX.Device)
	}
	return env
}

// Cases lists the comparisons, with the goals (ratio of ours to UCX 1.13.1).
func Cases() []Case { return append(transportCases(), ucpCases()...) }

// ucpCases are the cases of UCP.
func ucpCases() (cases []Case) {
	add := func(name string, peer Peer, test, theirs string, size int, m Metric, goal float64) {
		cases = append(cases, Case{Name: name, Test: test, Size: size, Layout: LayoutUCP, UCX: peer.on(theirs), Metric: m, Goal: goal})
	}
	add("sm", ucpShm, "tag_lat", "tag_lat", 8, Time, 0.58)
	add("sm", ucpShm, "tag_lat", "tag_lat", 64, Time, 0.58)
	add("sm", ucpShm, "tag_lat", "tag_lat", 256, Time, 0.7)
	add("sm", ucpShm, "tag_lat", "tag_lat", kib, Time, 0.8)
	add("sm", ucpShm, "tag_lat", "tag_lat", 4*kib, Time, 0.6)
	add("sm", ucpShm, "tag_lat", "tag_lat", 8*kib, Time, 0.75)
	add("sm", ucpShm, "tag_lat", "tag_lat", 64*kib, Time, 0.25)
	add("sm", ucpShm, "tag_lat", "tag_lat", mib, Time, 0.3)
	add("sm", ucpShm, "tag_mr", "tag_bw", 8, Rate, 2.5)
	add("sm", ucpShm, "tag_mr", "tag_bw", 64, Rate, 3.5)
	add("sm", ucpShm, "tag_mr", "tag_bw", 256, Rate, 2.3)
	add("sm", ucpShm, "tag_mr", "tag_bw", kib, Rate, 2)
	add("sm", ucpShm, "tag_mr", "tag_bw", 4*kib, Rate, 1.5)
	add("sm", ucpShm, "tag_bw", "tag_bw", 64*kib, Bandwidth, 4)
	add("sm", ucpShm, "tag_bw", "tag_bw", mib, Bandwidth, 4)
	add("sm", ucpShm, "am_lat", "ucp_am_lat", 8, Time, 0.62)
	add("sm", ucpShm, "am_lat", "ucp_am_lat", 64, Time, 0.58)
	add("sm", ucpShm, "am_lat", "ucp_am_lat", 256, Time, 0.78)
	add("sm", ucpShm, "am_lat", "ucp_am_lat", kib, Time, 0.75)
	add("sm", ucpShm, "am_lat", "ucp_am_lat", 4*kib, Time, 0.8)
	add("sm", ucpShm, "am_lat", "ucp_am_lat", 8*kib, Time, 0.9)
	add("sm", ucpShm, "am_mr", "ucp_am_bw", 8, Rate, 2.5)
	add("sm", ucpShm, "am_mr", "ucp_am_bw", 64, Rate, 2.4)
	add("sm", ucpShm, "am_mr", "ucp_am_bw", 256, Rate, 1.6)
	add("sm", ucpShm, "am_mr", "ucp_am_bw", kib, Rate, 1.9)
	add("sm", ucpShm, "am_mr", "ucp_am_bw", 4*kib, Rate, 1.5)
	add("sm", ucpShm, "am_bw", "ucp_am_bw", 64*kib, Bandwidth, 4)
	add("sm", ucpShm, "am_bw", "ucp_am_bw", mib, Bandwidth, 4)
	add("sm", ucpShm, "stream_lat", "stream_lat", 8, Time, 1)
	add("sm", ucpShm, "stream_bw", "stream_bw", 64*kib, Bandwidth, 1)
	add("sm", ucpShm, "put_pp", "ucp_put_lat", 8, Time, 1)
	add("sm", ucpShm, "put_mr", "ucp_put_bw", 8, Rate, 1.3)
	add("sm", ucpShm, "get_lat", "ucp_get", 8, Time, 1)
	add("tcp", ucpTCP, "tag_lat", "tag_lat", 8, Time, 0.95)
	add("tcp", ucpTCP, "tag_mr", "tag_bw", 8, Rate, 10)
	add("tcp", ucpTCP, "tag_bw", "tag_bw", mib, Bandwidth, 1.5)
	add("tcp", ucpTCP, "am_lat", "ucp_am_lat", 8, Time, 0.95)
	add("tcp", ucpTCP, "am_mr", "ucp_am_bw", 8, Rate, 10)
	return cases
}

// transportCases are the cases of UCT.
func transportCases() []Case {
	return []Case{
		{Name: "sm", Test: "am_lat", Size: 8, Layout: "short", UCX: posix.on("am_lat"), Metric: Time, Goal: 0.60},
		{Name: "sm", Test: "put_pp", Size: 8, Layout: "short", UCX: posix.on("put_lat"), Metric: Time, Goal: 0.83},
		{Name: "sm", Test: "put_bw", Size: 64 * kib, Layout: "zcopy", UCX: posix.on("put_bw").as("short"), Metric: Time, Goal: 1.0},
		{Name: "sm", Test: "put_bw", Size: mib, Layout: "zcopy", UCX: posix.on("put_bw").as("short"), Metric: Time, Goal: 0.8},
		{Name: "sm", Test: "am_mr", Size: 8, Layout: "short", UCX: posix.on("am_bw"), Metric: Rate, Goal: 5},
		{Name: "sm", Test: "put_mr", Size: 8, Layout: "short", UCX: posix.on("put_bw"), Metric: Rate, Goal: 1.8},
		{Name: cmaGroup, Test: "put_bw", Size: 8, Layout: "zcopy", UCX: cma.on("put_bw"), Metric: Time, Goal: 1.0},
		{Name: cmaGroup, Test: "put_bw", Size: 64 * kib, Layout: "zcopy", UCX: cma.on("put_bw"), Metric: Time, Goal: 1.0},
		{Name: cmaGroup, Test: "put_bw", Size: mib, Layout: "zcopy", UCX: cma.on("put_bw"), Metric: Time, Goal: 1.0},
		{Name: cmaGroup, Test: "get_bw", Size: 64 * kib, Layout: "zcopy", UCX: cma.on("get"), Metric: Time, Goal: 1.0},
		{Name: "tcp", Test: "am_lat", Size: 8, Layout: "short", UCX: tcp.on("am_lat"), Metric: Time, Goal: 0.95},
		{Name: "tcp", Test: "am_mr", Size: 8, Layout: "short", UCX: tcp.on("am_bw"), Metric: Rate, Goal: 10},
		{Name: "tcp", Test: "am_mr", Size: 64, Layout: "short", UCX: tcp.on("am_bw"), Metric: Rate, Goal: 10},
		{Name: "tcp", Test: "am_mr", Size: kib, Layout: "short", UCX: tcp.on("am_bw"), Metric: Rate, Goal: 10},
		{Name: "tcp", Test: "am_bw", Size: 64 * kib, Layout: "zcopy", UCX: tcp.on("am_bw"), Metric: Bandwidth, Goal: 1.0},
		{Name: "tcp", Test: "put_bw", Size: mib, Layout: "zcopy", UCX: tcp.on("put_bw"), Metric: Bandwidth, Goal: 1.2},
		{Name: "self", Test: "am_lat", Size: 8, Layout: "short", UCX: self.on("am_lat"), Metric: Time, Goal: 1.0},
		{Name: "self", Test: "put_pp", Size: 8, Layout: "short", UCX: self.on("put_lat"), Metric: Time, Goal: 1.0},
	}
}

// caseNames returns the names of all cases.
func caseNames() (names []string) {
	for _, c := range Cases() {
		names = append(names, c.String())
	}
	return names
}

// on returns the peer with a test.
func (p Peer) on(test string) Peer {
	p.Test = test
	return p
}

// as returns the peer with a layout of its own.
func (p Peer) as(layout string) Peer {
	p.Layout = layout
	return p
}

// choose returns the cases whose names match.
func choose(all []Case, pattern string) (chosen []Case, err error) {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, fmt.Errorf("--only: %w", err)
	}
	for _, c := range all {
		if re.MatchString(c.String()) {
			chosen = append(chosen, c)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no comparison is called %q; see --list", pattern)
	}
	return chosen, nil
}
