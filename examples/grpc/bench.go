package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"
)

// The benchmark has one client process, and a server process for each variant, all on this machine. It measures the
// variants in turns. The table has the best round of each variant, because other processes only make rounds slower.
const (
	benchCallers = 16
	echoLen      = 8
	pageLen      = 64 << 10
	messageLen   = 64
)

// variant is a type of connection between two processes, with GUCX_TLS and GUCX_SPIN_POLLS of both.
type variant struct{ name, over, transport, polls string }

var variants = []variant{
	{"unix", "unix", "", "0"}, {"tcp", "tcp", "", "0"}, {"gucx sm", "gucx", "sm", "0"}, {"gucx tcp", "gucx", "tcp", "0"},
	{"gucx sm, sleeps at once", "gucx", "sm", "1"}, {"gucx sm, never sleeps", "gucx", "sm", "-1"},
}

// sleeping is the number of variants that are measured in turns. The others, which spin on all CPUs, are measured
// afterwards.
const sleeping = 5

// service is a measured service: how a server listens, and how a client connects for one caller.
type service struct {
	name     string
	serve    func(n *network, address string) (at string, err error)
	connect  func(n *network, address string) (call func() error, end func() error, err error)
	gucxOnly bool
}

var services = []service{
	{fmt.Sprintf("net.Conn echo %d B", echoLen), listening(serveEcho), connectEcho, false},
	{fmt.Sprintf("http GET %d KiB", pageLen>>10), listening(servePage), connectPage, false},
	{fmt.Sprintf("gRPC unary %d B", messageLen), listening(func(l net.Listener) error { return newServer().Serve(l) }), connectUnary, false},
	{fmt.Sprintf("net/rpc %d B", messageLen), listening(serveNetRPC), connectNetRPC, false},
	{fmt.Sprintf("ucprpc %d B", messageLen), serveCalls, connectCalls(echoMethod), true},
	{fmt.Sprintf("ucprpc inline %d B", messageLen), serveCalls, connectCalls(inlineMethod), true},
	{fmt.Sprintf("active messages %d B", messageLen), serveActive, connectActive, true},
}

// over reports whether the service supports a network.
func (s *service) over(n string) bool { return n == "gucx" || !s.gucxOnly }

// listening returns a function that listens at an address of a network and serves the listener.
func listening(serve func(net.Listener) error) func(n *network, address string) (at string, err error) {
	return func(n *network, address string) (at string, err error) {
		l, err := n.listen(address)
		if err != nil {
			return "", err
		}
		go serve(l)
		return l.Addr().String(), nil
	}
}

// benchServer runs the servers of all services over one network until EOF on standard input, and prints their addresses.
func benchServer(over string) error {
	n, err := open(over)
	if err != nil {
		return err
	}
	defer n.close()
	var at []string
	for i, s := range services {
		address := "127.0.0.1:0"
		if over != "tcp" {
			address = fmt.Sprintf("@gucx-example-grpc-%d-%d", os.Getpid(), i)
		}
		where := "-"
		if s.over(over) {
			if where, err = s.serve(n, address); err != nil {
				return err
			}
		}
		at = append(at, where)
	}
	fmt.Println(strings.Join(at, " "))
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func serveEcho(l net.Listener) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			buf := make([]byte, echoLen)
			for {
				if _, err := io.ReadFull(c, buf); err != nil {
					break
				}
				if _, err := c.Write(buf); err != nil {
					break
				}
			}
			_ = c.Close()
		}()
	}
}

func connectEcho(n *network, address string) (call, end func() error, err error) {
	c, err := n.dial(context.Background(), address)
	if err != nil {
		return nil, nil, err
	}
	buf := make([]byte, echoLen)
	return func() error {
		if _, err := c.Write(buf); err != nil {
			return err
		}
		_, err := io.ReadFull(c, buf)
		return err
	}, c.Close, nil
}

func servePage(l net.Listener) error {
	page := bytes.Repeat([]byte("p"), pageLen)
	return http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(page) }))
}

func connectPage(n *network, address string) (call, end func() error, err error) {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return n.dial(ctx, address)
	}}
	client := &http.Client{Transport: transport}
	return func() error {
			answer, err := client.Get("http://server/")
			if err != nil {
				return err
			}
			got, err := io.Copy(io.Discard, answer.Body)
			if err == nil && got != pageLen {
				err = io.ErrUnexpectedEOF
			}
			return errors.Join(err, answer.Body.Close())
		}, func() error {
			transport.CloseIdleConnections()
			return nil
		}, nil
}

func connectUnary(n *network, address string) (call, end func() error, err error) {
	client, err := newClient(n, address)
	if err != nil {
		return nil, nil, err
	}
	what := make([]byte, messageLen)
	return func() error {
		_, err := say(context.Background(), client, what)
		return err
	}, client.Close, nil
}

// party is a variant with its server and, for each service, the calls of all callers.
type party struct {
	variant
	server *exec.Cmd
	calls  [][]func() error
	best   []result // best result of each service
}

// result is the measurement of a service with one caller and with benchCallers.
type result struct {
	p50, p99   time.Duration
	rate, many float64       // calls per second
	cpu, most  time.Duration // CPU time of both processes per call
}

