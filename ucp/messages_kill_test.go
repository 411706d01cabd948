package ucp_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/roles"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
)

func init() { roles.Register("chat", chatRole) }

const (
	chatMost     = 100_000 // maximum length of a message, in bytes
	chatSlots    = 16      // receives and replies that are in progress at a time, of each class
	chatQuestion = 1
	chatAnswer   = 2
)

var chatSizes = []int{0, 8, 300, 5000, 20000, chatMost}

// TestMessages_Killed: a peer is killed at a random time during messages of all classes in both directions. Each
// request of the survivor fails once, with the reason. The memory of the request is not written after that, and no
// resources of the peer remain.
func TestMessages_Killed(t *testing.T) {
	for _, tls := range []string{"sm", "tcp", `\rc`} {
		t.Run(tls, func(t *testing.T) {
			x := newSurvivor(t, tls)
			for range testenv.Rounds(3, 1000) {
				x.round(t)
			}
			t.Logf("%d requests ended well, %d with the reason", x.well, x.cut)
		})
	}
}

// survivor is a worker whose peers are killed.
type survivor struct {
	t      *testing.T
	tls    string
	rng    *rand.Rand
	w      *ucp.Worker
	mem    *ucp.Mem
	asked  int
	active []*ucp.Request // in progress, of EPs
	tags   []*ucp.Request // receives
	count  int            // of a stream receive

	well, cut int
}

func newSurvivor(t *testing.T, tls string) *survivor {
	ctx, err := ucppair.OpenContext(tls)
	require.NoError(t, err)
	x := &survivor{t: t, tls: tls, rng: rand.New(rand.NewPCG(3, 4))}
	x.w, err = ctx.NewWorker(ucp.WorkerConfig{})
	require.NoError(t, err)
	x.mem, err = ctx.MemAlloc(chatMost)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, errors.Join(x.w.Close(), x.mem.Close(), ctx.Close())) })
	x.w.OnActive(chatQuestion, x.question)
	return x
}

// track records a request that must complete.
func (x *survivor) track(r *ucp.Request, err error) {
	if err == nil && r != nil {
		x.active = append(x.active, r)
	}
}

// question receives a message and replies, unless too many operations are in progress.
func (x *survivor) question(m *ucp.ActiveMessage) {
	x.asked++
	if len(x.active) > chatSlots {
		return
	}
	halves := func(b []byte) ucp.Data { return ucp.Buffers([][]byte{b[:len(b)/2], b[len(b)/2:]}) }
	if x.asked%2 == 0 {
		x.track(m.Recv(x.mem.Bytes()[:m.Length], &ucp.OpParams{Mem: x.mem}))
	} else {
		x.track(m.RecvData(halves(x.mem.Bytes()[:m.Length]), nil))
	}
	answer := x.mem.Bytes()[:chatSizes[x.rng.IntN(len(chatSizes))]]
	x.track(m.From.SendActive(chatAnswer, nil, answer, &ucp.OpParams{Mem: x.mem}))
	x.track(m.From.TagSendSync(7, answer, nil))
	x.track(m.From.StreamSend(answer, nil))
	x.track(m.From.StreamSendData(halves(answer), nil))
	x.track(m.From.StreamRecv(make([]byte, 1000), true, &x.count, nil))
	x.track(m.From.StreamRecvData(halves(make([]byte, 1000)), true, &x.count, nil))
}

// step makes progress, and posts receives.
func (x *survivor) step() {
	x.w.Progress()
	for e := x.w.StreamReady(); e != nil; e = x.w.StreamReady() {
		for d := e.StreamData(); d != nil; d = e.StreamData() {
			d.Release()
		}
	}
	x.active = x.ended(x.active)
	x.tags = x.ended(x.tags)
}

// ended removes completed requests from the list.
func (x *survivor) ended(list []*ucp.Request) (rest []*ucp.Request) {
	for _, r := range list {
		if !r.Done() {
			rest = append(rest, r)
			continue
		}
		switch err := r.Take(); {
		case err == nil, errors.Is(err, ucs.ErrTruncated):
			x.well++
		default:
			assert.True(x.t, errors.Is(err, ucs.ErrConnReset) || errors.Is(err, ucs.ErrPeerClosed), "%v", err)
			x.cut++
		}
	}
	return rest
}

// round connects a peer, kills it, and checks what is left.
func (x *survivor) round(t *testing.T) {
	c := roles.New(t, "chat", x.tls, ucppair.Remote{Addr: x.w.Address(), Key: nil})
	defer c.Kill(t)
	until := x.asked + 1 + x.rng.IntN(200)
	x.until(func() bool {
		for len(x.tags) < chatSlots {
			r, err := x.w.TagRecv(x.mem.Bytes()[:chatSizes[x.rng.IntN(len(chatSizes))]], 0, 0, nil, &ucp.OpParams{Mem: x.mem})
			if r == nil {
				require.True(t, err == nil || errors.Is(err, ucs.ErrTruncated), "%v", err)
				break
			}
			x.tags = append(x.tags, r)
		}
		return x.asked >= until
	})
	c.Kill(t)
	x.until(func() bool { return len(x.active) == 0 && x.w.EPs().Len() == 0 })
	for _, r := range x.tags {
		require.True(t, r.Cancel(), "a receive of which a part had arrived")
		r.Release()
	}
	x.tags = nil
	x.nothingLeft(t)
}

