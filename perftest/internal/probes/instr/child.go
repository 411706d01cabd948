package instr

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/perftest/internal/probes/ptrace"
)

// job is the work of the traced child, which reads it as JSON from its standard input.
type job struct {
	Cases  []Case
	Fabric string
	Reps   int // windows of each case
	Warmup int // repetitions before them
}

// skipped is the JSON line that the child prints for a case that cannot run.
type skipped struct {
	Case   int // index in job.Cases
	Reason string
}

// Tags of windows: the self-checks, then the cases by index.
const (
	tagEmpty = iota
	tagKnown
	tagCase
)

// checkReps is the number of windows of each check.
const checkReps = 3

// errVoid is the error of a repetition that must not be counted, because background work of the
// device has disturbed it. If before returns it, op and after are not called; if op returns it,
// after is called.
var errVoid = errors.New("not what was to be counted")

// voidLimit is the maximum number of void repetitions for each counted one.
const voidLimit = 20

// rig is an opened layer with a connection to a peer in the same process.
type rig interface {
	// steps prepares a case. errors.ErrUnsupported, with the reason, skips it.
	steps(c Case) (steps, error)
	Close() error
}

// steps are the functions of one repetition: only op is counted. before and after may be nil.
type steps struct{ before, op, after func() error }

// opener opens the rig of one API.
type opener func(fabric, alternative string) (rig, error)

// errNotTraced is the error if a user calls the hidden command.
var errNotTraced = errors.New("this command is for the child that perftest instructions traces")

// runChild executes the job that it reads from in.
func runChild(in io.Reader, out io.Writer, openers map[Part]opener) error {
	if !ptrace.Traced() {
		return errNotTraced
	}
	var j job
	if err := json.NewDecoder(in).Decode(&j); err != nil {
		return fmt.Errorf("job: %w", err)
	}
	runtime.LockOSThread() // for the marks
	defer runtime.UnlockOSThread()
	c := child{job: j, openers: openers, out: json.NewEncoder(out), rigs: map[rigKey]rig{}}
	if err := c.check(); err != nil {
		return err
	}
	for i := range j.Cases {
		if err := c.run(i); err != nil {
			return errors.Join(fmt.Errorf("%v: %w", j.Cases[i], err), c.undo.Run())
		}
	}
	return c.undo.Run()
}

// child is the state of the traced process. The first case that needs a rig opens it; rigs are not
// closed before the end.
type child struct {
	job     job
	openers map[Part]opener
	out     *json.Encoder
	rigs    map[rigKey]rig
	undo    cleanup.Stack
}

// rigKey identifies a rig.
type rigKey struct {
	api         Part
	alternative string
}

// check runs windows with known counts.
func (c *child) check() error {
	empty := steps{op: func() error { return nil }}
	known := steps{op: func() error { ptrace.Known(); return nil }}
	return errors.Join(repeat(tagEmpty, checkReps, empty), repeat(tagKnown, checkReps, known))
}

// run executes one case: warm-up, then the counted repetitions.
func (c *child) run(i int) error {
	cs := c.job.Cases[i]
	s, err := c.prepare(cs)
	if errors.Is(err, errors.ErrUnsupported) {
		return c.out.Encode(skipped{i, err.Error()})
	}
	if err != nil {
		return err
	}
	for range c.job.Warmup {
		if err := s.once(func() {}, func(bool) {}); err != nil && err != errVoid {
			return err
		}
	}
	if err = repeat(uint64(tagCase+i), c.job.Reps, s); err == errVoid {
		return c.out.Encode(skipped{i, "too many repetitions were " + err.Error()})
	}
	return err
}

// prepare opens the rig of the case, if it is not open.
func (c *child) prepare(cs Case) (steps, error) {
	key := rigKey{cs.API, cs.Switch}
	if r, ok := c.rigs[key]; ok {
		return r.steps(cs)
	}
	open := c.openers[cs.API]
	if open == nil {
		return steps{}, fmt.Errorf("%v: %w", cs.API, errors.ErrUnsupported)
	}
	r, err := open(c.job.Fabric, cs.Switch)
	if err != nil {
		return steps{}, err
	}
	c.undo.Add(r.Close)
	c.rigs[key] = r
	return r.steps(cs)
}

// repeat runs n windows.
func repeat(tag uint64, n int, s steps) error {
	begin := func() { ptrace.Begin(tag) }
	end := func(void bool) {
		if void {
			ptrace.Drop()
		} else {
			ptrace.End()
		}
	}
	void := 0
	for done := 0; done < n; {
		switch err := s.once(begin, end); {
		case err == nil:
			done++
		case err == errVoid && void < n*voidLimit:
			void++
		default:
			return err
		}
	}
	return nil
}

// once executes one repetition, with begin and end around the counted operation.
func (s steps) once(begin func(), end func(void bool)) error {
	if s.before != nil {
		if err := s.before(); err != nil {
			return err
		}
	}
	begin()
	err := s.op()
	end(err == errVoid)
	if err != nil && err != errVoid {
		return err
	}
	if s.after != nil {
		if err := s.after(); err != nil {
			return err
		}
	}
	return err
}
