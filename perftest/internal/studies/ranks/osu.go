package ranks

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gucx/gucx/ucp/ucpgroup"
)

// window is the number of outstanding messages in tests of bandwidth, as in the micro-benchmarks of OSU.
const window = 64

// ackTag is the tag of the message that ends a window.
const ackTag = tag + 1

// bandwidth sends windows from the first half of the ranks to the second half, in pairs; the receiver acknowledges each
// window. both: receivers send at the same time. pairs is the number of pairs; 0: all.
func bandwidth(pairs int, both bool) func(c *ucpgroup.Comm, size int) (round, func() error) {
	return func(c *ucpgroup.Comm, size int) (round, func() error) {
		half := c.Size() / 2
		n := half
		if pairs > 0 {
			n = min(pairs, half)
		}
		me := c.Rank()
		sender, peer, pair := me < half, me+half, me
		if !sender {
			peer, pair = me-half, me-half
		}
		if pair >= n {
			return func(context.Context) error { return nil }, func() error { return nil }
		}
		x := &exchange{c: c, peer: peer, sends: sender || both, receives: !sender || both, acknowledges: !sender,
			out: Payload(me, peer, size), in: make([]byte, window*size), ack: make([]byte, 1)}
		return x.round, func() error { return x.check(size) }
	}
}

// exchange is a rank's part in a window.
type exchange struct {
	c                             *ucpgroup.Comm
	peer                          int
	sends, receives, acknowledges bool
	out, in, ack                  []byte
	pending                       []*ucpgroup.Request
}

func (x *exchange) round(ctx context.Context) error {
	x.pending = x.pending[:0]
	size := len(x.out)
	for i := range window {
		if x.receives {
			if err := x.add(x.c.Irecv(x.peer, tag, x.in[i*size:(i+1)*size], nil)); err != nil {
				return err
			}
		}
		if x.sends {
			if err := x.add(x.c.Isend(x.peer, tag, x.out, nil)); err != nil {
				return err
			}
		}
	}
	for _, q := range x.pending {
		if _, err := q.Wait(ctx); err != nil {
			return err
		}
	}
	if x.acknowledges {
		return x.c.Send(ctx, x.peer, ackTag, x.ack)
	}
	_, err := x.c.Recv(ctx, x.peer, ackTag, x.ack)
	return err
}

func (x *exchange) add(q *ucpgroup.Request, err error) error {
	x.pending = append(x.pending, q)
	return err
}

// check compares the received data with that of the peer.
func (x *exchange) check(size int) error {
	for i := 0; x.receives && i < window; i++ {
		if err := CheckPayload(x.in, i, x.peer, x.c.Rank(), size); err != nil {
			return err
		}
	}
	return nil
}

// osuTest is the output format of a test in the micro-benchmarks of OSU.
type osuTest struct {
	name, title, columns string
	values               func(r Row, iterations int) []string
}

// osuTests are the tests with a counterpart; the others are printed as collective operations.
var osuTests = []osuTest{
	{"pingpong", "Latency Test", "Latency (us)", func(r Row, _ int) []string { return []string{micro(r.MeanNS)} }},
	{"bw", "Bandwidth Test", "Bandwidth (MB/s)", func(r Row, _ int) []string { return []string{rate(r, 1)} }},
	{"bibw", "Bi-Directional Bandwidth Test", "Bandwidth (MB/s)", func(r Row, _ int) []string { return []string{rate(r, 1)} }},
	{"mbw_mr", "Multiple Bandwidth / Message Rate Test", "MB/s,Messages/s", func(r Row, _ int) []string {
		pairs := float64(r.Ranks / 2)
		return []string{rate(r, pairs), fmt.Sprintf("%.2f", pairs*1e9/r.MeanNS)}
	}},
}

// osuCollective is the format of a collective operation.
var osuCollective = osuTest{"", "Latency Test", "Avg Latency(us),Min Latency(us),Max Latency(us),Iterations", func(r Row, iterations int) []string {
	return []string{micro(r.MeanNS), micro(r.LeastNS), micro(r.MostNS), fmt.Sprint(iterations)}
}}

func micro(ns float64) string { return fmt.Sprintf("%.2f", ns/1000) }

// rate returns the bandwidth of n pairs in millions of bytes per second.
func rate(r Row, n float64) string { return fmt.Sprintf("%.2f", n*float64(r.Size)*1000/r.MeanNS) }

// Widths of columns.
const (
	osuSize  = 10
	osuValue = 18
)

// WriteOSU writes rows in the format of the micro-benchmarks of OSU, so that tools for it can read them.
func WriteOSU(w io.Writer, rows []Row, iterations int) error {
	var b strings.Builder
	last := ""
	for _, r := range rows {
		t := osuCollective
		if i := slices.IndexFunc(osuTests, func(t osuTest) bool { return t.name == r.Test }); i >= 0 {
			t = osuTests[i]
		} else {
			t.title = strings.ToUpper(r.Test[:1]) + r.Test[1:] + " " + t.title
		}
		if r.Test+r.Protocol != last {
			if last != "" {
				b.WriteByte('\n')
			}
			last = r.Test + r.Protocol
			fmt.Fprintf(&b, "# OSU gucx %s\n", t.title)
			if t.name == "mbw_mr" {
				fmt.Fprintf(&b, "# [ pairs: %d ] [ window size: %d ]\n", r.Ranks/2, window)
			}
			fmt.Fprintf(&b, "%-*s", osuSize, "# Size")
			for column := range strings.SplitSeq(t.columns, ",") {
				fmt.Fprintf(&b, "%*s", osuValue, column)
			}
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%-*d", osuSize, r.Size)
		for _, v := range t.values(r, iterations) {
			fmt.Fprintf(&b, "%*s", osuValue, v)
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}
