package attach

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// sharedPipe is the write end of a peer's pipe, opened anew. All links of this process to the owner of
// the pipe share it, whichever side has dialed.
type sharedPipe struct {
	fd    int
	id    pipeID
	links int // under pipes.mu
}

// pipeID identifies a pipe as long as it is open in some process: st_dev and st_ino of stat(2).
type pipeID struct{ dev, ino uint64 }

// pipes has the shared pipes of this process.
var pipes struct {
	mu sync.Mutex
	by map[pipeID]*sharedPipe
}

// sharePipe returns the shared descriptor of the pipe that fd, which a peer has sent, refers to. Close it once.
func sharePipe(fd int) (*sharedPipe, error) {
	if err := checkPipe(fd); err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, os.NewSyscallError("fstat", err)
	}
	id := pipeID{dev: uint64(st.Dev), ino: st.Ino}
	pipes.mu.Lock()
	defer pipes.mu.Unlock()
	p := pipes.by[id]
	if p == nil {
		own, err := reopen(fd)
		if err != nil {
			return nil, err
		}
		p = &sharedPipe{fd: own, id: id}
		if pipes.by == nil {
			pipes.by = map[pipeID]*sharedPipe{}
		}
		pipes.by[id] = p
	}
	p.links++
	return p, nil
}

// close closes the descriptor if no other link has it. p may be nil.
func (p *sharedPipe) close() error {
	if p == nil {
		return nil
	}
	pipes.mu.Lock()
	defer pipes.mu.Unlock()
	if p.links--; p.links > 0 {
		return nil
	}
	delete(pipes.by, p.id)
	return os.NewSyscallError("close pipe", unix.Close(p.fd))
}
