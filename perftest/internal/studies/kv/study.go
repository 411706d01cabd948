package kv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/examples/kv/kvstore"
	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/perftest/internal/peers/children"
)

// ErrData is the error if a read returned a value that was not written.
var ErrData = errors.New("kv: wrong data")

// Study selects the measurements.
type Study struct {
	Workloads []Workload
	Stores    []string
	Clients   []int
	Records   int
	Value     int // in bytes
	Time      time.Duration
	Rounds    int // of each row; the one with the median rate counts
	// Server and Client start processes that call ServeServer and ServeClient.
	Server, Client children.Start
}

// Row is the result of the clients of a store.
type Row struct {
	Workload string  `json:"workload"`
	Clients  int     `json:"clients"`
	Store    string  `json:"store"`
	Rate     float64 `json:"ops_per_s"`
	P50      int64   `json:"p50_ns"`
	P99      int64   `json:"p99_ns"`
	// CPU is the CPU time of the servers per operation, in ns.
	CPU float64 `json:"server_cpu_ns"`
	// RateRatio is the rate divided by that of Redis, CPURatio the same for the rate per CPU time of the servers; 0 if
	// Redis was not measured.
	RateRatio float64 `json:"rate_over_redis,omitempty"`
	CPURatio  float64 `json:"rate_per_cpu_over_redis,omitempty"`
}

// maxClients is the maximum number of processes for a row, maxRecords the maximum number of records.
const (
	maxClients = 64
	maxRounds  = 100
	maxRecords = 10_000_000
)

// Check returns an error for an invalid study.
func (s *Study) Check() error {
	for i, name := range s.Stores {
		if slices.Contains(s.Stores[:i], name) {
			return fmt.Errorf("store %q twice", name)
		}
		if name != storeOne && name != storeReplicated && name != storeRedis {
			return fmt.Errorf("store %q: there are %v", name, Stores())
		}
	}
	for _, n := range s.Clients {
		if n < 1 || n > maxClients {
			return fmt.Errorf("%d clients: want 1 to %d", n, maxClients)
		}
	}
	switch {
	case len(s.Workloads)*len(s.Clients)*len(s.Stores) == 0:
		return errors.New("nothing to measure")
	case s.Records < minRecords || s.Records > maxRecords:
		return fmt.Errorf("%d records: want %d to %d", s.Records, minRecords, maxRecords)
	case s.Value < 1 || s.Value > maxValue:
		return fmt.Errorf("values of %d bytes: want 1 to %d", s.Value, maxValue)
	case s.Rounds < 1 || s.Rounds > maxRounds:
		return fmt.Errorf("%d rounds: want 1 to %d", s.Rounds, maxRounds)
	case s.Time < time.Millisecond || s.Time > time.Hour:
		return fmt.Errorf("%v for each row: want 1ms to 1h", s.Time)
	}
	return nil
}

// Cases returns the number of measurements.
func (s *Study) Cases() int { return len(s.Workloads) * len(s.Clients) * len(s.Stores) * s.Rounds }

// server is a running store.
type server struct {
	name      string
	addresses []string
	pids      []int
}

// Run measures everything. step is called before each row. missing lists the reasons why stores were omitted.
func (s *Study) Run(ctx context.Context, step func(label string)) (rows []Row, missing []error, err error) {
	var undo cleanup.Stack
	defer func() { err = errors.Join(err, undo.Run()) }()
	var servers []*server
	for _, name := range s.Stores {
		srv, err := s.start(ctx, name, &undo)
		var m *MissingError
		if errors.As(err, &m) {
			missing = append(missing, err)
			continue
		}
		if err == nil {
			srv.name = name
			_, _, err = s.runClients(ctx, srv, job{Load: true, Clients: 1})
		}
		if err != nil {
			return nil, missing, fmt.Errorf("%s: %w", name, err)
		}
		servers = append(servers, srv)
	}
	for _, w := range s.Workloads {
		for _, n := range s.Clients {
			more, err := s.compare(ctx, servers, w, n, step)
			if err != nil {
				return rows, missing, err
			}
			rows = append(rows, more...)
		}
	}
	return rows, missing, nil
}

// compare measures rows with the same workload and clients: the stores take turns.
func (s *Study) compare(ctx context.Context, servers []*server, w Workload, clients int, step func(label string)) ([]Row, error) {
	rounds := make([][]Row, len(servers))
	for range s.Rounds {
		for i, srv := range servers {
			step(w.Name + " " + srv.name)
			r, err := s.measure(ctx, srv, w, clients)
			if err != nil {
				return nil, fmt.Errorf("%s, workload %s, %d clients: %w", srv.name, w.Name, clients, err)
			}
			rounds[i] = append(rounds[i], r)
		}
	}
	var rows []Row
	for _, r := range rounds {
		slices.SortFunc(r, func(a, b Row) int { return cmp.Compare(a.Rate, b.Rate) })
		rows = append(rows, r[len(r)/2])
	}
	setRatios(rows)
	return rows, nil
}

