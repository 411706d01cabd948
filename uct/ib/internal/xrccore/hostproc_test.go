package xrccore

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/internal/ibtest"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// hostEnv makes the test binary run serveHost. Its value is that of ShareDomain.
const hostEnv = "GUCX_XRC_TEST_HOST"

// hostCommand is a command for a process.
type hostCommand struct {
	Do   string // ep, connect, send, flush, got, count
	EP   int
	Dev  []byte
	Addr []byte
	Byte byte
}

// hostReport is the result of a command.
type hostReport struct {
	Err        string
	Dev, Addr  []byte   // of a new EP
	Got        []byte   // first bytes of all messages so far
	Failed     []string // errors passed to OnError
	QPs        int      // of the device
	Initiators int
	Targets    []uint32 // QPNs of the targets that the process refers to
}

// hostProc is the state of a process that executes commands.
type hostProc struct {
	it     *Iface
	eps    []*EP
	got    []byte
	failed []string
}

// serveHost executes commands until in is closed.
func serveHost(in *os.File, out io.Writer) error {
	md, err := ibtest.OpenMD(softhca.FabricShm, testTransport())
	if err != nil {
		return err
	}
	p := &hostProc{}
	it, err := md.OpenIface(uct.IfaceParams{Transport: testName, Device: ibtest.Device,
		Config:  Config{ShareDomain: os.Getenv(hostEnv), DomainDir: os.Getenv(domainDirEnv)},
		OnError: func(_ uct.EP, err error) { p.failed = append(p.failed, err.Error()) }})
	if err != nil {
		return err
	}
	p.it = it.(*Iface)
	err = it.SetAMHandler(testAM, uct.AMHandlerFunc(func(data []byte, _ uct.Desc) bool {
		p.got = append(p.got, data[8])
		return false
	}))
	if err != nil {
		return err
	}
	if err := p.serve(in, json.NewEncoder(out)); err != nil {
		return err
	}
	for _, c := range []io.Closer{it, md} {
		if err := c.Close(); err != nil {
			return err
		}
	}
	return nil
}

// serve executes commands one by one and writes a report for each. It sleeps while it has no work.
func (p *hostProc) serve(in *os.File, out *json.Encoder) error {
	fds := []unix.PollFd{{Fd: int32(p.it.EventFD()), Events: unix.POLLIN}, {Fd: int32(in.Fd()), Events: unix.POLLIN}}
	for dec := json.NewDecoder(in); ; {
		wait := 0
		if p.it.Progress() == 0 && p.it.Arm(uct.EventSendComp|uct.EventRecv) == nil {
			wait = -1
		}
		if _, err := unix.Poll(fds, wait); err != nil || fds[1].Revents == 0 {
			continue
		}
		var o hostCommand
		var r hostReport
		if dec.Decode(&o) != nil {
			return nil
		}
		if err := p.execute(&o, &r); err != nil {
			r.Err = err.Error()
		}
		if err := out.Encode(r); err != nil {
			return err
		}
	}
}

func (p *hostProc) execute(o *hostCommand, r *hostReport) error {
	switch o.Do {
	case "ep":
		ep, err := p.it.NewEP(uct.EPParams{})
		if err != nil {
			return err
		}
		e := ep.(*EP)
		p.eps = append(p.eps, e)
		r.Dev, r.Addr = p.it.DeviceAddr(nil), e.EPAddr(nil)
	case "connect":
		return p.eps[o.EP].Connect(o.Dev, o.Addr)
	case "send":
		err := p.eps[o.EP].AMShort(testAM, 0, []byte{o.Byte})
		for ; err == uct.ErrNoResource; err = p.eps[o.EP].AMShort(testAM, 0, []byte{o.Byte}) {
			p.it.Progress()
		}
		return err
	case "flush":
		return p.flush()
	case "got":
		r.Got, r.Failed = p.got, p.failed
	case "count":
		res, _ := p.it.MD().Context().Resources()
		r.QPs = res.QPs
		if n := p.it.node; n != nil {
			r.Initiators, r.Targets = n.all.live, n.targets()
		}
	default:
		return fmt.Errorf("unknown order %q", o.Do)
	}
	return nil
}

