package ucp_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/roles"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/all"
)

func init() { roles.Register("rndv", rndvRole) }

// Ids of the active messages between a rndvPeer and its victim.
const (
	rndvData  = 1 // uses rendezvous
	rndvHello = 2 // the victim is ready
)

// rndvDepth is the number of messages in progress at a time.
const rndvDepth = 4

// rndvPeer sends or receives messages with rendezvous without end.
type rndvPeer struct {
	ctx  *ucp.Context
	w    *ucp.Worker
	ep   *ucp.EP        // nil until the other side is ready
	mem  []*ucp.Mem     // nil entries: buffers are not registered by the caller
	bufs [][]byte       // in mem
	reqs []*ucp.Request // by buffer; nil: none in progress
	ok   int            // requests that have succeeded
	err  error          // of the latest request that has failed
}

// newRndvPeer makes a side. With cached the buffers are registered for each message.
func newRndvPeer(tls, scheme string, cached bool) (*rndvPeer, error) {
	cfg := ucp.Config{RndvScheme: scheme, RndvThresh: 1}
	if err := cfg.TLS.UnmarshalText([]byte(tls)); err != nil {
		return nil, err
	}
	x := &rndvPeer{reqs: make([]*ucp.Request, rndvDepth)}
	var err error
	if x.ctx, err = ucp.NewContext(cfg, tlsets.Components(all.Config{})...); err != nil {
		return nil, err
	}
	if x.w, err = x.ctx.NewWorker(ucp.WorkerConfig{}); err != nil {
		return nil, err
	}
	for range rndvDepth {
		if cached {
			x.mem, x.bufs = append(x.mem, nil), append(x.bufs, make([]byte, tlsets.LongMessage))
			continue
		}
		m, err := x.ctx.MemAlloc(tlsets.LongMessage)
		if err != nil {
			return nil, err
		}
		x.mem, x.bufs = append(x.mem, m), append(x.bufs, m.Bytes())
	}
	x.w.OnActive(rndvHello, func(m *ucp.ActiveMessage) { x.ep = m.From })
	x.w.OnActive(rndvData, x.receive)
	return x, nil
}

// receive receives a message into a free buffer; without one the message is dropped.
func (x *rndvPeer) receive(m *ucp.ActiveMessage) {
	for i, r := range x.reqs {
		if r == nil {
			r, err := m.Recv(x.bufs[i], &ucp.OpParams{Mem: x.mem[i]})
			x.note(i, r, err)
			return
		}
	}
}

// send sends a message from each free buffer.
func (x *rndvPeer) send() {
	for i, r := range x.reqs {
		if r == nil && x.ep != nil && x.ep.Err() == nil {
			r, err := x.ep.SendActive(rndvData, nil, x.bufs[i], &ucp.OpParams{Mem: x.mem[i]})
			x.note(i, r, err)
		}
	}
}

// note records a request, or the result of a completed one.
func (x *rndvPeer) note(i int, r *ucp.Request, err error) {
	switch {
	case err != nil:
		x.err = err
	case r == nil:
		x.ok++
	}
	x.reqs[i] = r
}

// step makes progress and reports whether requests are in progress.
func (x *rndvPeer) step() (busy bool) {
	x.w.Progress()
	for i, r := range x.reqs {
		if r == nil || !r.Done() {
			busy = busy || r != nil
			continue
		}
		x.reqs[i] = nil
		if err := r.Take(); err != nil {
			x.err = err
		} else {
			x.ok++
		}
	}
	return busy
}

func (x *rndvPeer) close() error {
	err := x.w.Close()
	for _, m := range x.mem {
		if m != nil {
			err = errors.Join(err, m.Close())
		}
	}
	return errors.Join(err, x.ctx.Close())
}

// rndvRole is a victim. Its arguments are transports, scheme, whether it sends, the address of its parent, and whether
// buffers are registered for each message.
func rndvRole(c *roles.Side) error {
	x, err := newRndvPeer(c.Args[0], c.Args[1], c.Args[4] == cachedBuffers)
	if err != nil {
		return err
	}
	addr, err := hex.DecodeString(c.Args[3])
	if err != nil {
		return err
	}
	if x.ep, err = x.w.NewEP(addr, ucp.EPConfig{}); err != nil {
		return err
	}
	if r, err := x.ep.SendActive(rndvHello, nil, nil, nil); err != nil {
		return err
	} else if r != nil {
		r.Release()
	}
	gone := make(chan struct{})
	go func() {
		for c.NextLine() {
		}
		close(gone)
	}()
	for {
		if c.Args[2] == "send" {
			x.send()
		}
		x.step()
		select {
		case <-gone:
			return nil
		default:
		}
	}
}

// TestRndv_Killed: one side of a rendezvous is killed, at any time. The operations of the other side complete once, or
// fail with the reason, and its memory is not written after that.
func TestRndv_Killed(t *testing.T) {
	for _, tls := range []string{"sm", "rc_mlx5", "tcp"} {
		for _, scheme := range tlsets.RndvSchemes[1:] {
			for _, victim := range []string{"send", "recv"} {
				t.Run(tls+"/"+scheme+"/victim="+victim, func(t *testing.T) {
					for i := range testenv.Rounds(1, 20) {
						killRndv(t, tls, scheme, victim, "owned", 3*i)
						killRndv(t, tls, scheme, victim, cachedBuffers, 3*i)
					}
				})
			}
		}
	}
}

// cachedBuffers: the caller does not register buffers.
const cachedBuffers = "cached"

// killRndv kills a victim when a given number of messages has been transferred.
func killRndv(t *testing.T, tls, scheme, victim, buffers string, moved int) {
	x, err := newRndvPeer(tls, scheme, buffers == cachedBuffers)
	require.NoError(t, err)
	c := roles.New(t, "rndv", tls, scheme, victim, hex.EncodeToString(x.w.Address()), buffers)
	defer c.Kill(t)
	failed := func() bool { return x.ep != nil && x.ep.Err() != nil }
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
		if victim == "recv" {
			x.send()
		}
		busy := x.step()
		return x.ep != nil && (busy && x.ok >= moved || x.ok >= moved+10) || failed()
	})
	require.False(t, failed(), "%v", x.err)
	c.Kill(t)
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool { return !x.step() && failed() })
	if x.err != nil {
		assert.ErrorIs(t, x.err, ucs.ErrConnReset)
	}
	for _, b := range x.bufs {
		testenv.Fill(b, tlsets.ClosedByte)
	}
	for range 100 {
		x.step()
	}
	for _, b := range x.bufs {
		assert.Equal(t, tlsets.LongMessage, bytes.Count(b, []byte{tlsets.ClosedByte}), "written after the request has completed")
	}
	assert.Zero(t, ucp.RequestsInUse(x.w), "requests that were not released")
	require.NoError(t, x.close())
}