// runBench measures the given number of rounds and prints the table. In each round it calls each variant of a service for
// time each with one caller and then with benchCallers.
func runBench(w io.Writer, only string, rounds int, each time.Duration) error {
	var parties []*party
	for _, group := range [][]variant{variants[:sleeping], variants[sleeping:]} {
		more, err := measureGroup(group, only, rounds, each)
		if err != nil {
			return err
		}
		parties = append(parties, more...)
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "\tp50 us\tp99 us\tcalls/s\tCPU us/call\tcalls/s of %d\tCPU us/call\n", benchCallers)
	us := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	for i, s := range services {
		for _, p := range parties {
			if !s.over(p.over) || !strings.Contains(s.name, only) {
				continue
			}
			r := p.best[i]
			fmt.Fprintf(table, "%s, %s\t%.1f\t%.1f\t%.0f\t%.1f\t%.0f\t%.1f\n", s.name, p.name, us(r.p50), us(r.p99), r.rate, us(r.cpu), r.many, us(r.most))
		}
	}
	return table.Flush()
}

// measureGroup measures variants in turns.
func measureGroup(group []variant, only string, rounds int, each time.Duration) (parties []*party, err error) {
	for _, v := range group {
		p := &party{variant: v, best: make([]result, len(services))}
		end, e := p.start()
		defer func() { err = errors.Join(err, end()) }()
		if e != nil {
			return nil, fmt.Errorf("%s: %w", v.name, e)
		}
		parties = append(parties, p)
	}
	for range rounds {
		for i := range services {
			for _, p := range parties {
				if !services[i].over(p.over) || !strings.Contains(services[i].name, only) {
					continue
				}
				if err := p.measure(i, each); err != nil {
					return nil, fmt.Errorf("%s: %s: %w", p.name, services[i].name, err)
				}
			}
		}
	}
	return parties, nil
}

// start starts the server and connects to it. end stops both. The caller must call end, also after an error.
func (p *party) start() (end func() error, err error) {
	var ends []func() error
	end = func() error {
		var errs []error
		for _, f := range slices.Backward(ends) {
			errs = append(errs, f())
		}
		return errors.Join(errs...)
	}
	if err := os.Setenv("GUCX_TLS", p.transport); err != nil { // gucx reads it when the network is opened
		return end, err
	}
	if err := os.Setenv("GUCX_SPIN_POLLS", p.polls); err != nil {
		return end, err
	}
	p.server = exec.Command(os.Args[0], "-over", p.over, "-benchserver")
	p.server.Stderr = os.Stderr
	p.server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := p.server.StdinPipe()
	if err != nil {
		return end, err
	}
	out, err := p.server.StdoutPipe()
	if err != nil {
		return end, err
	}
	if err := p.server.Start(); err != nil {
		return end, err
	}
	ends = append(ends, func() error { return errors.Join(in.Close(), p.server.Wait()) })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return end, err
	}
	n, err := open(p.over)
	if err != nil {
		return end, err
	}
	ends = append(ends, n.close)
	for i, address := range strings.Fields(line) {
		var calls []func() error
		for range benchCallers {
			if !services[i].over(p.over) {
				break
			}
			call, disconnect, err := services[i].connect(n, address)
			if err != nil {
				return end, err
			}
			ends = append(ends, disconnect)
			calls = append(calls, call)
		}
		p.calls = append(p.calls, calls)
	}
	return end, nil
}

// measure measures one round of service i.
func (p *party) measure(i int, each time.Duration) error {
	one, all, b := p.calls[i][:1], p.calls[i], &p.best[i]
	times, cpu, err := p.repeat(one, each)
	if err != nil {
		return err
	}
	slices.Sort(times)
	least := func(old *time.Duration, d time.Duration) {
		if *old == 0 || d < *old {
			*old = d
		}
	}
	least(&b.p50, times[len(times)/2])
	least(&b.p99, times[len(times)*99/100])
	least(&b.cpu, cpu/time.Duration(len(times)))
	b.rate = max(b.rate, float64(len(times))/each.Seconds())
	if times, cpu, err = p.repeat(all, each); err != nil {
		return err
	}
	least(&b.most, cpu/time.Duration(len(times)))
	b.many = max(b.many, float64(len(times))/each.Seconds())
	return nil
}

// repeat runs each of the calls in a loop on its own goroutine for time each, at least once. It returns the durations of
// the calls and the CPU time of both processes.
func (p *party) repeat(calls []func() error, each time.Duration) (times []time.Duration, cpu time.Duration, err error) {
	if cpu, err = p.cpuTime(); err != nil {
		return nil, 0, err
	}
	var mu sync.Mutex
	var callers sync.WaitGroup
	over := time.Now().Add(each)
	for _, call := range calls {
		callers.Go(func() {
			var own []time.Duration
			var failed error
			for now, once := time.Now(), true; failed == nil && (once || now.Before(over)); once = false {
				failed = call()
				then := now
				now = time.Now()
				own = append(own, now.Sub(then))
			}
			mu.Lock()
			defer mu.Unlock()
			times, err = append(times, own...), errors.Join(err, failed)
		})
	}
	callers.Wait()
	after, e := p.cpuTime()
	return times, after - cpu, errors.Join(err, e)
}

// clockTick is the unit of times in /proc/PID/stat: USER_HZ, 100 a second on all Linux machines.
const clockTick = 10 * time.Millisecond

// cpuTime returns the CPU time that both processes have used.
func (p *party) cpuTime() (time.Duration, error) {
	var own syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil {
		return 0, err
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.server.Process.Pid))
	if err != nil {
		return 0, err
	}
	ticks := 0
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // the third field is the first of these
	for _, s := range fields[11:13] {                                         // utime, stime
		n, err := strconv.Atoi(s)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(own.Utime.Nano()+own.Stime.Nano()) + time.Duration(ticks)*clockTick, nil
}
