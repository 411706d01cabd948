package ucp_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/roles"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
)

func init() { roles.Register("load", loadRole) }

// slotLen is the length of a value of the store.
const slotLen = 128

// BenchmarkLoad measures a store of values in the memory of a server, which clients write and read. The clients are
// processes with several goroutines, which have a worker each and wait for each operation. It shows the cost of waiting
// when there are more waiters than CPUs.
func BenchmarkLoad(b *testing.B) {
	for _, tls := range []string{"tcp", `\rc`, "sm"} {
		for _, n := range loads() {
			for _, spin := range []int{0, 1, 256, 4096} {
				b.Run(fmt.Sprintf("%s/%dx%d/spin=%d", tls, n[0], n[1], spin), func(b *testing.B) {
					load(b, tls, n[0], n[1], spin)
				})
			}
		}
	}
}

// loads returns pairs of processes and goroutines. GUCX_TEST_SOAK=1 adds 32 clients, which connect at once: once a client over sm got
// ErrConnReset then, for a reason that is not known.
func loads() [][2]int {
	few := [][2]int{{1, 1}, {2, 1}}
	if testenv.Soak() {
		return append(few, [2]int{4, 8})
	}
	return few
}

// load makes processes × goroutines clients do b.N operations together.
func load(b *testing.B, tls string, processes, goroutines, spin int) {
	clients := processes * goroutines
	store := startStore(b, tls, clients*slotLen, spin)
	var children []*roles.Child
	for i := range processes {
		children = append(children, roles.Start(b, "load", tls, goroutines, spin, i, store))
	}
	for _, c := range children {
		require.Equal(b, "ready", c.Line(b))
	}
	each := max(1, b.N/clients)
	b.ResetTimer()
	for _, c := range children {
		c.Send(b, strconv.Itoa(each))
	}
	before := testenv.CPUTime()
	var cpu time.Duration
	for _, c := range children {
		ns, err := strconv.Atoi(c.Line(b))
		require.NoError(b, err)
		cpu += time.Duration(ns)
	}
	b.StopTimer()
	cpu += testenv.CPUTime() - before
	b.ReportMetric(float64(each*clients)/b.Elapsed().Seconds(), "op/s")
	b.ReportMetric(float64(cpu.Nanoseconds())/float64(1000*each*clients), "cpu-us/op")
	b.ReportMetric(0, "ns/op")
	for _, c := range children {
		c.End(b)
	}
}

// startStore serves memory until the test ends.
func startStore(t testing.TB, tls string, length, spin int) ucppair.Remote {
	c, err := ucppair.OpenContext(tls)
	require.NoError(t, err)
	w, err := c.NewWorker(ucp.WorkerConfig{SpinPolls: spin})
	require.NoError(t, err)
	mem, err := c.MemAlloc(length)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() { _ = w.Serve(ctx) })
	t.Cleanup(func() {
		stop()
		serving.Wait()
		require.NoError(t, errors.Join(w.Close(), mem.Close(), c.Close()))
	})
	return ucppair.Remote{Addr: w.Address(), Key: mem.Pack()}
}

// loadRole is a process of clients. Its arguments are transports, goroutines, SpinPolls, its number and the store. The
// parent sends the number of operations of each goroutine.
func loadRole(c *roles.Side) error {
	goroutines, err := strconv.Atoi(c.Args[1])
	if err != nil {
		return err
	}
	clients := make([]*loader, goroutines)
	for i := range clients {
		if clients[i], err = newLoader(c.Args, i); err != nil {
			return err
		}
	}
	c.Printf("ready")
	if !c.NextLine() {
		return nil
	}
	n, err := strconv.Atoi(c.In.Text())
	if err != nil {
		return err
	}
	errs := make([]error, goroutines)
	before := testenv.CPUTime()
	var running sync.WaitGroup
	for i, x := range clients {
		running.Go(func() { errs[i] = x.run(n) })
	}
	running.Wait()
	c.Printf("%d", testenv.CPUTime()-before)
	for _, x := range clients {
		errs = append(errs, x.close())
	}
	return errors.Join(errs...)
}

// loader is a client, which writes and reads a value of its own.
type loader struct {
	c    *ucp.Context
	w    *ucp.Worker
	ep   *ucp.EP
	key  *ucp.RKey
	slot uint64 // offset of its value
}

func newLoader(args []string, i int) (*loader, error) {
	var n [3]int
	for k := range n {
		var err error
		if n[k], err = strconv.Atoi(args[1+k]); err != nil {
			return nil, err
		}
	}
	goroutines, spin, process := n[0], n[1], n[2]
	store, err := ucppair.ParseRemote(args[4])
	if err != nil {
		return nil, err
	}
	x := &loader{slot: uint64(process*goroutines+i) * slotLen}
	if x.c, err = ucppair.OpenContext(args[0]); err != nil {
		return nil, err
	}
	if x.w, err = x.c.NewWorker(ucp.WorkerConfig{SpinPolls: spin}); err != nil {
		return nil, err
	}
	if x.ep, x.key, err = store.Dial(x.w); err != nil {
		return nil, err
	}
	return x, x.run(2)
}

// run does n operations: writes and reads alternate.
func (x *loader) run(n int) error {
	ctx, value, got := context.Background(), testenv.Pattern(slotLen, int(x.slot)), make([]byte, slotLen)
	addr := x.key.Addr() + x.slot
	for i := range n {
		if i%2 == 1 {
			if err := x.ep.GetWait(ctx, got, addr, x.key, nil); err != nil {
				return err
			}
			if string(got) != string(value) {
				return fmt.Errorf("slot %d: not what was written", x.slot)
			}
			continue
		}
		value[0]++
		if err := x.ep.PutWait(ctx, value, addr, x.key, nil); err != nil {
			return err
		}
		if err := x.ep.FlushWait(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (x *loader) close() error {
	x.key.Close()
	return errors.Join(x.w.Close(), x.c.Close())
}
