// Package alive tells from TCP_INFO whether the host at the other end of a connection is there.
//
// TCP_USER_TIMEOUT does not: it also ends a connection to a host that answers, when the process
// there has read nothing for so long and the window is closed (Linux, net/ipv4/tcp_timer.c:
// tcp_probe_timer). A process that computes for half a minute is no failure.
package alive

import (
	"time"

	"golang.org/x/sys/unix"
)

// looks in a row without a sign of the host, after which it is gone. A process that stood still
// looks once when it goes on, so that time in which it did not look does not count.
const looks = 8

// shortest time after which a host is missed: the kernel sends again after 200 ms at the earliest,
// and then after twice as long each time.
const shortest = time.Second

// lostProbes of a closed window in a row are no accident. One is not answered if it comes within
// 500 ms of another (net.ipv4.tcp_invalid_ratelimit), and one may be lost. The time between them
// doubles up to two minutes, so no time tells.
const lostProbes = 3

// Every is the time between two looks for a host that is to be missed after limit, or a second
// if limit is less.
func Every(limit time.Duration) time.Duration { return max(limit, shortest) / looks }

// State is what a look finds.
type State uint8

// States.
const (
	Idle    State = iota // the host has acknowledged everything: there is nothing to wait for
	Waiting              // something is under way, and the host is there as far as is known
	Gone                 // something is under way, and for a number of looks the host gave no sign
)

// Peer is what earlier looks have found. The zero value is ready to use. It belongs to one
// goroutine.
type Peer struct {
	acked  uint64 // bytes
	silent int    // looks in a row
	window bool   // this kernel tells the window
}

// Look takes a look. A host shows that it is there by acknowledging data, or by answering the
// probes of a sender whose window is closed. That it sends data of its own shows nothing about
// the way to it.
func (p *Peer) Look(i *unix.TCPInfo) State {
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
	if p.silent < looks {
		return Waiting
	}
	return Gone
}

// unanswered reports whether the kernel sends again and again. It also does so with data that a
// host whose window is closed has dropped; by itself it gives that up after minutes without an
// answer (tcp_rtx_probe0_timed_out).
func (p *Peer) unanswered(i *unix.TCPInfo) bool {
	if i.Unacked == 0 {
		return i.Probes >= lostProbes
	}
	closed := p.window && i.Snd_wnd == 0
	return i.Retransmits > 0 && !closed
}
