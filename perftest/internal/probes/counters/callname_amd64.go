package counters

import "golang.org/x/sys/unix"

// Newer architectures do without these.
func init() {
	callNames[unix.SYS_POLL] = "poll"
	callNames[unix.SYS_EPOLL_WAIT] = "epoll_wait"
}
