package tunnel

import (
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/internal/alive"
)

// watch ends a tunnel when the host of the peer is dead.
type watch struct {
	t     *Tunnel
	sock  *net.TCPConn
	every time.Duration

	mu    sync.Mutex
	peer  alive.Peer
	timer *time.Timer
	over  bool
}

// watchPeer checks the host of the peer periodically until stop is called.
func (t *Tunnel) watchPeer(sock *net.TCPConn) (stop func()) {
	w := &watch{t: t, sock: sock, every: alive.CheckInterval(t.silence)}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(w.every, w.check)
	return w.stop
}

func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	w.timer.Stop()
}

// check is called by the timer.
func (w *watch) check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return
	}
	if w.state() == alive.Gone {
		w.t.end(fmt.Errorf("%w: the peer's host has acknowledged nothing for %v", ucs.ErrTimedOut, w.t.silence))
		_ = w.sock.SetDeadline(time.Now())
		return
	}
	w.timer.Reset(w.every)
}

func (w *watch) state() (s alive.State) {
	raw, err := w.sock.SyscallConn()
	if err != nil {
		return alive.Idle // the socket is closed
	}
	_ = raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			s = w.peer.Check(info)
		}
	})
	return s
}
