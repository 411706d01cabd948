package timing

import "math/bits"

// server serves one request at a time, in the order of booking. The zero value is idle.
type server struct {
	free Time // end of the last booking
	busy Time // in all
}

// book reserves the server for d, from time t or when it is free, and returns the end. Callers must
// book in the order of t.
func (s *server) book(t, d Time) (end Time) {
	s.free = max(t, s.free) + d
	s.busy += d
	return s.free
}

// returnTime shortens the last booking, which ends at end, so that it ends at now. If there is a
// later booking, it has no effect.
func (s *server) returnTime(end, now Time) {
	if s.free == end && now < end {
		s.busy -= end - now
		s.free = now
	}
}

// link is a server with a bandwidth.
type link struct {
	server
	bandwidth       int64 // bytes a second
	header, payload int64 // bytes of a packet
}

// send books n bytes, divided into packets; at least one packet, also for 0 bytes.
func (l *link) send(t Time, n int64) (end Time) { return l.book(t, l.duration(n)) }

// duration returns the time of n bytes with the headers of their packets.
func (l *link) duration(n int64) Time {
	packets := max(1, (n+l.payload-1)/l.payload)
	return l.span(n + packets*l.header)
}

// span returns the time of n bytes, rounded up to a picosecond.
func (l *link) span(n int64) Time {
	hi, lo := bits.Mul64(uint64(n), uint64(Second))
	q, r := bits.Div64(hi, lo, uint64(l.bandwidth)) // n < 2^32: far from overflow
	if r > 0 {
		q++
	}
	return Time(q)
}
