package playback

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"sync"
	"testing/fstest"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/offheap"
	"github.com/gucx/gucx/internal/uverbs"
)

// Player is a kernel with one device, which replies to calls from a record.
type Player struct {
	info uverbs.Info

	mu      sync.Mutex
	lines   []string
	line    int
	errs    []error
	writers []int // write descriptors of the pipes that replace descriptors of the kernel
	maps    []*offheap.Block
}

// NewPlayer returns a kernel with the device info, which replies to the calls in text, a record.
func NewPlayer(info uverbs.Info, text string) *Player {
	return &Player{info: info, lines: strings.Split(strings.TrimSpace(text), "\n")}
}

// Sys implements uverbs.Kernel.
func (p *Player) Sys() fs.FS {
	node := p.info.Path[strings.LastIndex(p.info.Path, "/")+1:]
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s + "\n")} }
	dir := "class/infiniband_verbs/"
	return fstest.MapFS{
		dir + "abi_version":                           file("6"),
		dir + node + "/ibdev":                         file(p.info.Name),
		dir + node + "/abi_version":                   file(strconv.Itoa(p.info.ABI)),
		"class/infiniband/" + p.info.Name + "/parent": file(p.info.NetDev),
	}
}

// Err returns all differences from the record, or nil.
func (p *Player) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return errors.Join(p.errs...)
}

// Left returns the number of calls in the record that were not made.
func (p *Player) Left() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.lines) - p.line
}

// Mapped returns the memory of the mappings, in the order of the calls.
func (p *Player) Mapped() [][]byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list [][]byte
	for _, b := range p.maps {
		list = append(list, b.Bytes())
	}
	return list
}

// next returns the rest of the next line of the record after want, which must be its prefix.
func (p *Player) next(want string) (rest string, err error) {
	if p.line == len(p.lines) {
		return "", p.differ("%s: the record has ended", want)
	}
	line := p.lines[p.line]
	p.line++
	rest, ok := strings.CutPrefix(line, want)
	if !ok {
		return "", p.differ("%s: the record has: %s", want, line)
	}
	return rest, nil
}

// differ records a difference for Err and returns EPROTO, the error of the call.
func (p *Player) differ(format string, args ...any) error {
	p.errs = append(p.errs, fmt.Errorf("call %d: "+format, append([]any{p.line}, args...)...))
	return unix.EPROTO
}

// Open implements uverbs.Kernel.
func (p *Player) Open(string) (uverbs.File, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := p.next("open"); err != nil {
		return nil, err
	}
	return (*playedFile)(p), nil
}

type playedFile Player

// Ioctl implements uverbs.File.
func (f *playedFile) Ioctl(m uverbs.Method, d uverbs.Driver, attrs []uverbs.Attr) error {
	p := (*Player)(f)
	p.mu.Lock()
	defer p.mu.Unlock()
	rest, err := p.next(call(m, d))
	if err != nil {
		return err
	}
	parts := strings.Split(rest, " | ")
	number := errnoOf(parts[0])
	if len(parts)-1 != len(attrs) {
		return p.differ("%v: %d attributes, the record has %d", m, len(attrs), len(parts)-1)
	}
	makesChannel := commandOf(m, attrs) == uverbs.CmdCompChannel
	for i, part := range parts[1:] {
		if err := p.reply(m, &attrs[i], part, makesChannel); err != nil {
			return err
		}
	}
	if number != 0 {
		return number
	}
	return nil
}

// commandOf returns the command that MethodInvokeWrite invokes.
func commandOf(m uverbs.Method, attrs []uverbs.Attr) uverbs.CommandNumber {
	if m == uverbs.MethodInvokeWrite && len(attrs) > 1 {
		return uverbs.CommandNumber(attrs[1].Value)
	}
	return 0
}

