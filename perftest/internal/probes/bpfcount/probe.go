package bpfcount

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"
)

// Group is a class of threads whose events are counted together. A thread belongs to the first
// group that matches.
type Group int

// Groups.
const (
	Caller Group = iota // one thread
	Rest                // the other threads of a process
	Peer                // all threads of another process
	Groups
)

// Event is a counted event other than a system call.
type Event int

// Events.
const (
	Switches  Event = iota // from the thread to another one
	Faults                 // page faults
	Transmits              // packets passed to a network device
	Receives               // packets received from a device while the thread ran
	Events
)

const (
	// maxCalls is the length of the table of system call numbers. All architectures of Go have
	// fewer; higher numbers count as the last one.
	maxCalls = 512
	// stride is the number of counters of a group.
	stride = maxCalls + int(Events)
)

// Watch selects the counted threads; 0 means none.
type Watch struct {
	Thread  int // thread id: group Caller
	Process int // process id: group Rest
	Peer    int // process id: group Peer
}

// Counts are the counts of one group.
type Counts struct {
	Calls  [maxCalls]uint64 // by system call number
	Events [Events]uint64
}

// Probe is a set of attached programs. One goroutine at a time.
type Probe struct {
	gate    *ebpf.Map
	counts  *ebpf.Map
	watched []byte // value of gate, mapped
	links   []link.Link
	missing []string
}

// Open loads the programs and attaches them. Counting begins with Start. It fails without the
// privileges (EPERM), and on a kernel that does not support such programs or is too old
// (errors.ErrUnsupported). The caller must call Close.
func Open() (_ *Probe, err error) {
	p := &Probe{}
	defer func() {
		if errors.Is(err, ebpf.ErrNotSupported) { // the error of the kernel does not say so
			err = fmt.Errorf("%w: %w", errors.ErrUnsupported, err)
		}
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	// It has no effect since Linux 5.11. If it fails, the creation of the maps reports the error.
	_ = rlimit.RemoveMemlock()
	if err := p.makeMaps(); err != nil {
		return nil, err
	}
	ns, err := ownNamespace()
	if err != nil {
		return nil, err
	}
	for _, tp := range tracepoints {
		if err := p.attach(tp.name, tp.event, ns); err != nil {
			return nil, err
		}
	}
	if slices.Contains(p.missing, tracepoints[0].name) {
		return nil, fmt.Errorf("tracepoint %s: %w", tracepoints[0].name, errors.ErrUnsupported)
	}
	return p, nil
}

func (p *Probe) makeMaps() (err error) {
	p.gate, err = ebpf.NewMap(&ebpf.MapSpec{Name: "gucx_gate", Type: ebpf.Array,
		KeySize: 4, ValueSize: gateLen, MaxEntries: 1, Flags: unix.BPF_F_MMAPABLE})
	if err != nil {
		return fmt.Errorf("gate: %w", err)
	}
	p.counts, err = ebpf.NewMap(&ebpf.MapSpec{Name: "gucx_counts", Type: ebpf.PerCPUArray,
		KeySize: 4, ValueSize: 8, MaxEntries: uint32(int(Groups) * stride)})
	if err != nil {
		return fmt.Errorf("counts: %w", err)
	}
	p.watched, err = unix.Mmap(p.gate.FD(), 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return os.NewSyscallError("mmap", err)
}

// attach loads the program of an event and links it to its tracepoint. The kernel may lack the
// tracepoint.
func (p *Probe) attach(name string, event int, ns namespace) error {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "gucx_count", Type: ebpf.RawTracepoint,
		License: licence, Instructions: program(event, ns, p.gate, p.counts)})
	if err != nil {
		return fmt.Errorf("program of %s: %w", name, err)
	}
	defer prog.Close() // the link references it
	l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: name, Program: prog})
	if errors.Is(err, os.ErrNotExist) {
		p.missing = append(p.missing, name)
		return nil
	}
	if err != nil {
		return fmt.Errorf("tracepoint %s: %w", name, err)
	}
	p.links = append(p.links, l)
	return nil
}

// Has reports whether an event is counted: whether the kernel has its tracepoint.
func (p *Probe) Has(e Event) bool {
	for _, tp := range tracepoints {
		if tp.event == int(e) && !slices.Contains(p.missing, tp.name) {
			return true
		}
	}
	return false
}

// Start starts counting. It makes no system call.
func (p *Probe) Start(w Watch) {
	binary.NativeEndian.PutUint32(p.watched[4:], uint32(w.Process))
	binary.NativeEndian.PutUint32(p.watched[8:], uint32(w.Peer))
	binary.NativeEndian.PutUint32(p.watched[0:], uint32(w.Thread))
}

// Stop stops counting. It makes no system call.
func (p *Probe) Stop() { clear(p.watched[:gateLen]) }

// Read returns the counts since Open.
func (p *Probe) Read() (all [Groups]Counts, err error) {
	var values []uint64 // by CPU
	for g := range all {
		for i := range stride {
			if err := p.counts.Lookup(uint32(g*stride+i), &values); err != nil {
				return all, fmt.Errorf("counts: %w", err)
			}
			*all[g].at(i) = sum(values)
		}
	}
	return all, nil
}

// at returns the count at an index within a group.
func (c *Counts) at(i int) *uint64 {
	if i < maxCalls {
		return &c.Calls[i]
	}
	return &c.Events[i-maxCalls]
}

func sum(values []uint64) (n uint64) {
	for _, v := range values {
		n += v
	}
	return n
}

// Close detaches the programs; the kernel then frees programs and maps. Idempotent.
func (p *Probe) Close() error {
	var errs []error
	for _, l := range p.links {
		errs = append(errs, l.Close())
	}
	p.links = nil
	if p.watched != nil {
		errs = append(errs, os.NewSyscallError("munmap", unix.Munmap(p.watched)))
		p.watched = nil
	}
	for _, m := range []*ebpf.Map{p.gate, p.counts} {
		errs = append(errs, m.Close()) // nil is fine
	}
	return errors.Join(errs...)
}
