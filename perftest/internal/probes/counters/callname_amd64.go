package counters

import "golang.org/x/sys/unix"

// Newer architectures lack these.
func init() {
	callNames[unix.SYS_POLL] = "poll"
	callNames[unix.SYS_EPOLL_WAIT] = "epoll_wait"
}
