package tcp

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
)

// The benchmarks read their configuration from the environment (GUCX_TCP_...). They run between two
// processes, which are pinned to the first and the second CPU.

const benchEnv = "TCP_BENCH_PEER"

// benchRT, if set, gives the threads that call Progress real-time priority, so that other work on
// the machine disturbs the results less. It needs CAP_SYS_NICE.
const benchRT = "TCP_BENCH_RT"

// Active messages of the benchmark.
const (
	benchHello  = 1 // address of the sender
	benchEcho   = 2 // the peer replies with the same
	benchCount  = 3 // the peer counts it
	benchReport = 4 // the peer replies after it has handled all earlier messages
	benchBye    = 5
)

const benchMem = 1 << 20

// bencher is one of the two processes.
type bencher struct {
	md    uct.MD
	iface uct.Iface
	mem   uct.Mem
	ep    uct.EP
	am    uct.AMSender

	counted, replies int
	reportDue        bool // a report is not sent yet
	bye              bool
}

func pin(cpu int) {
	runtime.LockOSThread()
	var set unix.CPUSet
	set.Set(cpu)
	_ = unix.SchedSetaffinity(0, &set)
	if os.Getenv(benchRT) == "" {
		return
	}
	const priority = 40
	rt := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Flags: unix.SCHED_FLAG_RESET_ON_FORK, Priority: priority}
	if err := unix.SchedSetAttr(0, &rt, 0); err != nil {
		panic(err)
	}
}

func openBencher() (*bencher, error) {
	b := &bencher{}
	var cfg Config
	err := config.FromEnv(os.Environ(), config.Table{Prefix: "TCP", Doc: "tcp", Config: &cfg})
	if err != nil {
		return nil, err
	}
	if b.md, err = New(cfg).OpenMD(Name); err != nil {
		return nil, err
	}
	if b.iface, err = b.md.OpenIface(uct.IfaceParams{Transport: Name, Device: "lo"}); err != nil {
		return nil, err
	}
	if b.mem, err = b.md.Ext().Alloc.Alloc(benchMem, uct.AccessAll); err != nil {
		return nil, err
	}
	return b, b.handlers()
}

func (b *bencher) handlers() error {
	for id, f := range map[uint8]func([]byte){
		benchHello:  b.connect,
		benchEcho:   func(d []byte) { b.replies++; b.echo(d) },
		benchCount:  func([]byte) { b.counted++ },
		benchReport: func([]byte) { b.replies++; b.report() },
		benchBye:    func([]byte) { b.bye = true },
	} {
		h := func(d []byte, _ uct.Desc) bool { f(d); return false }
		if err := b.iface.SetAMHandler(id, uct.AMHandlerFunc(h)); err != nil {
			return err
		}
	}
	return nil
}

// address returns the device address, iface address, remote key and memory address.
func (b *bencher) address() []byte {
	a := b.iface.Ext().Address
	out := a.IfaceAddr(a.DeviceAddr(nil))
	out, _ = b.mem.PackRKey(out)
	return fmt.Appendf(out, "%016x", b.mem.Addr())
}

func (b *bencher) connect(addr []byte) {
	n := b.iface.Attr().DeviceAddrLen // both use the same device
	ep, err := b.iface.NewEP(uct.EPParams{DeviceAddr: addr[:n], IfaceAddr: addr[n : n+ifaceLen]})
	if err == nil {
		b.ep, b.am = ep, ep.Ops().AM
	}
}

func (b *bencher) echo(d []byte) {
	if serving {
		_ = b.am.AMShort(benchEcho, 0, d[8:])
	}
}

func (b *bencher) report() {
	if serving {
		b.reportDue = b.am.AMShort(benchReport, 0, nil) != nil
	}
}

var serving bool

// serveBench runs the peer process.
func serveBench() {
	serving = true
	pin(1)
	b, err := openBencher()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(hex.EncodeToString(b.address()))
	for idle := 0; !b.bye && idle < 1<<28; idle++ {
		if b.iface.Progress() > 0 {
			idle = 0
		}
		if b.reportDue {
			b.report()
		}
	}
	os.Exit(0)
}

// startBench starts the peer process and connects to it.
func startBench(t testing.TB) (b *bencher, put uct.Putter, raddr uint64, key uct.RKey) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), benchEnv+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	addr, err := hex.DecodeString(strings.TrimSpace(line))
	require.NoError(t, err)
	b, err = openBencher()
	require.NoError(t, err)
	b.connect(addr)
	rest := addr[b.iface.Attr().DeviceAddrLen+ifaceLen:]
	_, err = fmt.Sscanf(string(rest[keyLen:]), "%016x", &raddr)
	require.NoError(t, err)
	key, err = b.md.Ext().Keys.UnpackRKey(rest[:keyLen])
	require.NoError(t, err)
	hello := &packed{b.address()}
	_, err = b.am.AMBcopy(benchHello, hello)
	require.NoError(t, err)
	b.drain(t)
	t.Cleanup(func() {
		_ = b.am.AMShort(benchBye, 0, nil)
		b.drain(t)
		require.NoError(t, b.ep.Close())
		require.NoError(t, b.iface.Close())
		require.NoError(t, b.mem.Close())
		require.NoError(t, b.md.Close())
		_ = cmd.Wait()
	})
	return b, b.ep.Ops().Put, raddr, key
}

