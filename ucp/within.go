package ucp

import (
	"errors"
	"time"
)

// One time limit determines how long the two sides of Dial and Listen try to connect, and how long they try one device
// before the next. The dialer proposes its WireupTimeout in HELLO, and the listener replies in ACCEPT with
// that time or with less. The dialer fails after that time. It tries each device for a part of the time, so that it can try
// all of them. The listener waits longer, for the connection and for each device, because the dialer
// reports when it stops. So neither side fails while the other one tries.

// connectShare is the time limit of a dialer to connect after the ACCEPT, as a multiple of HelloTimeout. A slow dialer
// can be evicted for others.
const connectShare = 8

// connectWithin returns the time limit for a dialer that proposes a time; 0 means that the dialer proposes no limit.
func (l *Listener) connectWithin(proposed time.Duration) time.Duration {
	within := connectShare * l.cfg.HelloTimeout
	for _, limit := range []time.Duration{proposed, l.w.ctx.cfg.wireupTimeout()} {
		if limit > 0 {
			within = min(within, limit)
		}
	}
	return wholeMillis(within)
}

// wholeMillis rounds a time up to milliseconds, the unit on the wire.
func wholeMillis(d time.Duration) time.Duration {
	return (d + time.Millisecond - 1).Truncate(time.Millisecond)
}

// attemptWithin returns how long a dialer tries each path. If there are several, the same time remains for the
// handshake after all of them were tried.
func attemptWithin(within time.Duration, paths int) time.Duration {
	if paths == 1 {
		return within
	}
	return within / time.Duration(paths+1)
}

// errLate is the cause of a context that is canceled because an EP has not connected in time.
var errLate = errors.New("the endpoint has not connected within the time that both sides have agreed on" +
	" (HelloTimeout of the listener, GUCX_WIREUP_TIMEOUT)")
