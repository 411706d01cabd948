// Package alive determines from TCP_INFO whether the host of a peer is alive.
//
// TCP_USER_TIMEOUT is not sufficient: it also fails a connection to a living host whose process has
// not read for that time, so that the window is closed (Linux, net/ipv4/tcp_timer.c:
// tcp_probe_timer). A process that computes for half a minute has not failed.
package alive

import (
	"time"

	"golang.org/x/sys/unix"
)

// maxSilent is the number of consecutive checks without a sign of the host after which it is dead.
// A process that was not scheduled makes one check when it continues, so time without checks does
// not count.
const maxSilent = 8

// minTimeout is the minimum time after which a host is dead. The kernel retransmits after 200 ms at
// the earliest, and then doubles the time.
const minTimeout = time.Second

// lostProbes is the number of consecutive unanswered probes of a closed window after which a check
// finds no sign of the host. A host does not reply to a probe within 500 ms after another one
// (net.ipv4.tcp_invalid_ratelimit), and one probe may be lost. A limit in time is not possible,
// because the interval of probes doubles up to two minutes.
const lostProbes = 3

// CheckInterval returns the time between two checks of a host that counts as dead after timeout; at
// least a second is used.
func CheckInterval(timeout time.Duration) time.Duration { return max(timeout, minTimeout) / maxSilent }

// State is the result of a check.
type State uint8

// States.
const (
	Idle    State = iota // the host has acknowledged everything: no further check is necessary
	Waiting              // bytes are not acknowledged, and the host may be alive
	Gone                 // bytes are not acknowledged, and the host is dead
)

// Peer is the state of the checks of one peer. The zero value is ready to use. One goroutine owns
// it.
type Peer struct {
	acked  uint64 // number of acknowledged bytes
	silent int    // number of consecutive checks without a sign of the host
	window bool   // this kernel reports the send window
}

// Check makes a check. A host is alive if it acknowledges data, or replies to probes of a closed
// window. Data from the host is no sign, because it does not show that our packets reach the host.
func (p *Peer) Check(i *unix.TCPInfo) State {
	acked := i.Bytes_acked != p.acked
	p.acked = i.Bytes_acked
	p.window = p.window || i.Snd_wnd != 0
	switch {
	case i.Unacked == 0 && i.Notsent_bytes == 0:
		p.silent = 0
		return Idle
	case acked || !p.unanswered(i):
		p.silent = 0
		return Waiting
	}
	p.silent++
	if p.silent < maxSilent {
		return Waiting
	}
	return Gone
}

// unanswered reports whether the kernel retransmits or probes without a reply. The kernel also
// retransmits data that a host with a closed window has dropped; in this case it fails the
// connection after minutes without a reply (tcp_rtx_probe0_timed_out).
func (p *Peer) unanswered(i *unix.TCPInfo) bool {
	if i.Unacked == 0 {
		return i.Probes >= lostProbes
	}
	closed := p.window && i.Snd_wnd == 0
	return i.Retransmits > 0 && !closed
}
