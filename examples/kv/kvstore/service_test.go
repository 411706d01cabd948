package kvstore

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx"
)

// serviceTimeEnv is how long TestService runs, such as 10m.
const serviceTimeEnv = "KVSTORE_SERVICE_TIME"

// clientEnv makes this test binary a client of TestService. Its value is a clientRole in JSON.
const clientEnv = "KVSTORE_TEST_CLIENT"

// Clients and goroutines of TestService, and how often processes report and are killed.
const (
	serviceClients    = 8
	serviceGoroutines = 8
	reportEvery       = 10 * time.Second
	serviceKeys       = 4 // of each goroutine
)

// clientRole is what a client of TestService is.
type clientRole struct {
	Number    int
	Addresses []string
}

// report is what a process says of itself, one line each.
type report struct {
	Name       string
	Role       string `json:",omitempty"`
	Goroutines int
	Files      int // open descriptors
	Memory     int // resident, in MiB
	Operations uint64
	Unknown    uint64            `json:",omitempty"` // updates of which it is not known whether they have run
	Wrong      []string          `json:",omitempty"`
	Counters   map[string]uint64 `json:",omitempty"` // that are not 0
}

// reportPrefix begins the line of a report.
const reportPrefix = "report "

// measure sets what the system says of this process.
func (r *report) measure() {
	r.Goroutines = runtime.NumGoroutine()
	if files, err := os.ReadDir("/proc/self/fd"); err == nil {
		r.Files = len(files)
	}
	if b, err := os.ReadFile("/proc/self/statm"); err == nil {
		if f := strings.Fields(string(b)); len(f) > 1 {
			pages, _ := strconv.Atoi(f[1])
			r.Memory = pages * os.Getpagesize() >> 20
		}
	}
}

// reportForever prints a report at once, and then in intervals.
func reportForever(make func() report) {
	for {
		r := make()
		r.measure()
		line, err := json.Marshal(r)
		if err != nil {
			panic(err) // a report has strings and numbers only
		}
		fmt.Printf("%s%s\n", reportPrefix, line)
		time.Sleep(reportEvery)
	}
}

// reportServer is the report of a server.
func reportServer(s *Server) report {
	r := report{Name: "server " + s.cfg.Address, Role: string(s.info().Role), Counters: map[string]uint64{}}
	for path, n := range s.rpc.Stats().Snapshot().All() {
		if n > 0 {
			r.Counters[path[strings.LastIndexByte(path, '.')+1:]] += n
		}
	}
	r.Operations = r.Counters["requests"]
	return r
}

// load is the load of a client of TestService.
type load struct {
	role       clientRole
	operations atomic.Uint64
	unknown    atomic.Uint64
	mu         sync.Mutex
	wrong      []string // under mu
}

// runClientRole is a client of TestService until it is killed.
func runClientRole(value string) error {
	var l load
	if err := json.Unmarshal([]byte(value), &l.role); err != nil {
		return err
	}
	c, err := gucx.Open()
	if err != nil {
		return err
	}
	cl, err := Dial(context.Background(), c, ClientConfig{Network: "unix", Addresses: l.role.Addresses})
	if err != nil {
		return err
	}
	fmt.Println("listening") // as a server: it runs
	for g := range serviceGoroutines {
		go l.run(cl, g)
	}
	go reportForever(func() report {
		l.mu.Lock()
		defer l.mu.Unlock()
		return report{Name: fmt.Sprint("client ", l.role.Number), Operations: l.operations.Load(), Unknown: l.unknown.Load(), Wrong: l.wrong}
	})
	bufio.NewScanner(os.Stdin).Scan()
	return nil
}

// fail records what must not be.
func (l *load) fail(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.wrong) < 10 {
		l.wrong = append(l.wrong, fmt.Sprintf(format, args...))
	}
}

// run writes keys that no other goroutine writes, and reads them: a value must be the last that was acknowledged, or a later
// one of which that is not known. A process that was killed has left any value.
func (l *load) run(cl *Client, goroutine int) {
	ctx := context.Background()
	var known, last [serviceKeys]int // the last acknowledged value, and the last one that may have been written
	for k := range known {
		known[k] = -1
	}
	for {
		k := rand.N(serviceKeys)
		key := fmt.Sprintf("%d-%d-%d", l.role.Number, goroutine, k)
		if known[k] >= 0 && rand.N(4) == 0 {
			last[k]++
			switch err := cl.Put(ctx, key, []byte(strconv.Itoa(last[k]))); {
			case err == nil:
				known[k] = last[k]
			case errors.Is(err, ErrUnknown):
				l.unknown.Add(1)
			default:
				l.fail("put %s: %v", key, err)
			}
		} else {
			l.get(ctx, cl, key, &known[k], &last[k])
		}
		l.operations.Add(1)
		time.Sleep(time.Duration(rand.N(2000)) * time.Microsecond)
	}
}

