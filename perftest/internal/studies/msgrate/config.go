package msgrate

import (
	"cmp"
	"fmt"

	"github.com/gucx/gucx/uct/ib/verbs/endpoint"
)

// Config describes what the threads of a process do and which objects they share. The zero value is
// one thread with the study's defaults but without inlining.
type Config struct {
	Threads int // 0 means 1
	// Messages of each thread; rounded up to whole windows. 0 means 100000.
	Messages int
	// Size of a message in bytes; 0 means 2.
	Size int
	// Depth of a QP in messages. Postlist is the number of messages per post, and one of Unsignaled
	// messages is signaled: one of these numbers must divide the other, and both must divide Depth.
	// 0 means 64, 32 and 64; 1 turns the feature off.
	Depth, Postlist, Unsignaled int
	// Inline writes the payload into the work request.
	Inline bool

	// Plan selects the verbs objects that the threads share.
	Plan endpoint.Plan
	// Buf is the number of threads that share the payload, MR the number that share its
	// registration; threads with one MR must share the PD. 0 means 1.
	Buf, MR int
	// Packed puts the payloads next to each other, not on separate cache lines.
	Packed bool
	// LockCQ: every CQ takes its lock, as ibv_poll_cq does.
	LockCQ bool
	// Atomics: threads count the entries of their QP and CQ with atomics, also if no other thread
	// uses them, as a program written for sharing does.
	Atomics bool
}

// Defaults of the study.
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

// Check returns an error for an invalid configuration. It does not check the plan.
func (c Config) Check() error {
	_, err := c.withDefaults()
	return err
}

// window returns the number of messages that a thread posts at a time. The last one is signaled, so
// that each message on a shared QP is followed by a completion.
func (c Config) window() int { return max(c.Postlist, c.Unsignaled) }

// endpoints returns the objects that the threads post to and poll.
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
