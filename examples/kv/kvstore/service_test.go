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
	seen := newHistory(os.Getpid())
	for {
		k := rand.N(serviceKeys)
		key, s := fmt.Sprintf("%d-%d-%d", l.role.Number, goroutine, k), &seen.keys[k]
		if s.known >= 0 && rand.N(4) == 0 {
			s.last++
			switch err := cl.Put(ctx, key, []byte(written(s.last, seen.process))); {
			case err == nil:
				s.known = s.last
			case errors.Is(err, ErrUnknown):
				l.unknown.Add(1)
			default:
				l.fail("put %s: %v", key, err)
			}
		} else {
			value, err := cl.Get(ctx, key, nil)
			if err != nil && err != ErrNoKey {
				l.fail("get %s: %v", key, err)
			} else if before := *s; !seen.read(k, string(value)) {
				l.fail("get %s: %q, last acknowledged %d, last written %d", key, value, before.known, before.last)
			}
		}
		l.operations.Add(1)
		time.Sleep(time.Duration(rand.N(2000)) * time.Microsecond)
	}
}

// history is what a goroutine of a client knows of its keys.
type history struct {
	process int // which writes
	keys    [serviceKeys]keyHistory
	late    bool // a value that an earlier process had sent before it was killed was written after the first get
}

type keyHistory struct {
	known, last int    // the last acknowledged value, and the last one that may have been written; known is -1 before the first get
	first       string // what the first get has read: of an earlier process
}

func newHistory(process int) *history {
	h := &history{process: process}
	for k := range h.keys {
		h.keys[k].known = -1
	}
	return h
}

// written is the n-th value of a key, by a process.
func written(n, process int) string { return fmt.Sprintf("%d of %d", n, process) }

// read records a value that was read, "" for none. It reports whether the value is right. The put that was in progress in
// an earlier process when it was killed may be executed at any time, once.
func (h *history) read(k int, value string) bool {
	n, process, s := 0, 0, &h.keys[k]
	if value != "" {
		if _, err := fmt.Sscanf(value, "%d of %d", &n, &process); err != nil {
			return false
		}
	}
	right := true
	switch {
	case s.known < 0:
		s.first, s.last = value, n
	case value != "" && process != h.process && value != s.first && !h.late:
		h.late, s.last = true, max(s.last, n)
	default:
		right = s.known <= n && n <= s.last
	}
	s.known = n
	return right
}

// TestHistory: a late put of an earlier process is no error, but only one. A lost or unknown value is an error.
func TestHistory(t *testing.T) {
	const old, own = 1, 2
	h := newHistory(own)
	assert.True(t, h.read(0, written(5, old)))
	assert.True(t, h.read(0, written(5, old)))
	assert.True(t, h.read(1, ""))
	h.keys[1].last = 1 // a put
	assert.True(t, h.read(1, written(1, own)))
	assert.False(t, h.read(1, ""), "lost")
	h.keys[0].last, h.keys[0].known = 6, 6 // a put
	assert.False(t, h.read(0, written(5, old)), "lost")
	assert.False(t, h.read(0, written(7, own)), "not written")
	h.keys[0].known = 6
	assert.True(t, h.read(0, written(7, old)), "late")
	assert.True(t, h.read(0, written(7, old)))
	assert.False(t, h.read(0, written(8, old)), "a second one")
	assert.False(t, h.read(2, "no value"))

	h = newHistory(own)
	assert.True(t, h.read(0, written(5, old)))
	h.keys[0].last, h.keys[0].known = 8, 8
	assert.True(t, h.read(0, written(6, old)), "after puts of this process")
	h.keys[0].last, h.keys[0].known = 9, 9
	assert.False(t, h.read(0, written(6, old)), "lost")
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
