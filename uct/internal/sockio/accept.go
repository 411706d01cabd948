package sockio

import "golang.org/x/sys/unix"

// Accept accepts a connection from the queue of a nonblocking listener. EAGAIN if the queue is empty, also if the
// process is out of descriptors: the kernel allocates the descriptor before it checks the queue, so its error does not
// mean that a peer waits.
func Accept(listener int) (fd int, from unix.Sockaddr, err error) {
	fd, from, err = unix.Accept4(listener, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
	if OutOfResources(err) && !hasWaitingPeer(listener) {
		err = unix.EAGAIN
	}
	return fd, from, err
}

// OutOfResources reports whether accept failed because the process or the host has no descriptors or memory left.
func OutOfResources(err error) bool {
	switch err {
	case unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM:
		return true
	}
	return false
}

// hasWaitingPeer reports whether the queue of a listener is not empty, as far as the kernel can tell.
func hasWaitingPeer(listener int) bool {
	fds := []unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return n > 0 || err != nil
}
