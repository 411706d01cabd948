package uverbs

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/offheap"
	"github.com/gucx/gucx/ucs"
)

// Command is a command of the write ABI that is prepared once and run often. Run passes it to the kernel with write, which
// costs less than an ioctl and does not allocate. The kernel rejects a write (EACCES) if the process has changed its
// credentials since it opened the device. Run then uses the ioctl, also in all later calls. Several goroutines may call
// Run.
type Command struct {
	ctx     *Context
	number  CommandNumber
	cell    []byte
	written []byte // header and struct
	body    []byte // the struct
	reply   []byte // nil if there is none
	byIoctl atomic.Bool
}

// responseLen is the length in bytes of the address of the reply, the first field of the struct of a command with reply.
const responseLen = 8

// commandHeaderLen is the length of struct ib_uverbs_cmd_hdr.
const commandHeaderLen = 8

// NewCommand prepares a command. body is its struct. If replyLen is not 0, the first field of body is the address of the
// reply, which NewCommand sets. The caller must free the command with Free. Error: ErrTooLong if the command does not fit
// into a cell.
func (c *Context) NewCommand(number CommandNumber, body []byte, replyLen int) (*Command, error) {
	n := commandHeaderLen + len(body)
	if n+replyLen > cellLen {
		return nil, fmt.Errorf("%v: %d bytes: %w", number, n+replyLen, ucs.ErrTooLong)
	}
	cell, err := c.cells.get()
	if err != nil {
		return nil, newError(c.Name, number.String(), unix.ENOMEM)
	}
	cmd := &Command{ctx: c, number: number, cell: cell, written: cell[:n], body: cell[commandHeaderLen:n]}
	copy(cell, BytesOf(&commandHeader{Number: uint32(number), InWords: uint16(n / 4), OutWords: uint16(replyLen / 4)}))
	copy(cmd.body, body)
	if replyLen > 0 {
		cmd.reply = cell[n : n+replyLen]
		response := addressOf(cmd.reply)
		copy(cmd.body[:responseLen], BytesOf(&response))
	}
	return cmd, nil
}

// Run runs the command. Set brief if the kernel executes the command in less than about a millisecond: the goroutine
// then keeps its P during the call, and the Go runtime cannot stop the world until the call returns. Without brief, the
// runtime's monitor (sysmon) takes the P from calls longer than 20 us if GOMAXPROCS is 1, as in a process bound to one
// CPU. As long as it does so, sysmon wakes up every 20 us and delays the goroutine that polls on the same CPU.
func (cmd *Command) Run(brief bool) error {
	if !cmd.byIoctl.Load() {
		err := cmd.ctx.file.Write(cmd.written, brief)
		if err == nil {
			return nil
		}
		if err != unix.EACCES {
			return newError(cmd.ctx.Name, cmd.number.String(), err)
		}
		cmd.byIoctl.Store(true)
	}
	var reply []byte
	if cmd.reply != nil {
		reply = make([]byte, len(cmd.reply))
	}
	return cmd.ctx.Invoke(cmd.number, cmd.body, reply)
}

// Free frees the memory of the command. The caller must not call Run afterwards. cmd may be nil.
func (cmd *Command) Free() {
	if cmd != nil {
		cmd.ctx.cells.put(cmd.cell)
	}
}

// Lengths of the memory of commands, in bytes.
const (
	cellLen  = 64
	cellPage = 4096
)

// cellPool allocates cells of memory outside the Go heap for commands.
type cellPool struct {
	mu     sync.Mutex
	blocks []*offheap.Block
	free   [][]byte
}

// get returns a zeroed cell.
func (p *cellPool) get() ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) == 0 {
		b, err := offheap.Alloc(cellPage)
		if err != nil {
			return nil, err
		}
		p.blocks = append(p.blocks, b)
		for mem := b.Bytes(); len(mem) >= cellLen; mem = mem[cellLen:] {
			p.free = append(p.free, mem[:cellLen:cellLen])
		}
	}
	last := len(p.free) - 1
	cell := p.free[last]
	p.free = p.free[:last]
	clear(cell)
	return cell, nil
}

func (p *cellPool) put(cell []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, cell)
}

// close frees all cells.
func (p *cellPool) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, b := range p.blocks {
		errs = append(errs, b.Free())
	}
	p.blocks, p.free = nil, nil
	return errors.Join(errs...)
}
