package sp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gucx/gucx"
	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/perftest/internal/studies/protocol"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/ucpgroup"
)

// eagerLimit is the minimum length for rendezvous, as in the study of TupleQ.
const eagerLimit = "GUCX_RNDV_THRESH=8k"

// queues selects the transport that has queues for TupleQ.
const queues = `GUCX_TLS=\xrc`

// Protocols are the compared protocols.
func Protocols() protocol.List {
	return protocol.List{
		{Name: "get_zcopy", Env: []string{eagerLimit, "GUCX_RNDV_SCHEME=get_zcopy"}},
		{Name: "put_zcopy", Env: []string{eagerLimit, "GUCX_RNDV_SCHEME=put_zcopy"}},
		{Name: "am", Env: []string{eagerLimit, "GUCX_RNDV_SCHEME=am"}},
		{Name: "tupleq", Env: []string{eagerLimit, queues, "GUCX_TAG_PROTO=tupleq"}},
		{Name: "tupleq_copy", Env: []string{eagerLimit, queues, "GUCX_TAG_PROTO=tupleq_copy"}},
	}
}

// Row is the result of a run of all ranks.
type Row struct {
	Class    string  `json:"class"`
	Ranks    int     `json:"ranks"`
	Protocol string  `json:"protocol"` // as given by the user
	Seconds  float64 `json:"seconds"`  // of all steps
	Rate     float64 `json:"mops"`     // millions of operations per second, of all ranks

	// Seconds of the steps by phase, as mean over the ranks.
	Residual float64 `json:"residual_s"`
	Sweeps   float64 `json:"sweeps_s"`
	Vectors  float64 `json:"eigenvectors_s"`
	Copies   float64 `json:"copies_s"`
	Posting  float64 `json:"posting_s"`
	Waiting  float64 `json:"waiting_s"`

	Messages int     `json:"messages"` // sent by a rank in a step
	Queued   float64 `json:"queued"`   // share of them sent through queues of TupleQ
	MiB      float64 `json:"mib"`      // in them
}

// Study runs the benchmark with each protocol.
type Study struct {
	Class     Class
	Protocols protocol.List
	Config    func(env []string) (gucx.Config, error) // reads the environment, extended by env
}

// Check returns an error if that many ranks cannot run the study.
func (s *Study) Check(ranks int) error { return checkRanks(s.Class.Grid, ranks) }

// Run runs the study as one of the ranks that b connects; all of them must call it. Rows are equal on all ranks. step,
// which may be nil, is called after each time step. The error of a wrong result wraps ErrVerify.
func (s *Study) Run(ctx context.Context, b ucpgroup.Bootstrap, step func(protocol string)) (rows []Row, err error) {
	for _, p := range s.Protocols {
		count := func() {
			if step != nil {
				step(p.Name)
			}
		}
		row, err := s.runOne(ctx, b, p, count)
		if err != nil {
			return rows, fmt.Errorf("%s: %w", p.Name, err)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// runOne runs the benchmark with one protocol, on a context of its own.
func (s *Study) runOne(ctx context.Context, b ucpgroup.Bootstrap, p protocol.Protocol, step func()) (row Row, err error) {
	var undo cleanup.Stack
	defer func() { err = errors.Join(err, undo.Run()) }()
	owner, err := s.open(p, &undo)
	if err != nil {
		return row, err
	}
	comm := &Over{}
	undo.Add(func() error { return comm.Close() }) // closed after the worker, whose operations may use the memory
	worker, err := owner.NewWorker(ucp.WorkerConfig{})
	if err != nil {
		return row, err
	}
	undo.Add(worker.Close)
	addrs, err := addresses(ctx, b, p.Name, worker.Address())
	if err != nil {
		return row, err
	}
	group, err := ucpgroup.Connect(worker, b.Rank(), addrs)
	if err != nil {
		return row, err
	}
	comm = NewOver(ctx, owner, group)
	row, err = s.measure(ctx, comm, p, step)
	return row, errors.Join(err, closeGroup(ctx, group, err))
}

// closeGroup closes a group. After success, and after a wrong result, which all ranks have, it closes it together with
// the other ranks. After any other error it notifies the others, and does not wait for them.
func closeGroup(ctx context.Context, g *ucpgroup.Group, err error) error {
	if err == nil || errors.Is(err, ErrVerify) {
		return g.Close(ctx)
	}
	g.Abort(err)
	_ = g.Close(ctx) // reports that the group has failed, which is known
	return nil
}

// measure runs the benchmark and verifies its result.
func (s *Study) measure(ctx context.Context, comm Comm, p protocol.Protocol, step func()) (row Row, err error) {
	rank, err := NewRank(s.Class, comm)
	if err != nil {
		return row, err
	}
	res, err := rank.Run(ctx, step)
	if err != nil {
		return row, err
	}
	if row, err = s.row(p, comm, &res); err != nil {
		return row, err
	}
	return row, s.Class.Verify(res.Norms)
}

// open opens a context with the configuration of the environment and of the protocol.
func (s *Study) open(p protocol.Protocol, undo *cleanup.Stack) (*ucp.Context, error) {
	cfg, err := s.Config(p.Env)
	if err != nil {
		return nil, err
	}
	owner, err := cfg.Open()
	if err == nil {
		undo.Add(owner.Close)
	}
	return owner, err
}

// addresses exchanges the addresses of the ranks' workers for one protocol.
func addresses(ctx context.Context, b ucpgroup.Bootstrap, protocol string, mine []byte) (all [][]byte, err error) {
	key := "sp-" + protocol
	if err := b.Put(ctx, key, mine); err != nil {
		return nil, err
	}
	if err := b.Fence(ctx); err != nil {
		return nil, err
	}
	for q := range b.Size() {
		addr, err := b.Get(ctx, q, key)
		if err != nil {
			return nil, err
		}
		all = append(all, addr)
	}
	return all, nil
}

// row returns the means over all ranks.
func (s *Study) row(p protocol.Protocol, comm Comm, r *Result) (Row, error) {
	v := []float64{
		r.Elapsed.Seconds(),
		r.seconds(Derive, Residual),
		r.seconds(Assemble, Eliminate, Substitute),
		r.seconds(Characteristic, Rotate, Update),
		r.seconds(Pack, Unpack),
		r.Posting.Seconds(),
		r.Waiting.Seconds(),
		float64(r.Sent),
		float64(r.Bytes),
		float64(r.Queued),
	}
	if err := comm.Sum(v); err != nil {
		return Row{}, err
	}
	for i := range v {
		v[i] /= float64(comm.Size())
	}
	steps := float64(s.Class.Steps)
	return Row{Class: s.Class.Name, Ranks: comm.Size(), Protocol: p.Name,
		Seconds: v[0], Rate: s.Class.Operations() / v[0] / 1e6,
		Residual: v[1], Sweeps: v[2], Vectors: v[3], Copies: v[4], Posting: v[5], Waiting: v[6],
		Messages: int(v[7] / steps), MiB: v[8] / steps / (1 << 20), Queued: v[9] / max(v[7], 1)}, nil
}

// seconds returns the time of some types of work.
func (r *Result) seconds(list ...Work) float64 {
	var sum time.Duration
	for _, w := range list {
		sum += r.Spent[w]
	}
	return sum.Seconds()
}
