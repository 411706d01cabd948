package kv

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/gucx/gucx"
	"github.com/gucx/gucx/examples/kv/kvstore"
	"github.com/gucx/gucx/perftest/internal/peers/children"
)

// ServeServer runs a server of examples/kv until the end of conn. It closes conn.
func ServeServer(ctx context.Context, conn net.Conn) (err error) {
	defer func() { err = errors.Join(err, conn.Close()) }()
	line := children.NewLine(conn)
	ctx = line.Follow(ctx)
	var cfg kvstore.Config
	if err := line.Receive(&cfg); err != nil {
		return line.Result(err)
	}
	c, err := gucx.Open()
	if err != nil {
		return line.Reply(nil, err)
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	s, err := kvstore.Listen(ctx, c, cfg)
	if err != nil {
		return line.Reply(nil, err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	for s.Serving() != nil && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	if err := line.Reply(os.Getpid(), nil); err != nil {
		return line.Result(err)
	}
	<-ctx.Done()
	return line.Result(context.Cause(ctx))
}

// job is the work of a client.
type job struct {
	Store     string
	Addresses []string
	Records   int
	Value     int
	Reads     int // in percent
	// Client is the number of the client; Clients is the number of clients.
	Client, Clients int
	// Load: the clients write all records, and do nothing else.
	Load bool
	// Warmup is the untimed part before Time.
	Warmup, Time time.Duration
}

// outcome is the result of a client.
type outcome struct {
	All     int64 // operations, including the warm-up
	Wrong   int64 // reads of a wrong value
	Elapsed time.Duration
	// Latency is that of operations, in ns; nil after a load.
	Latency *hdrhistogram.Snapshot
}

// ServeClient runs a client of a store: it replies when it has connected and prepared, and to the next request with its
// outcome. It closes conn.
func ServeClient(ctx context.Context, conn net.Conn) (err error) {
	defer func() { err = errors.Join(err, conn.Close()) }()
	line := children.NewLine(conn)
	ctx = line.Follow(ctx)
	var j job
	if err := line.Receive(&j); err != nil {
		return line.Result(err)
	}
	store, err := dial(ctx, j.Store, j.Addresses)
	run := j.load
	if !j.Load {
		run = j.newMeter().measure
	}
	if failed := line.Reply(nil, err); failed != nil || err != nil {
		return line.Result(failed)
	}
	defer func() { err = errors.Join(err, store.close()) }()
	if err := line.Receive(&struct{}{}); err != nil {
		return line.Result(err)
	}
	if err := line.Reply(run(ctx, store)); err != nil {
		return line.Result(err)
	}
	<-ctx.Done()
	return line.Result(context.Cause(ctx))
}

// load writes the records of the client.
func (j *job) load(ctx context.Context, store connection) (o outcome, err error) {
	value := make([]byte, j.Value)
	for i := j.Client; i < j.Records && ctx.Err() == nil; i += j.Clients {
		k := key(i)
		fillValue(value, k)
		if err := store.put(k, value); err != nil {
			return o, err
		}
		o.All++
	}
	return o, context.Cause(ctx)
}

// maxLatency is the maximum recorded latency; digits is the precision in decimal digits.
const (
	maxLatency = time.Minute
	digits     = 3
)

// meter reads and updates records. newMeter does all work that is proportional to the number of records, so that all
// clients start to measure at the same time.
type meter struct {
	*job
	keys       []string // by rank
	random     *rand.Rand
	ranks      *zipf
	latency    *hdrhistogram.Histogram
	value, buf []byte
}

func (j *job) newMeter() *meter {
	keys := make([]string, j.Records)
	for i := range keys {
		keys[i] = key(i)
	}
	r := rand.New(rand.NewPCG(uint64(j.Client), 1))
	return &meter{job: j, keys: keys, random: r, ranks: newZipf(j.Records, r), latency: hdrhistogram.New(1, int64(maxLatency), digits),
		value: make([]byte, j.Value), buf: make([]byte, maxValue)}
}

// measure reads and updates for the time of the job, and until it has recorded the latency of at least one operation.
func (m *meter) measure(ctx context.Context, store connection) (o outcome, err error) {
	begin := time.Now()
	from, to := begin.Add(m.Warmup), begin.Add(m.Warmup+m.Time)
	for now := begin; now.Before(to) || m.latency.TotalCount() == 0; o.All++ {
		k := m.keys[m.ranks.next()]
		if m.random.IntN(100) < m.Reads {
			got, err := store.get(k, m.buf)
			if err != nil {
				return o, err
			}
			if !checkValue(got, k, m.Value) {
				o.Wrong++
			}
		} else {
			fillValue(m.value, k)
			if err := store.put(k, m.value); err != nil {
				return o, err
			}
		}
		end := time.Now()
		if now.After(from) {
			_ = m.latency.RecordValue(min(int64(end.Sub(now)), int64(maxLatency))) // in range
		}
		now = end
		if o.All%1024 == 0 && ctx.Err() != nil {
			return o, context.Cause(ctx)
		}
	}
	o.Elapsed, o.Latency = time.Since(from), m.latency.Export()
	return o, nil
}
