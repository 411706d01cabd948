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

// Group is whose events are counted together. A thread is in the first that fits.
type Group int

// Groups.
const (
	Caller Group = iota // one thread
	Rest                // the other threads of a process
	Peer                // all threads of another process
	Groups
)

// Event is what is counted besides system calls.
type Event int

// Events.
const (
	Switches  Event = iota // from the thread to another one
	Faults                 // page faults
	Transmits              // packets handed to a network device
	Receives               // packets that a device handed up, while the thread ran
	Events
)

const (
	// maxCalls is the length of the table by system call number. Architectures that
	// Go has end below it; what lies beyond counts as the last.
	maxCalls = 512
	// stride is the number of counts of a group.
	stride = maxCalls + int(Events)
)

// Watch says whom to count; 0 is nobody.
type Watch struct {
	Thread  int // a thread id: group Caller
	Process int // a process id: group Rest
	Peer    int // a process id: group Peer
}

// Counts are those of one group.
type Counts struct {
	Calls  [maxCalls]uint64 // by system call number
	Events [Events]uint64
}

// Probe is a set of attached programs. One goroutine at a time.
type Probe struct {
	gate    *ebpf.Map
	counts  *ebpf.Map
	watched []byte // the value in gate, mapped
	links   []link.Link
	missing []string
}

// Open loads the programs and attaches them; nothing is counted yet. It fails without
// the rights (EPERM), and where the kernel has no such programs, or is too old for them
// (errors.ErrUnsupported). Close it.
func Open() (_ *Probe, err error) {
	p := &Probe{}
	defer func() {
		if errors.Is(err, ebpf.ErrNotSupported) { // which does not say so by itself
			err = fmt.Errorf("%w: %w", errors.ErrUnsupported, err)
		}
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	// It does nothing since Linux 5.11. Where it fails, making the maps says why.
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

// attach loads the program of an event and links it to its tracepoint, which the
// kernel may lack.
func (p *Probe) attach(name string, event int, ns namespace) error {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "gucx_count", Type: ebpf.RawTracepoint,
		License: licence, Instructions: program(event, ns, p.gate, p.counts)})
	if err != nil {
		return fmt.Errorf("program of %s: %w", name, err)
	}
	defer prog.Close() // the link holds it
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

// Has reports whether an event is counted: the kernel has a tracepoint of it.
func (p *Probe) Has(e Event) bool {
	for _, tp := range tracepoints {
		if tp.event == int(e) && !slices.Contains(p.missing, tp.name) {
			return true
		}
	}
	return false
}

// Start begins to count. It makes no system call.
func (p *Probe) Start(w Watch) {
	binary.NativeEndian.PutUint32(p.watched[4:], uint32(w.Process))
	binary.NativeEndian.PutUint32(p.watched[8:], uint32(w.Peer))
	binary.NativeEndian.PutUint32(p.watched[0:], uint32(w.Thread))
}

// Stop ends it. It makes no system call.
func (p *Probe) Stop() { clear(p.watched[:gateLen]) }

// Read returns what was counted since Open.
func (p *Probe) Read() (all [Groups]Counts, err error) {
	var values []uint64 // by processor
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

// at is the count at an index within a group.
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

// Close detaches the programs; the kernel drops them and the maps. Idempotent.
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