// flush waits until the device of the peer has acknowledged all posted work requests.
func (p *hostProc) flush() error {
	for {
		if pending, err := p.it.Flush(nil); !pending && err != uct.ErrNoResource {
			return err
		}
		p.it.Progress()
	}
}

// targets returns the QPNs of the targets that the iface refers to, without duplicates.
func (n *node) targets() (list []uint32) {
	seen := map[uint32]bool{}
	add := func(number uint32) {
		if !seen[number] {
			seen[number] = true
			list = append(list, number)
		}
	}
	for _, p := range n.paths {
		if p != nil && p.source != nil {
			add(p.source.Number())
		}
	}
	for _, in := range n.all.all() {
		if in.local != nil {
			add(in.local.Number())
		}
	}
	return list
}

// process is another process with an iface, controlled by the test.
type process struct {
	*testenv.Subprocess
	t       testing.TB
	enc     *json.Encoder
	reports chan hostReport
	eps     int
}

// startHost starts a process that uses the domain of a directory.
func startHost(t testing.TB, share, dir string) *process {
	t.Helper()
	p := &process{Subprocess: testenv.LaunchSubprocess(t, testenv.Self(hostEnv+"="+share, domainDirEnv+"="+dir)),
		t: t, reports: make(chan hostReport)}
	p.enc = json.NewEncoder(p.In)
	go func() {
		defer close(p.reports)
		for dec := json.NewDecoder(p.Out); ; {
			var r hostReport
			if dec.Decode(&r) != nil {
				return
			}
			p.reports <- r
		}
	}()
	t.Cleanup(func() {
		if p.ProcessState == nil {
			p.exit()
		}
	})
	return p
}

// do sends a command and progresses sides until the report arrives.
func (p *process) do(o hostCommand, sides ...*side) (r hostReport) {
	p.t.Helper()
	require.NoError(p.t, p.enc.Encode(o))
	until(p.t, func() bool {
		select {
		case got, ok := <-p.reports:
			require.True(p.t, ok, "the process has ended")
			r = got
			return true
		default:
			return false
		}
	}, sides...)
	require.Empty(p.t, r.Err, o.Do)
	return r
}

// kill kills the process and waits until it has exited.
func (p *process) kill() {
	p.t.Helper()
	require.NoError(p.t, p.Process.Kill())
	p.drain()
	p.Kill(p.t)
}

// exit makes the process close its iface and exit.
func (p *process) exit() {
	p.t.Helper()
	require.NoError(p.t, p.In.Close())
	p.drain()
	require.NoError(p.t, p.Wait())
}

// drain reads reports until the process has closed its output.
func (p *process) drain() {
	for range p.reports {
	}
}

// connectProcess connects a new EP of the process to a new EP of an iface of the test. It returns the number of the
// first and the second.
func connectProcess(p *process, s *side) (int, *EP) {
	p.t.Helper()
	x, err := s.it.NewEP(uct.EPParams{})
	require.NoError(p.t, err)
	e, r := x.(*EP), p.do(hostCommand{Do: "ep"}, s)
	require.NoError(p.t, e.Connect(r.Dev, r.Addr))
	p.do(hostCommand{Do: "connect", EP: p.eps, Dev: s.it.DeviceAddr(nil), Addr: e.EPAddr(nil)}, s)
	p.eps++
	return p.eps - 1, e
}

// connectProcesses connects new EPs of two processes, and returns their numbers.
func connectProcesses(p, q *process) (int, int) {
	p.t.Helper()
	rp, rq := p.do(hostCommand{Do: "ep"}), q.do(hostCommand{Do: "ep"})
	p.do(hostCommand{Do: "connect", EP: p.eps, Dev: rq.Dev, Addr: rq.Addr})
	q.do(hostCommand{Do: "connect", EP: q.eps, Dev: rp.Dev, Addr: rp.Addr})
	p.eps++
	q.eps++
	return p.eps - 1, q.eps - 1
}