// setRatios sets the ratios of rows with the same workload and clients.
func setRatios(rows []Row) {
	for _, redis := range rows {
		if redis.Store != storeRedis {
			continue
		}
		for i := range rows {
			rows[i].RateRatio = quotient(rows[i].Rate, redis.Rate)
			rows[i].CPURatio = quotient(redis.CPU, rows[i].CPU)
		}
	}
}

// quotient returns a / b, or 0 if one of them was too small to be measured.
func quotient(a, b float64) float64 {
	if a <= 0 || b <= 0 {
		return 0
	}
	return a / b
}

// start starts the servers of a store. It adds their stop to undo.
func (s *Study) start(ctx context.Context, name string, undo *cleanup.Stack) (*server, error) {
	if name == storeRedis {
		return startRedis(ctx, undo)
	}
	cfg := kvstore.Config{Network: "unix", Keys: s.Records, Key: keyLen, Value: s.Value}
	cfg.Address = fmt.Sprintf("@perftest-%s-%d", name, os.Getpid())
	servers := []kvstore.Config{cfg}
	if name == storeReplicated {
		other := cfg
		other.Address += "-backup"
		other.Other, cfg.Other, cfg.New = cfg.Address, other.Address, true
		servers = []kvstore.Config{cfg, other}
	}
	list, err := children.Launch(ctx, len(servers), s.Server, undo)
	if err != nil {
		return nil, err
	}
	srv := &server{}
	srv.pids, err = children.Query[int](list, func(i int) any { return servers[i] })
	for _, cfg := range servers {
		srv.addresses = append(srv.addresses, cfg.Address)
	}
	return srv, err
}

// runClients makes clients run a job; the caller sets the fields that differ between rows. cpu is the CPU time of the
// servers meanwhile, without connection setup.
func (s *Study) runClients(ctx context.Context, srv *server, j job) (outcomes []outcome, cpu time.Duration, err error) {
	j.Store, j.Addresses, j.Records, j.Value = srv.name, srv.addresses, s.Records, s.Value
	var undo cleanup.Stack
	defer func() { err = errors.Join(err, undo.Run()) }()
	list, err := children.Launch(ctx, j.Clients, s.Client, &undo)
	if err != nil {
		return nil, 0, err
	}
	_, err = children.Query[struct{}](list, func(i int) any {
		one := j
		one.Client = i
		return one
	})
	if err != nil {
		return nil, 0, err
	}
	before, err := srv.cpu()
	if err != nil {
		return nil, 0, err
	}
	if outcomes, err = children.Query[outcome](list, children.Go); err != nil {
		return nil, 0, err
	}
	after, err := srv.cpu()
	return outcomes, after - before, err
}

// warmupShare is the part of the time of a row that clients run before the measurement.
const warmupShare = 5

// measure measures a row.
func (s *Study) measure(ctx context.Context, srv *server, w Workload, clients int) (Row, error) {
	outcomes, cpu, err := s.runClients(ctx, srv, job{Reads: w.Reads, Clients: clients, Warmup: s.Time / warmupShare, Time: s.Time})
	if ctx.Err() != nil {
		return Row{}, context.Cause(ctx)
	}
	if err != nil {
		return Row{}, err
	}
	r := Row{Workload: w.Name, Clients: clients, Store: srv.name}
	all, h := int64(0), hdrhistogram.New(1, int64(maxLatency), digits)
	for _, o := range outcomes {
		if o.Wrong > 0 {
			return r, fmt.Errorf("%w: %d of %d operations", ErrData, o.Wrong, o.All)
		}
		one := hdrhistogram.Import(o.Latency)
		r.Rate += float64(one.TotalCount()) / o.Elapsed.Seconds()
		all += o.All
		h.Merge(one)
	}
	r.P50, r.P99 = h.ValueAtQuantile(50), h.ValueAtQuantile(99)
	r.CPU = float64(cpu) / float64(all)
	return r, nil
}

// cpu returns the CPU time of the servers.
func (srv *server) cpu() (sum time.Duration, err error) {
	for _, pid := range srv.pids {
		var t unix.Timespec
		clock := ^int32(pid)<<3 | 2 // include/linux/posix-timers.h: the clock CPUCLOCK_SCHED of a process
		if err := unix.ClockGettime(clock, &t); err != nil {
			return 0, fmt.Errorf("CPU time of process %d: %w", pid, err)
		}
		sum += time.Duration(t.Nano())
	}
	return sum, nil
}
