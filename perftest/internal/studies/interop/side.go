package interop

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/gucx/gucx/ucp/ucxpeer"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// Tags of the messages and id of the active messages, in both programs.
const (
	tagData = 1
	tagDone = 2
	amID    = 1

	allBits = ^uint64(0)
)

// side is the program with gucx.
type side struct {
	w               *ucxpeer.Worker
	ep              *ucxpeer.EP
	key             *ucxpeer.RKey
	raddr           uint64
	in, out, window []byte
	slots           []*ucxpeer.Request

	// Active messages: the first one of the other side may arrive before this side starts to serve.
	arrived, received int
	fetch             *ucxpeer.Request // of the last one, by rendezvous
	failed            error            // in a handler
}

// Serve is a side of a measurement with gucx: it executes commands until the end of in. narrow: UCX on the other side
// uses the narrow form of loopback addresses.
func Serve(ctx context.Context, in io.Reader, out io.Writer, version string, narrow bool) (err error) {
	var cfg ucxpeer.Config
	if narrow {
		cfg.TCP.LoopbackAddr = "narrow"
	}
	s := &side{}
	if s.w, err = ucxpeer.NewWorker(cfg); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.w.Close()) }()
	s.w.OnActive(amID, s.onActive)
	lines := make(chan string, 1) // Signal follows a send, so Until finds the line
	go func() {
		defer s.w.Signal()
		defer close(lines)
		for scan := bufio.NewScanner(in); scan.Scan(); {
			select {
			case lines <- scan.Text():
				s.w.Signal()
			case <-ctx.Done():
				return
			}
		}
	}()
	if _, err := fmt.Fprintln(out, "ok gucx", version); err != nil {
		return err
	}
	for {
		line, open := "", false
		err := s.w.Until(ctx, func() bool {
			select {
			case line, open = <-lines:
				return true
			default:
				return false
			}
		})
		if err != nil || !open {
			return err
		}
		result, err := s.execute(strings.Fields(line))
		if err != nil {
			_, _ = fmt.Fprintln(out, "failed:", strings.ReplaceAll(err.Error(), "\n", "; ")) // err is more useful than an error of out
			return err
		}
		if _, err := fmt.Fprintln(out, strings.TrimSpace("ok "+result)); err != nil {
			return err
		}
	}
}

// errCommand is the error of a line that is no command.
var errCommand = fmt.Errorf("%w: not a command of this protocol", ucs.ErrInvalidParam)

// execute executes a command and returns its result.
func (s *side) execute(words []string) (string, error) {
	switch {
	case len(words) == 1 && words[0] == "address":
		return hex.EncodeToString(s.w.Address()), nil
	case len(words) == 2 && words[0] == "connect":
		address, err := hex.DecodeString(words[1])
		if err != nil {
			return "", err
		}
		s.ep, err = s.w.NewEP(address, ucxpeer.EPConfig{})
		return "", err
	case len(words) == 3 && words[0] == "memory":
		return s.memory(words[1], words[2])
	case len(words) == 3 && words[0] == "key":
		packed, err := hex.DecodeString(words[2])
		if err != nil {
			return "", err
		}
		if s.raddr, err = strconv.ParseUint(words[1], 10, 64); err != nil {
			return "", err
		}
		s.key, err = s.ep.Unpack(packed)
		return "", err
	case len(words) > 2:
		return s.measure(words)
	}
	return "", errCommand
}

func (s *side) memory(length, width string) (string, error) {
	n, err := strconv.Atoi(length)
	if err != nil {
		return "", err
	}
	slots, err := strconv.Atoi(width)
	if err != nil {
		return "", err
	}
	s.in, s.out, s.window, s.slots = make([]byte, n), make([]byte, n), make([]byte, n), make([]*ucxpeer.Request, slots)
	mem, err := s.w.MemMap(s.window, uct.AccessRemoteWrite|uct.AccessRemoteRead)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d %x", mem.Addr(), mem.Pack()), nil
}

// measure executes the commands with a test.
func (s *side) measure(words []string) (string, error) {
	t, err := ParseTest(words[1])
	if err != nil {
		return "", err
	}
	var numbers [3]int // bytes, count, width
	for i, text := range words[2:min(len(words), 5)] {
		if numbers[i], err = strconv.Atoi(text); err != nil {
			return "", err
		}
	}
	size, count, width := numbers[0], numbers[1], numbers[2]
	if size > len(s.in) || width > len(s.slots) {
		return "", errCommand
	}
	switch words[0] {
	case "prepare":
		clear(s.in[:size])
		clear(s.window[:size])
		fill(s.out[:size])
		if t.FromTarget {
			fill(s.window[:size])
		}
		return "", nil
	case "check":
		return "", s.check(t, size)
	case "serve":
		return "", s.serve(t, size, count, width)
	case "run":
		start := time.Now()
		if err := s.run(t, size, count, width); err != nil {
			return "", err
		}
		taken := time.Since(start)
		if t.oneSided() {
			err = s.finish(s.ep.TagSend(tagDone, nil, nil))
		}
		return strconv.FormatInt(taken.Nanoseconds(), 10), err
	}
	return "", errCommand
}

