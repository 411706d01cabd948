package layer

import "fmt"

// pingWindow is the Window of the puts in a ping-pong, which are never flushed. A layer that
// signals completions itself signals one put of each window.
const pingWindow = 64

// ping is one side of a ping-pong of puts: it writes to the memory of the other side and polls its
// own. The first and the last byte of each put are its number: when both have arrived, the put is
// complete, whatever the order of the copy.
type ping struct {
	Op  // posts the put
	out []byte
	in  watch
	seq uint64
}

// NewPing returns the initiator's side of a ping-pong, with puts of c.
func NewPing(c Conn, s Spec) (Op, error) {
	p, err := newPing(c, s)
	if err != nil {
		return nil, err
	}
	return p, nil
}

func newPing(c Conn, s Spec) (*ping, error) {
	n := s.Size
	s.Kind, s.Window = Put, pingWindow
	put, err := c.Op(s)
	if err != nil {
		return nil, err
	}
	in, err := newWatch(c.Memory(), n)
	if err != nil {
		return nil, err
	}
	return &ping{Op: put, out: c.Local()[:n], in: in}, nil
}

// Post sends the next number.
func (p *ping) Post() error {
	p.seq++
	Stamp(p.out, byte(p.seq))
	return p.Op.Post()
}

// Flush waits for the same number from the other side.
func (p *ping) Flush() error {
	for !p.in.shows(byte(p.seq)) {
		if err := p.Op.Poll(); err != nil {
			return err
		}
	}
	return nil
}

// Variant returns the variant of the puts.
func (p *ping) Variant() Variant {
	if v, ok := p.Op.(Varied); ok {
		return v.Variant()
	}
	return Auto
}

// pong is the target's side.
type pong struct{ *ping }

// NewPong returns the target's side of a ping-pong, with puts of c.
func NewPong(c Conn, s Spec) (Part, error) {
	p, err := newPing(c, s)
	if err != nil {
		return nil, err
	}
	return pong{p}, nil
}

// Progress replies to the next put, if it has arrived.
func (p pong) Progress() (int, error) {
	if p.in.shows(byte(p.seq + 1)) {
		return 1, p.Post()
	}
	return 0, p.Poll()
}

// Finish returns the number of replies.
func (p pong) Finish() (uint64, error) { return p.seq, nil }

// Stamp writes v to the first and the last byte of b.
func Stamp(b []byte, v byte) { b[0], b[len(b)-1] = v, v }

// CheckStamp returns an error if one of both bytes is not v.
func CheckStamp(b []byte, v byte) error {
	for _, i := range []int{0, len(b) - 1} {
		if b[i] != v {
			return fmt.Errorf("byte %d of %d, a sequence number, is %#02x, want %#02x", i, len(b), b[i], v)
		}
	}
	return nil
}
