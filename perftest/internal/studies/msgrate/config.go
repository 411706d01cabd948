package msgrate

import (
	"cmp"
	"fmt"

	"github.com/gucx/gucx/uct/ib/verbs/endpoint"
)

// Config says what the threads of a process do and share. The zero value is one
// thread with the study's defaults but without inlining.
type Config struct {
	Threads int // 0 means 1
	// Messages of each thread; rounded up to whole windows. 0 means 100000.
	Messages int
	// Size of a message in bytes; 0 means 2.
	Size int
	// Depth of a QP in messages. Postlist is how many one call posts, and of
	// Unsignaled one asks for a completion: of these one divides the other, and both
	// divide Depth. 0 means 64, 32 and 64; 1 turns the feature off.
	Depth, Postlist, Unsignaled int
	// Inline puts the payload into the work request.
	Inline bool

	// Plan is which verbs objects the threads share.
	Plan endpoint.Plan
	// Buf and MR are how many threads share the payload, and its registration;
	// who shares an MR shares the PD. 0 means 1.
	Buf, MR int
	// Packed puts the payloads next to each other, not on separate cache lines.
	Packed bool
	// LockCQ has every CQ take its lock, as ibv_poll_cq does.
	LockCQ bool
	// Atomics has threads count what is in their QP and CQ with atomics also where no
	// other thread uses them, as a program written for sharing does.
	Atomics bool
}

// Defaults, those of the study.
const (
	defaultMessages   = 100_000
	defaultSize       = 2
	defaultDepth      = 64
	defaultPostlist   = 32
	defaultUnsignaled = 64
)

func (c Config) withDefaults() (Config, error) {
	c.Threads = cmp.Or(c.Threads, 1)
	c.Messages = cmp.Or(c.Messages, defaultMessages)
	c.Size = cmp.Or(c.Size, defaultSize)
	c.Depth = cmp.Or(c.Depth, defaultDepth)
	c.Postlist = cmp.Or(c.Postlist, min(defaultPostlist, c.Depth))
	c.Unsignaled = cmp.Or(c.Unsignaled, min(defaultUnsignaled, c.Depth))
	c.Buf, c.MR = cmp.Or(c.Buf, 1), cmp.Or(c.MR, 1)
	c.Plan.PD = cmp.Or(c.Plan.PD, 1)
	p, q := c.Postlist, c.Unsignaled
	for _, n := range []struct {
		what string
		n    int
	}{{"threads", c.Threads}, {"messages", c.Messages}, {"message size", c.Size}, {"depth", c.Depth},
		{"postlist", p}, {"unsignaled", q}, {"buffer sharing", c.Buf}, {"MR sharing", c.MR}} {
		if n.n < 0 {
			return c, fmt.Errorf("%s %d is negative", n.what, n.n)
		}
	}
	if p%q != 0 && q%p != 0 {
		return c, fmt.Errorf("postlist %d and unsignaled %d: one must divide the other", p, q)
	}
	if c.Depth%c.window() != 0 {
		return c, fmt.Errorf("depth %d must be a multiple of postlist %d and unsignaled %d", c.Depth, p, q)
	}
	if c.Plan.PD%c.MR != 0 {
		return c, fmt.Errorf("%d threads share an MR, which cannot lie within the PD of %d", c.MR, c.Plan.PD)
	}
	c.Messages = (c.Messages + c.window() - 1) / c.window() * c.window()
	return c, nil
}

// Check says what is wrong with the configuration, but for its plan.
func (c Config) Check() error {
	_, err := c.withDefaults()
	return err
}

// window is how many messages a thread posts at once: it ends in a signaled one. A
// QP that threads share never has a message that nobody's completion follows.
func (c Config) window() int { return max(c.Postlist, c.Unsignaled) }

// endpoints is what the threads post to and poll.
func (c Config) endpoints() endpoint.Config {
	e := endpoint.Config{Plan: c.Plan, LockCQ: c.LockCQ}
	e.Cap.MaxSendWR = c.Depth
	e.CQDepth = c.Depth / c.Unsignaled
	if c.Plan.QP > 1 {
		e.CQDepth = max(e.CQDepth/c.Plan.QP, 1)
	}
	if c.Inline {
		e.Cap.MaxInline = c.Size
	}
	return e
}