// reply compares an attribute with the record and stores the recorded result in it. A pipe replaces each descriptor.
func (p *Player) reply(m uverbs.Method, a *uverbs.Attr, recorded string, makesChannel bool) error {
	given := describe(a)
	words := strings.Fields(recorded)
	switch {
	case a.Kind == uverbs.AttrObject && m == uverbs.MethodAsyncEvents:
		fd, err := p.pipe()
		a.Value = uint64(fd)
		return err
	case a.Kind == uverbs.AttrObject && m == uverbs.MethodCreateCQ && a.ID == 3: // the channel
		return nil
	case a.Kind == uverbs.AttrIn && len(a.Data) == regMRLen:
		return nil
	case !strings.HasPrefix(recorded, given):
		return p.differ("%v: %s, the record has %s", m, given, recorded)
	}
	switch a.Kind {
	case uverbs.AttrObject:
		v, err := strconv.ParseUint(words[len(words)-1], 10, 64)
		a.Value = v
		return err
	case uverbs.AttrOut:
		data, err := hex.DecodeString(words[len(words)-1])
		if err != nil || len(data) != len(a.Data) {
			return p.differ("%v: attribute %d of %d bytes, the record has %s", m, a.ID, len(a.Data), recorded)
		}
		copy(a.Data, data)
		if makesChannel {
			fd, err := p.pipe()
			copy(a.Data, uverbs.BytesOf(&uverbs.HandleReply{Handle: uint32(fd)}))
			return err
		}
	}
	return nil
}

// regMRLen is the length of struct ib_uverbs_reg_mr, the only struct that contains addresses of the process.
const regMRLen = 40

// pipe returns the read descriptor of a new pipe, which the caller must close.
func (p *Player) pipe() (int, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return -1, err
	}
	p.writers = append(p.writers, fds[1])
	return fds[0], nil
}

// Raise writes an event to the n-th descriptor that the player has returned.
func (p *Player) Raise(n int, event []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := unix.Write(p.writers[n], event)
	return err
}

func errnoOf(s string) unix.Errno {
	var n int
	_, _ = fmt.Sscanf(strings.TrimSpace(s), "errno %d", &n)
	return unix.Errno(n)
}

// Write implements uverbs.File. The address of the reply, after the header, differs in each run.
func (f *playedFile) Write(command []byte, _ bool) error {
	p := (*Player)(f)
	p.mu.Lock()
	defer p.mu.Unlock()
	rest, err := p.next("write")
	if err != nil {
		return err
	}
	words := strings.Fields(rest)
	data, err := hex.DecodeString(words[len(words)-1])
	if err != nil || len(data) != len(command) || string(data[:8]) != string(command[:8]) ||
		len(data) >= 16 && string(data[16:]) != string(command[16:]) {
		return p.differ("write %x, the record has %s", command, rest)
	}
	if e := errnoOf(rest); e != 0 {
		return e
	}
	return nil
}

// Map implements uverbs.File.
func (f *playedFile) Map(_ int64, n int) ([]byte, error) {
	p := (*Player)(f)
	p.mu.Lock()
	defer p.mu.Unlock()
	rest, err := p.next("map")
	if err != nil {
		return nil, err
	}
	words := strings.Fields(rest)
	if e := errnoOf(rest); e != 0 {
		return nil, e
	}
	header, err := hex.DecodeString(words[len(words)-1])
	if err != nil || fmt.Sprint(n) != words[3] {
		return nil, p.differ("map %d bytes, the record has %s", n, rest)
	}
	b, err := offheap.Alloc(n)
	if err != nil {
		return nil, unix.ENOMEM
	}
	copy(b.Bytes(), header)
	p.maps = append(p.maps, b)
	return b.Bytes(), nil
}

// Unmap implements uverbs.File. The memory is freed by Close.
func (*playedFile) Unmap([]byte) error { return nil }

// Close implements uverbs.File.
func (f *playedFile) Close() error {
	p := (*Player)(f)
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, fd := range p.writers {
		errs = append(errs, unix.Close(fd))
	}
	for _, b := range p.maps {
		errs = append(errs, b.Free())
	}
	p.writers, p.maps = nil, nil
	return errors.Join(errs...)
}