func (b *bencher) until(t testing.TB, f func() bool) {
	for idle := 0; !f(); idle++ {
		if b.iface.Progress() > 0 {
			idle = 0
		}
		if idle > 1<<28 {
			t.Fatal("stuck")
		}
	}
}

func (b *bencher) drain(t testing.TB) {
	b.until(t, func() bool { busy, err := b.ep.Flush(nil); return err != nil || !busy })
}

// packed is a Packer of bytes.
type packed struct{ data []byte }

func (p *packed) Pack(dst []byte) int { return copy(dst, p.data) }

// latencyBatch is the number of round trips in one measurement of the best latency.
const latencyBatch = 100

// BenchmarkLatency measures half of a round trip.
func BenchmarkLatency(b *testing.B) {
	pin(0)
	defer runtime.UnlockOSThread()
	s, _, _, _ := startBench(b)
	for _, n := range []int{8, 1024, 4096} {
		b.Run(fmt.Sprintf("am_short/%d", n), func(b *testing.B) {
			payload := make([]byte, n-8)
			s.replies = 0
			want := 0
			best, start := time.Hour, time.Now()
			for b.Loop() {
				if want%latencyBatch == 0 && want > 0 {
					now := time.Now()
					best, start = min(best, now.Sub(start)), now
				}
				for err := s.am.AMShort(benchEcho, 0, payload); err != nil; err = s.am.AMShort(benchEcho, 0, payload) {
					s.iface.Progress()
				}
				want++
				for s.replies < want {
					s.iface.Progress()
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(want)/2, "ns/oneway")
			b.ReportMetric(float64(best.Nanoseconds())/latencyBatch/2, "ns/oneway-best")
		})
	}
}

// waitReport waits until the peer has handled all messages.
func (b *bencher) waitReport() {
	b.replies = 0
	for b.am.AMShort(benchReport, 0, nil) != nil {
		b.iface.Progress()
	}
	for b.replies == 0 {
		b.iface.Progress()
	}
}

// BenchmarkRate posts messages as fast as resources permit, with Progress after each batch.
func BenchmarkRate(b *testing.B) {
	pin(0)
	defer runtime.UnlockOSThread()
	s, _, _, _ := startBench(b)
	for _, n := range []int{8, 64, 1024} {
		for _, batch := range []int{1, 16} {
			b.Run(fmt.Sprintf("am_short/%d/batch=%d", n, batch), func(b *testing.B) {
				payload := make([]byte, n-8)
				count := 0
				for b.Loop() {
					for range batch {
						for s.am.AMShort(benchCount, 0, payload) != nil {
							s.iface.Progress()
						}
					}
					count += batch
					s.iface.Progress()
				}
				s.waitReport()
				b.ReportMetric(float64(count)/b.Elapsed().Seconds()/1e6, "Mmsg/s")
			})
		}
	}
}

// BenchmarkBandwidth sends large messages and puts.
func BenchmarkBandwidth(b *testing.B) {
	pin(0)
	defer runtime.UnlockOSThread()
	s, put, raddr, key := startBench(b)
	free := 0
	comp := &uct.Completion{}
	comp.Func = func(*uct.Completion) {}
	iov := []uct.IOV{{}}
	for _, tc := range []struct {
		name string
		n    int
		post func() (bool, error)
	}{
		{"am_zcopy", 64 << 10, func() (bool, error) { return s.am.AMZcopy(benchCount, nil, iov, comp) }},
		{"put_zcopy", 64 << 10, func() (bool, error) { return put.PutZcopy(iov, raddr, key, comp) }},
		{"put_zcopy", 1 << 20, func() (bool, error) { return put.PutZcopy(iov, raddr, key, comp) }},
	} {
		b.Run(fmt.Sprintf("%s/%d", tc.name, tc.n), func(b *testing.B) {
			iov[0].Buf = s.mem.Bytes()[:tc.n]
			const window = 16
			comp.Count, free = 1<<40, 0
			b.SetBytes(int64(tc.n))
			for b.Loop() {
				for {
					if free < window {
						pending, err := tc.post()
						if err == nil {
							if !pending {
								comp.Count--
							}
							free++
							break
						}
					}
					s.iface.Progress()
					free = min(free, window-1)
				}
			}
			s.drain(b)
		})
	}
}
