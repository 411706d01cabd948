package ranksmodel

import (
	_ "embed" // the counts
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/gucx/gucx/internal/softhca/timing"
	"github.com/gucx/gucx/perftest/internal/studies/cluster"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/sm"
)

// CountsCommand has printed the counts of this package.
const CountsCommand = "perftest instructions --ops tag,tag_recv,am_short,am_short_recv,am_bcopy,am_bcopy_recv,get,idle" +
	" --layers uct,ucp --no-device -n 3 -x rc,rc_mlx5,ud,ud_mlx5,sm -s 8,1k -o csv"

//go:embed counts.csv
var counted string

// Counts are numbers of instructions of calls of transports.
type Counts struct {
	sum map[count]int
}

// count identifies a count.
type count struct{ op, size, layer, transport, part string }

// defaultTransport is the transport without a name in the column of switches.
const defaultTransport = "rc"

// DefaultCounts are the counts of the build with which this package was written.
func DefaultCounts() (*Counts, error) { return ReadCounts(strings.NewReader(counted)) }

// ErrCounts is the error of text that is not the output of CountsCommand.
var ErrCounts = errors.New("counts of instructions")

// ReadCounts parses the output of CountsCommand.
func ReadCounts(r io.Reader) (*Counts, error) {
	lines, err := csv.NewReader(r).ReadAll()
	if err != nil || len(lines) == 0 {
		return nil, errors.Join(ErrCounts, err)
	}
	at := map[string]int{}
	for i, name := range lines[0] {
		at[name] = i
	}
	for _, name := range []string{"op", "size", "layer", "switch", "part", "instructions"} {
		if _, ok := at[name]; !ok {
			return nil, fmt.Errorf("%w: no column %q; want the output of %s", ErrCounts, name, CountsCommand)
		}
	}
	c := &Counts{sum: map[count]int{}}
	for _, l := range lines[1:] {
		n, err := strconv.Atoi(l[at["instructions"]])
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrCounts, err)
		}
		k := count{l[at["op"]], l[at["size"]], l[at["layer"]], l[at["switch"]], l[at["part"]]}
		if k.transport == "" {
			k.transport = defaultTransport
		}
		c.sum[k] += n
	}
	return c, nil
}

// Sizes of counts: a message that fits into a work request, and one that does not.
const (
	shortSize = "8"
	bcopySize = "1024"
	noSize    = "0"
)

// Instructions are the instruction counts of calls over a transport.
type Instructions struct {
	Short   int // send a tagged message that fits into a work request
	Bcopy   int // send one that is copied
	Get     int // post a get of registered memory
	Idle    int // a poll without result
	Poll    int // a completion, in addition to that
	Deliver int // an active message with a tag, in addition to the poll that finds it
}

// Of returns the counts of a transport. It returns ErrCounts if the transport was not counted.
func (c *Counts) Of(transport string) (n Instructions, err error) {
	get := func(op, size, layer, transport string, parts ...string) (sum int) {
		for _, p := range parts {
			sum += c.sum[count{op, size, layer, transport, p}]
		}
		if sum == 0 && err == nil {
			err = fmt.Errorf("%w: %s of %s bytes over %s is not counted", ErrCounts, op, size, transport)
		}
		return sum
	}
	// The instructions of ucp itself are the same over all transports.
	n.Short = get("tag", shortSize, "ucp", defaultTransport, "ucp") + get("am_short", shortSize, "uct", transport, "uct", "verbs")
	n.Bcopy = get("tag", bcopySize, "ucp", defaultTransport, "ucp") + get("am_bcopy", bcopySize, "uct", transport, "uct", "verbs")
	n.Idle = get("idle", noSize, "uct", transport, "uct", "verbs")
	n.Poll = max(0, get("am_short_recv", shortSize, "uct", transport, "verbs")-n.Idle)
	n.Deliver = get("tag_recv", shortSize, "ucp", defaultTransport, "ucp") + get("am_short_recv", shortSize, "uct", transport, "uct")
	n.Get = n.Bcopy
	if !datagrams(transport) {
		n.Get = get("get", bcopySize, "uct", transport, "uct", "verbs")
	}
	return n, err
}

// OfSM returns the counts of sm. Its poll and delivery are counted together: Poll is 0, and Deliver contains the poll that finds
// the message.
func (c *Counts) OfSM() (n Instructions, err error) {
	get := func(op, size, layer, transport string) int {
		sum := c.sum[count{op, size, layer, transport, layer}]
		if sum == 0 && err == nil {
			err = fmt.Errorf("%w: %s of %s bytes over %s is not counted", ErrCounts, op, size, transport)
		}
		return sum
	}
	n.Short = get("tag", shortSize, "ucp", defaultTransport) + get("am_short", shortSize, "uct", sm.Name)
	n.Bcopy = get("tag", bcopySize, "ucp", defaultTransport) + get("am_bcopy", bcopySize, "uct", sm.Name)
	n.Get = get("get", bcopySize, "uct", sm.Name)
	n.Idle = get("idle", noSize, "uct", sm.Name)
	n.Deliver = get("tag_recv", shortSize, "ucp", defaultTransport) + get("am_short_recv", shortSize, "uct", sm.Name)
	return n, err
}

// datagrams reports whether a transport supports only active messages.
func datagrams(transport string) bool { return strings.HasPrefix(transport, "ud") }

// cacheRead is the time that a core waits for a completion that the NIC has written to the last-level cache; see
// RailLookup of timing.ConnectX4.
const cacheRead = 20 * timing.Nanosecond

// apply charges a machine for instructions of a post, of a poll and of a completion. Posts by the transport itself,
// such as acknowledgements, cost as much as a short message.
func (n *Instructions) apply(p *timing.Params, cycle timing.Time) (s cluster.Software) {
	// The other costs of the model are unchanged: barriers and the write to the register.
	p.PostCall = timing.Time(n.Short) * cycle
	p.WQEBuild = 0
	p.PollCall = timing.Time(n.Idle) * cycle
	p.CQERead = timing.Time(n.Poll)*cycle + cacheRead
	s.Receive = timing.Time(n.Deliver) * cycle
	s.Post = n.posts(cycle)
	return s
}

// sharedMemory returns what operations over sm take. Each poll takes that of one which finds nothing; a message takes the
// rest of the poll that finds it.
func (n *Instructions) sharedMemory(cycle timing.Time) cluster.SharedMemory {
	return cluster.SharedMemory{Post: n.posts(cycle), Poll: timing.Time(n.Idle) * cycle, Receive: timing.Time(max(0, n.Deliver-n.Idle)) * cycle}
}

// posts returns what posting takes, by variant.
func (n *Instructions) posts(cycle timing.Time) (post [uct.NumVariants]timing.Time) {
	for v := range post {
		post[v] = timing.Time(n.Short) * cycle
		switch uct.Variant(v) {
		case uct.AMBcopy, uct.AMZcopy, uct.PutBcopy:
			post[v] = timing.Time(n.Bcopy) * cycle
		case uct.GetBcopy, uct.GetZcopy, uct.PutZcopy:
			post[v] = timing.Time(n.Get) * cycle
		}
	}
	return post
}
