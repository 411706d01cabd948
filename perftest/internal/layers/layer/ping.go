package layer

import "fmt"

// pingWindow is the Window of the puts in a ping-pong, which are never flushed: how
// often a layer that signals completions itself asks for one.
const pingWindow = 64

// ping is one side of a ping-pong of puts: it writes to the other's memory and
// watches its own. First and last byte of each put are its number, so that it is
// seen whole, whichever end a copy begins with.
type ping struct {
	Op  // the put
	out []byte
	in  watch
	seq uint64
}

// NewPing makes the initiator's side of a ping-pong, of puts of c.
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

// Variant is that of the puts.
func (p *ping) Variant() Variant {
	if v, ok := p.Op.(Varied); ok {
		return v.Variant()
	}
	return Auto
}

// pong is the target's side.
type pong struct{ *ping }

// NewPong makes the target's side of a ping-pong, of puts of c.
func NewPong(c Conn, s Spec) (Part, error) {
	p, err := newPing(c, s)
	if err != nil {
		return nil, err
	}
	return pong{p}, nil
}

// Progress answers the next put if it is there.
func (p pong) Progress() (int, error) {
	if p.in.shows(byte(p.seq + 1)) {
		return 1, p.Post()
	}
	return 0, p.Poll()
}

// Finish returns the number of answers.
func (p pong) Finish() (uint64, error) { return p.seq, nil }

// Stamp writes v over the first and the last byte of b.
func Stamp(b []byte, v byte) { b[0], b[len(b)-1] = v, v }

// CheckStamp says which of both bytes is not v.
func CheckStamp(b []byte, v byte) error {
	for _, i := range []int{0, len(b) - 1} {
		if b[i] != v {
			return fmt.Errorf("byte %d of %d, a sequence number, is %#02x, want %#02x", i, len(b), b[i], v)
		}
	}
	return nil
}