// get reads a key and checks its value.
func (l *load) get(ctx context.Context, cl *Client, key string, known, last *int) {
	value, err := cl.Get(ctx, key, nil)
	n := 0
	switch {
	case err == ErrNoKey:
	case err != nil:
		l.fail("get %s: %v", key, err)
		return
	default:
		if n, err = strconv.Atoi(string(value)); err != nil {
			l.fail("get %s: %q", key, value)
			return
		}
	}
	switch {
	case *known < 0: // the first get of this process
		*last = max(n, 0)
	case n < *known || n > *last:
		l.fail("get %s: %d, last acknowledged %d, last written %d", key, n, *known, *last)
	}
	*known = n
}

// service is what TestService runs.
type service struct {
	t       *testing.T
	mu      sync.Mutex
	reports map[string]report // the latest, by name; under mu
	first   map[string]report // the first after a while; under mu
	since   time.Time
}

// take is called with each report.
func (s *service) take(line string) {
	var r report
	if err := json.Unmarshal([]byte(line), &r); err != nil {
		assert.NoError(s.t, err)
		return
	}
	assert.Empty(s.t, r.Wrong, r.Name)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reports[r.Name] = r
	if _, found := s.first[r.Name]; !found && time.Since(s.since) > 2*reportEvery {
		s.first[r.Name] = r
	}
	s.t.Logf("%5.0f s  %-30s %-8s %8d operations %4d unknown %4d goroutines %3d files %4d MiB  %v",
		time.Since(s.since).Seconds(), r.Name, r.Role, r.Operations, r.Unknown, r.Goroutines, r.Files, r.Memory, r.Counters)
}

// growth reports by how much the process with that name has grown.
func (s *service) growth(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, found := s.first[name]
	b := s.reports[name]
	require.True(s.t, found, "the run was too short")
	s.t.Logf("growth of %s: goroutines %d to %d, files %d to %d, memory %d to %d MiB", name, a.Goroutines, b.Goroutines, a.Files, b.Files, a.Memory, b.Memory)
	assert.LessOrEqual(s.t, b.Goroutines, 2*a.Goroutines, "goroutines")
	assert.LessOrEqual(s.t, b.Files, a.Files+20, "open files")
	assert.LessOrEqual(s.t, b.Memory, 2*a.Memory+32, "memory")
	assert.Greater(s.t, b.Operations, a.Operations, "it works to the end")
}

// TestService is 8 clients with 8 goroutines each for a long time, while clients and servers are killed and restarted. It
// prints what the processes report; make service runs it. Client 0 is never killed: it must not grow.
func TestService(t *testing.T) {
	value := os.Getenv(serviceTimeEnv)
	if value == "" {
		t.Skip("it runs for the time that " + serviceTimeEnv + " says: make service")
	}
	limit, err := time.ParseDuration(value)
	require.NoError(t, err)
	s := &service{t: t, reports: map[string]report{}, first: map[string]report{}, since: time.Now()}
	servers := startReplicas(t, Config{Lease: 500 * time.Millisecond})
	for _, p := range servers {
		p.onReport = s.take
	}
	var clients []*process
	for i := range serviceClients {
		p := &process{t: t, onReport: s.take, client: &clientRole{Number: i, Addresses: []string{servers[0].cfg.Address, servers[1].cfg.Address}}}
		p.start()
		t.Cleanup(p.kill)
		clients = append(clients, p)
	}
	kills := 0
	for time.Since(s.since) < limit {
		time.Sleep(time.Second + time.Duration(rand.N(3000))*time.Millisecond)
		if rand.N(2) == 0 {
			p := clients[1+rand.N(serviceClients-1)]
			p.kill()
			p.start()
		} else {
			p := servers[rand.N(2)]
			p.kill()
			time.Sleep(time.Duration(rand.N(1000)) * time.Millisecond)
			p.start()
			p.line("serving")
		}
		kills++
	}
	time.Sleep(reportEvery + time.Second) // for the last reports
	s.growth("client 0")
	t.Logf("%d kills in %v", kills, time.Since(s.since).Round(time.Second))
	assert.Positive(t, kills)
}