func (x *survivor) until(ok func() bool) {
	testenv.ProgressWithin(x.t, testenv.Watchdog, func() bool {
		x.step()
		return ok()
	})
}

// nothingLeft checks the resources of the peer at the worker, and late writes.
func (x *survivor) nothingLeft(t *testing.T) {
	testenv.Fill(x.mem.Bytes(), tlsets.ClosedByte)
	for _, _, ok := x.w.TagProbe(0, 0, false); ok; _, _, ok = x.w.TagProbe(0, 0, false) {
		_, err := x.w.TagRecv(make([]byte, chatMost), 0, 0, nil, nil)
		require.False(t, errors.Is(err, ucs.ErrTruncated))
	}
	for range 100 {
		x.step()
	}
	require.Len(t, x.mem.Bytes(), bytes.Count(x.mem.Bytes(), []byte{tlsets.ClosedByte}), "written late")
	require.Zero(t, x.w.GrantedCredit())
	require.Zero(t, ucp.RequestsInUse(x.w))
	require.Zero(t, x.w.RemoteRequests().Len())
	require.Zero(t, x.w.Tags().Unexpected())
}

// chatRole sends messages of all classes to a survivor, and receives its messages. Its arguments are transports and the
// address.
func chatRole(c *roles.Side) error {
	ctx, err := ucppair.OpenContext(c.Args[0])
	if err != nil {
		return err
	}
	to, err := ucppair.ParseRemote(c.Args[1])
	if err != nil {
		return err
	}
	w, err := ctx.NewWorker(ucp.WorkerConfig{})
	if err != nil {
		return err
	}
	mem, err := ctx.MemAlloc(2 * chatMost)
	if err != nil {
		return err
	}
	ep, err := w.NewEP(to.Addr, ucp.EPConfig{})
	if err != nil {
		return err
	}
	go func() {
		for c.NextLine() {
		}
		os.Exit(0) // the parent has ended
	}()
	x := &chatter{w: w, ep: ep, mem: mem, rng: rand.New(rand.NewPCG(uint64(os.Getpid()), 1))}
	w.OnActive(chatAnswer, func(m *ucp.ActiveMessage) { x.track(m.Recv(x.into(m.Length))) })
	for ep.Err() == nil {
		x.turn()
	}
	return nil // the parent closes
}

// chatter is the peer of a survivor.
type chatter struct {
	w     *ucp.Worker
	ep    *ucp.EP
	mem   *ucp.Mem // messages are sent from the first half, and received into the second
	rng   *rand.Rand
	sends []*ucp.Request // and receives of active messages
	recvs []*ucp.Request // of tags; some questions get no reply
}

// into returns a buffer for a message of n bytes.
func (x *chatter) into(n int) ([]byte, *ucp.OpParams) {
	if x.rng.IntN(2) == 0 {
		return make([]byte, n), nil
	}
	return x.mem.Bytes()[chatMost:][:n], &ucp.OpParams{Mem: x.mem}
}

func (x *chatter) track(r *ucp.Request, _ error) {
	if r != nil {
		x.sends = append(x.sends, r)
	}
}

// ended removes completed requests from the list.
func (x *chatter) ended(list []*ucp.Request) (rest []*ucp.Request) {
	for _, r := range list {
		if r.Done() {
			_ = r.Take()
		} else {
			rest = append(rest, r)
		}
	}
	return rest
}

// turn sends a message, and receives.
func (x *chatter) turn() {
	x.w.Progress()
	for d := x.ep.StreamData(); d != nil; d = x.ep.StreamData() {
		d.Release()
	}
	x.sends, x.recvs = x.ended(x.sends), x.ended(x.recvs)
	if len(x.recvs) < chatSlots && x.rng.IntN(4) == 0 {
		buf, p := x.into(chatMost)
		if r, _ := x.w.TagRecv(buf, 0, 0, nil, p); r != nil {
			x.recvs = append(x.recvs, r)
		}
	}
	if len(x.sends) <= chatSlots {
		x.send()
	}
}

func (x *chatter) send() {
	data := x.mem.Bytes()[:chatSizes[x.rng.IntN(len(chatSizes))]]
	var p *ucp.OpParams
	if x.rng.IntN(2) == 0 {
		p = &ucp.OpParams{Mem: x.mem}
	}
	switch x.rng.IntN(4) {
	case 0, 1:
		x.track(x.ep.SendActive(chatQuestion, nil, data, p))
	case 2:
		x.track(x.ep.TagSend(1, data, p))
	default:
		x.track(x.ep.StreamSend(data, p))
	}
}