// oneSided reports whether the other side only makes progress, until the control channel ends the run.
func (t Test) oneSided() bool { return t.Name == putLat || t.Name == putBW || t.FromTarget }

// fill writes the bytes of a run of this length.
func fill(b []byte) {
	for i := range b {
		b[i] = byte(i*7 + len(b) + i>>8)
	}
}

func (s *side) check(t Test, size int) error {
	got := s.in[:size]
	if t.Name == putLat || t.Name == putBW {
		got = s.window[:size]
	}
	want := make([]byte, size)
	if fill(want); !bytes.Equal(got, want) {
		return ErrData
	}
	return nil
}

// finish waits for a started operation.
func (s *side) finish(r *ucxpeer.Request, err error) error {
	for err == nil && !r.Done() {
		s.w.Progress()
		err = s.ep.Err()
	}
	if err != nil {
		return err
	}
	return r.Err()
}

func (s *side) receive(tag uint64, size int) (*ucxpeer.Request, error) {
	return s.w.TagRecv(s.in[:size], tag, allBits, nil, nil)
}

// onActive copies an active message, as the program with UCX does.
func (s *side) onActive(m *ucxpeer.ActiveMessage) {
	s.arrived++
	if m.Data != nil {
		copy(s.in, m.Data)
		return
	}
	var err error
	if s.fetch, err = m.Recv(s.in[:m.Length], nil); err != nil {
		s.failed = err
	}
}

// receiveActive waits for the next active message.
func (s *side) receiveActive() error {
	s.received++
	for s.arrived < s.received {
		s.w.Progress()
		if err := s.ep.Err(); err != nil {
			return err
		}
	}
	r := s.fetch
	s.fetch = nil
	return s.finish(r, s.failed)
}

func (s *side) sendActive(size int) error {
	return s.finish(s.ep.SendActive(amID, nil, s.out[:size], nil))
}

// run runs count operations of a test.
func (s *side) run(t Test, size, count, width int) error {
	switch t.Name {
	case tagLat:
		for range count {
			r, err := s.receive(tagData, size)
			if err != nil {
				return err
			}
			if err := s.finish(s.ep.TagSend(tagData, s.out[:size], nil)); err != nil {
				return err
			}
			if err := s.finish(r, nil); err != nil {
				return err
			}
		}
		return nil
	case amLat:
		for range count {
			if err := s.sendActive(size); err != nil {
				return err
			}
			if err := s.receiveActive(); err != nil {
				return err
			}
		}
		return nil
	}
	put := t.Name == putLat || t.Name == putBW
	err := s.inFlight(count, width, func(i int) (r *ucxpeer.Request, err error) {
		switch {
		case t.FromTarget:
			return s.ep.Get(s.in[:size], s.raddr, s.key, nil)
		case !put:
			return s.ep.TagSend(tagData, s.out[:size], nil)
		}
		if r, err = s.ep.Put(s.out[:size], s.raddr, s.key, nil); err == nil && (i+1)%width == 0 {
			err = s.finish(s.ep.Flush())
		}
		return r, err
	})
	switch {
	case err != nil || t.FromTarget:
		return err
	case put:
		return s.finish(s.ep.Flush())
	}
	return s.finish(s.receive(tagDone, 0))
}

// inFlight starts operations, with at most width of them in flight, and waits for all.
func (s *side) inFlight(count, width int, start func(i int) (*ucxpeer.Request, error)) error {
	slots := s.slots[:width]
	clear(slots)
	for i := range count {
		slot := &slots[i%width]
		if err := s.finish(*slot, nil); err != nil {
			return err
		}
		var err error
		if *slot, err = start(i); err != nil {
			return err
		}
	}
	for _, r := range slots {
		if err := s.finish(r, nil); err != nil {
			return err
		}
	}
	return nil
}

// serve is the other side of run.
func (s *side) serve(t Test, size, count, width int) error {
	switch t.Name {
	case tagLat:
		for range count {
			if err := s.finish(s.receive(tagData, size)); err != nil {
				return err
			}
			if err := s.finish(s.ep.TagSend(tagData, s.out[:size], nil)); err != nil {
				return err
			}
		}
		return nil
	case amLat:
		for range count {
			if err := s.receiveActive(); err != nil {
				return err
			}
			if err := s.sendActive(size); err != nil {
				return err
			}
		}
		return nil
	case tagBW:
		if err := s.inFlight(count, width, func(int) (*ucxpeer.Request, error) { return s.receive(tagData, size) }); err != nil {
			return err
		}
		return s.finish(s.ep.TagSend(tagDone, nil, nil))
	}
	return s.finish(s.receive(tagDone, 0))
}
