package sp

import (
	"context"
	"time"
)

// Rank is one rank of a run.
type Rank struct {
	Class  Class
	Comm   Comm
	driver *driver
	field  *field
	meter  *meter
}

// NewRank creates a rank with the initial values. comm determines its number and the number of ranks; nil means a
// single rank. It returns an error if the grid cannot be divided between that many.
func NewRank(class Class, comm Comm) (*Rank, error) {
	if comm == nil {
		comm = alone{}
	}
	l, err := newLayout(class.Grid, comm.Size(), comm.Rank())
	if err != nil {
		return nil, err
	}
	r := &Rank{Class: class, Comm: comm, field: newField(l, class.Dt)}
	r.meter = &meter{Comm: comm, worker: r.field, layout: l}
	r.driver, err = newDriver(l, r.meter, r.meter)
	return r, err
}

// Result is the result of a rank.
type Result struct {
	Norms   Norms
	Elapsed time.Duration        // of all steps, from barrier to barrier
	Spent   [Works]time.Duration // time of each type of work
	Amount  [Works]int           // its amount, in the units of Work
	Posting time.Duration        // in Isend and Irecv
	Waiting time.Duration        // in WaitAll
	Sent    int                  // messages
	Bytes   int                  // in them
	Queued  int                  // of the messages, those that went through queues of TupleQ
}

// Run does a step as warm-up, which is not measured, then all steps of the class from its initial values, and calls
// step after each. All ranks must call it. It returns between two steps when ctx ends.
func (r *Rank) Run(ctx context.Context, step func()) (res Result, err error) {
	if err := r.driver.step(); err != nil {
		return res, err
	}
	r.field.reset()
	if err := r.Comm.Barrier(); err != nil {
		return res, err
	}
	r.meter.Result = Result{}
	queued := r.queued()
	begin := time.Now()
	for range r.Class.Steps {
		if err := context.Cause(ctx); err != nil {
			return res, err
		}
		if err := r.driver.step(); err != nil {
			return res, err
		}
		if step != nil {
			step()
		}
	}
	if err := r.Comm.Barrier(); err != nil {
		return res, err
	}
	res = r.meter.Result
	res.Elapsed = time.Since(begin)
	res.Queued = r.queued() - queued
	res.Norms, err = r.driver.norms(r.field)
	return res, err
}

// queued returns the number of messages sent through queues, if Comm has queues.
func (r *Rank) queued() int {
	if c, ok := r.Comm.(interface{ queued() int }); ok {
		return c.queued()
	}
	return 0
}
