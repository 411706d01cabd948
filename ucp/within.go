package ucp

import (
	"errors"
	"time"
)

// How long the two sides of Dial and Listen try to connect, and how long they try one device before the next,
// comes from one time: the dialer proposes its WireupTimeout in HELLO, and the listener answers in ACCEPT with
// that or with less. The dialer gives up after that time, and one device after a part of it, so that it has tried
// all of them by then. The listener waits longer, for the connection as a whole and for each device: the dialer
// says when it has given up. So neither side gives up while the other one tries.

// connectShare is how often HelloTimeout a listener lets a dialer take to connect when it has an ACCEPT. Dialers
// that take long lose their place to others.
const connectShare = 8

// connectWithin is how long a dialer may take to connect that proposes a time; 0 if it would take any.
func (l *Listener) connectWithin(proposed time.Duration) time.Duration {
	within := connectShare * l.cfg.HelloTimeout
	for _, limit := range []time.Duration{proposed, l.w.ctx.cfg.wireupTimeout()} {
		if limit > 0 {
			within = min(within, limit)
		}
	}
	return wholeMillis(within)
}

// wholeMillis rounds a time up to the milliseconds that are sent.
func wholeMillis(d time.Duration) time.Duration {
	return (d + time.Millisecond - 1).Truncate(time.Millisecond)
}

// attemptWithin is how long a dialer tries each of some paths. If there are several, as much is left for the
// handshake when all of them have been tried.
func attemptWithin(within time.Duration, paths int) time.Duration {
	if paths == 1 {
		return within
	}
	return within / time.Duration(paths+1)
}

// errLate is the cause of a context that ends when an EP has not connected in time.
var errLate = errors.New("the endpoint has not connected within the time that both sides have agreed on" +
	" (HelloTimeout of the listener, GUCX_WIREUP_TIMEOUT)")
