package tcp

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/keypair"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct"
)

// The model has two ifaces and a network that delivers messages and ends of streams in any order
// that TCP permits: streams of different sockets are independent. The ifaces are real; their sockets
// are pairs of unix sockets, and the test moves the bytes between two pairs.

// modelFixture is what all worlds of a test share.
type modelFixture struct {
	md    *domain
	dev   device
	cfg   Config
	pairs [2]keypair.Pair

	secret pairKey // of both
}

func newModelFixture(t *testing.T) *modelFixture {
	t.Helper()
	e := newEnd(t, Config{})
	cfg, err := Config{SegSize: minSegSize, RxBuf: 1, TxBuf: 1, TxOps: 8, ConnTimeout: time.Hour, HelloTimeout: time.Hour}.withDefaults()
	require.NoError(t, err)
	f := &modelFixture{md: e.md, dev: e.it.dev, cfg: cfg}
	for i := range f.pairs {
		f.pairs[i], err = keypair.New()
		require.NoError(t, err)
	}
	if f.pairs[1].Public.ID() < f.pairs[0].Public.ID() { // the side with the lower id continues to dial
		f.pairs[0], f.pairs[1] = f.pairs[1], f.pairs[0]
	}
	f.secret, err = pairWith(&f.pairs[0], &f.pairs[1].Public, "")
	require.NoError(t, err)
	return f
}

// modelSide is an iface and its user.
type modelSide struct {
	w    *modelWorld
	name string
	it   *iface
	peer *modelSide
	mode uct.DialMode
	eps  []*endpoint
	made uint64   // EPs made
	sent []uint64 // messages posted: number of the EP, and number of the message
	got  []uint64 // messages of the peer
	errs []error
}

// modelLink is a socket of a and one of b, and the bytes between them.
type modelLink struct {
	dialer *modelSide
	ends   [2]int // sockets of the network: towards the dialer, and towards the other side; -1: none
	owner  [2]int // the sockets of the sides, which may be closed
	flows  [2]modelFlow
}

// modelFlow is one direction of a link: what the end with this index has sent.
type modelFlow struct {
	data  []byte
	first bool // the handshake message was delivered
	eof   bool // the sender has closed its socket
	over  bool // the receiver has seen that
}

// modelWorld is one state.
type modelWorld struct {
	t     testing.TB
	f     *modelFixture
	sides [2]*modelSide
	links []*modelLink
	path  []string
	now   time.Time // of the latest timeout
}

// modelStart is the state in which histories begin.
type modelStart struct {
	name  string
	modes [2]uct.DialMode
	eps   [2]int // EPs of each side, over an open connection
	never [2]bool
	steps []modelStep
}

func newModelWorld(t testing.TB, f *modelFixture, s *modelStart) *modelWorld {
	w := &modelWorld{t: t, f: f, now: time.Now()}
	for i := range w.sides {
		m := &modelSide{w: w, name: string(rune('a' + i)), mode: s.modes[i]}
		idle := time.Hour
		if s.never[i] {
			idle = 0
		}
		it := newIface(f.md, f.dev, f.cfg, uct.IfaceParams{
			IdleTimeout: idle, OnError: func(_ uct.EP, err error) { m.errs = append(m.errs, err) },
		}, nil, f.pairs[i])
		require.NoError(t, it.poll.Open(&ticker{it}, &it.undo))
		it.undo.Add(it.poll.CloseAll)
		it.addr.port4 = 1
		it.fillAttr()
		it.dialSocket = func(path, *Config) (int, error) { return w.dial(m) }
		m.it = it
		require.NoError(t, it.SetAMHandler(msgID, uct.AMHandlerFunc(func(d []byte, _ uct.Desc) bool {
			m.got = append(m.got, binary.LittleEndian.Uint64(d))
			return false
		})))
		w.sides[i] = m
	}
	a, b := w.sides[0], w.sides[1]
	a.peer, b.peer = b, a
	w.connect(s)
	return w
}

// connect opens the connection between the sides, as the handshake would do.
func (w *modelWorld) connect(s *modelStart) {
	l := &modelLink{dialer: w.sides[0], ends: [2]int{-1, -1}}
	if !l.dialer.mode.Trusted() {
		l.dialer = w.sides[1]
	}
	w.links = append(w.links, l)
	for _, m := range w.sides {
		own, other, err := socketPair()
		require.NoError(w.t, err)
		c := &conn{it: m.it, key: m.peer.it.addr.key, secret: w.f.secret, canClose: true}
		if m == l.dialer {
			d := ifaceAddr{port4: 1, key: c.key, seg: m.it.addr.seg}
			c.path, err = m.it.reach(&deviceAddr{loopback: true, host: hostID(), v4: defaultV4}, &d)
			require.NoError(w.t, err)
		}
		at := l.end(m)
		l.ends[at], l.owner[at], l.flows[at].first = other, own, true
		sock := link{fd: own}
		require.NoError(w.t, sock.watch(&m.it.poll, unix.EPOLLIN, c))
		m.it.addConn(c)
		c.open(sock, 1)
	}
	for i, m := range w.sides {
		for range s.eps[i] {
			m.newEP()
		}
		m.run()
	}
}

func (w *modelWorld) close() {
	for _, m := range w.sides {
		for _, e := range m.eps {
			e.PurgePending(func(*uct.PendingReq) {})
			_ = e.Close()
		}
	}
	for _, l := range w.links {
		for _, fd := range l.ends {
			if fd >= 0 {
				_ = unix.Close(fd)
			}
		}
	}
	for _, m := range w.sides { // Close would wait for the network
		for _, c := range m.it.allConns() {
			c.fail(errNoBye)
		}
		m.it.cleanBroken()
		require.NoError(w.t, m.it.Close())
	}
}

func socketPair() (own, other int, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	return fds[0], fds[1], err
}

// dial starts a link of m.
func (w *modelWorld) dial(m *modelSide) (int, error) {
	own, other, err := socketPair()
	if err == nil {
		w.links = append(w.links, &modelLink{dialer: m, ends: [2]int{other, -1}, owner: [2]int{own, -1}})
	}
	return own, err
}

// end returns the index of the end of l at m.
func (l *modelLink) end(m *modelSide) int {
	if l.dialer == m {
		return 0
	}
	return 1
}

// side returns the side at an end.
func (l *modelLink) side(end int) *modelSide {
	if end == 0 {
		return l.dialer
	}
	return l.dialer.peer
}

// run makes progress on m until it has nothing to do.
func (m *modelSide) run() {
	for busy := true; busy; {
		m.it.pollEpollNext()
		busy = m.it.Progress() > 0 || len(m.it.dirty)+len(m.it.broken) > 0
	}
	m.w.collect()
}

// collect reads what the sides have sent.
func (w *modelWorld) collect() {
	buf := make([]byte, 4<<10)
	for _, l := range w.links {
		for i, fd := range l.ends {
			if fd < 0 || l.flows[i].eof {
				continue
			}
			for {
				n, err := unix.Read(fd, buf)
				if err == unix.EAGAIN {
					break
				}
				if n > 0 {
					l.flows[i].data = append(l.flows[i].data, buf[:n]...)
					continue
				}
				l.flows[i].eof = true
				if err == unix.ECONNRESET { // closed with unread bytes: TCP sends RST instead of the rest
					l.flows[i].data = nil
				}
				break
			}
		}
	}
	w.links = slices.DeleteFunc(w.links, func(l *modelLink) bool {
		neverSent := l.ends[1] < 0 && l.flows[0].eof && len(l.flows[0].data) == 0
		over := l.flows[0].eof && l.flows[1].eof
		if neverSent || over {
			for _, fd := range l.ends {
				if fd >= 0 {
					_ = unix.Close(fd)
				}
			}
		}
		return neverSent || over
	})
}

// next returns the next message of a flow; nil if there is none.
func (f *modelFlow) next() []byte {
	n := helloLen
	if f.first {
		if len(f.data) < frameLen {
			return nil
		}
		n = frameLen + int(binary.LittleEndian.Uint32(f.data))
	}
	if len(f.data) < n {
		return nil
	}
	return f.data[:n]
}

// canDeliver reports whether the flow from an end has a message or an end of stream to deliver.
func (l *modelLink) canDeliver(from int) bool {
	f := &l.flows[from]
	return f.next() != nil || f.eof && !f.over && !l.flows[1-from].eof && l.ends[1-from] >= 0
}

// deliver delivers the next message, or the end of the stream, from an end of l.
func (w *modelWorld) deliver(l *modelLink, from int) {
	f, to := &l.flows[from], 1-from
	b := f.next()
	if l.ends[to] < 0 { // the HELLO
		own, other, err := socketPair()
		require.NoError(w.t, err)
		l.ends[to], l.owner[to] = other, own
		f.data, f.first = f.data[len(b):], true
		_, err = unix.Write(other, b)
		require.NoError(w.t, err)
		l.side(to).it.receiveConn(own, source{})
		l.side(to).run()
		return
	}
	switch {
	case b == nil:
		f.over = true
		require.NoError(w.t, unix.Shutdown(l.ends[to], unix.SHUT_WR))
	case l.flows[to].eof: // data for a closed socket: TCP replies with RST, and drops what the socket has not sent
		f.data, f.first, l.flows[to].data = f.data[len(b):], true, nil
	default:
		f.data, f.first = f.data[len(b):], true
		_, err := unix.Write(l.ends[to], b)
		require.NoError(w.t, err)
	}
	l.side(to).run()
}

// settle delivers everything, in turns. What was sent over later links arrives first.
func (w *modelWorld) settle() {
	for _, m := range w.sides {
		m.run()
	}
	for busy, n := true, 0; busy; n++ {
		require.Less(w.t, n, 1000, "%v\n%s", w.path, w.key())
		busy = false
		for _, l := range slices.Backward(slices.Clone(w.links)) {
			for from := range 2 {
				if slices.Contains(w.links, l) && l.canDeliver(from) {
					w.deliver(l, from)
					busy = true
				}
			}
		}
	}
}

// newEP makes an EP.
func (m *modelSide) newEP() {
	e, err := m.it.NewEP(uct.EPParams{
		DeviceAddr: m.peer.it.DeviceAddr(nil), IfaceAddr: m.peer.it.IfaceAddr(nil), Dial: m.mode,
	})
	require.NoError(m.w.t, err)
	m.eps = append(m.eps, e.(*endpoint))
	m.made++
	m.run()
}

// modelEPShift is the position of the number of the EP in a message.
const modelEPShift = 8

// modelPost is a message that waits for resources.
type modelPost struct {
	uct.PendingReq
	e      *endpoint
	number uint64
}

// post posts a message on the latest EP.
func (m *modelSide) post() {
	p := &modelPost{e: m.eps[len(m.eps)-1], number: m.made<<modelEPShift | uint64(len(m.sent))}
	m.sent = append(m.sent, p.number)
	p.Func = func(*uct.PendingReq) error { return p.e.AMShort(msgID, p.number, nil) }
	for {
		err := p.Func(&p.PendingReq)
		if err == nil {
			break
		}
		require.Equal(m.w.t, uct.ErrNoResource, err, "%v", m.w.path)
		if err = p.e.AddPending(&p.PendingReq); err != uct.ErrBusy {
			require.NoError(m.w.t, err)
			break
		}
	}
	m.run()
}

// closeEP closes the oldest EP, which has no pending message.
func (m *modelSide) closeEP() {
	require.NoError(m.w.t, m.eps[0].Close())
	m.eps = m.eps[1:]
	m.run()
}

// timeout makes the time without EPs pass.
func (m *modelSide) timeout() {
	w := m.w
	w.now = w.now.Add(24 * time.Hour)
	m.it.checkUnusedConns(w.now)
	m.run()
}

// modelStep is an event. It refers to a link by its index.
type modelStep struct {
	name string
	side int
	link int
}

const (
	stepDeliver = "deliver"
	stepNewEP   = "new EP"
	stepClose   = "close EP"
	stepPost    = "post"
	stepTimeout = "timeout"
)

// Steps on the first link.
func timeoutOf(side int) modelStep { return modelStep{name: stepTimeout, side: side} }
func deliverTo(side int) modelStep { return modelStep{name: stepDeliver, side: side} }
func newEPOf(side int) modelStep   { return modelStep{name: stepNewEP, side: side} }

func (w *modelWorld) do(s modelStep) {
	w.path = append(w.path, fmt.Sprintf("%s %c %d", s.name, 'a'+s.side, s.link))
	m := w.sides[s.side]
	switch s.name {
	case stepDeliver:
		l := w.links[s.link]
		w.deliver(l, l.end(m.peer))
	case stepNewEP:
		m.newEP()
	case stepClose:
		m.closeEP()
	case stepPost:
		m.post()
	case stepTimeout:
		m.timeout()
	}
	require.Empty(w.t, slices.Concat(w.sides[0].errs, w.sides[1].errs), "%v", w.path)
}

// Bounds of a world.
const (
	modelMaxEPs   = 2
	modelMaxPosts = 3
)

// steps returns the events that are possible.
func (w *modelWorld) steps() (all []modelStep) {
	for i, l := range w.links {
		for from := range 2 {
			if l.canDeliver(from) {
				all = append(all, modelStep{stepDeliver, slices.Index(w.sides[:], l.side(1-from)), i})
			}
		}
	}
	for i, m := range w.sides {
		if len(m.eps) < modelMaxEPs {
			all = append(all, modelStep{name: stepNewEP, side: i})
		}
		if len(m.eps) > 0 && m.eps[0].pending.Empty() {
			all = append(all, modelStep{name: stepClose, side: i})
		}
		if len(m.eps) > 0 && len(m.sent) < modelMaxPosts {
			all = append(all, modelStep{name: stepPost, side: i})
		}
		if len(m.it.unused) > 0 {
			all = append(all, modelStep{name: stepTimeout, side: i})
		}
	}
	return all
}

// linkAt returns the index of the link with a socket of m; -1 if there is none.
func (m *modelSide) linkAt(fd int) int {
	return slices.IndexFunc(m.w.links, func(l *modelLink) bool {
		i := l.end(m)
		return fd >= 0 && l.owner[i] == fd && !l.flows[i].eof
	})
}

// key contains the state on which later events depend.
func (w *modelWorld) key() string {
	var b strings.Builder
	for _, m := range w.sides {
		fmt.Fprint(&b, m.name, m.sent, m.got, len(m.eps), ":")
		conns := slices.Clone(m.it.known.All())
		for _, c := range conns {
			at, held := -1, -1
			if c.attempt != nil {
				at = m.linkAt(c.attempt.fd)
			}
			if c.deferredHello != nil {
				held = m.linkAt(c.deferredHello.fd)
			}
			fmt.Fprint(&b, c.state, c.closing, m.linkAt(c.fd), at, held, c.path.isKnown(), c.unproven != nil, c.canClose, c.sentUsed,
				c.dialsRails, c.postWhenOpen, c.inUnused, c.closesWhenDrained, c.tries, c.replaces != 0, c.sent, c.acked, c.executed, c.awaitingReply.n,
				c.rx.tail-c.rx.head, c.tx.empty(), c.gotBye)
			for _, e := range c.eps.All() {
				fmt.Fprint(&b, ",", slices.Index(m.eps, e), e.postAfter > c.acked, e.pending.Len(), e.sent)
			}
		}
		for _, p := range m.it.unproven.all {
			if p.in != nil {
				fmt.Fprint(&b, ";", m.linkAt(p.in.fd), p.in.deferred, p.in.hello.got)
			}
		}
		fmt.Fprint(&b, "\n")
	}
	for _, l := range w.links {
		fmt.Fprint(&b, l.dialer.name, l.ends[1] >= 0)
		for i, f := range l.flows {
			fmt.Fprint(&b, " ", l.side(i).name, f.first, f.eof, f.over)
			for m := f.next(); m != nil; m = f.next() {
				if !f.first {
					h, _ := parseHello((*[helloLen]byte)(m), m[offMsg])
					fmt.Fprint(&b, " hello", h.msg, h.code, h.other != 0)
				} else {
					fmt.Fprint(&b, " ", m)
				}
				f.data, f.first = f.data[len(m):], true
			}
		}
		fmt.Fprint(&b, "\n")
	}
	return b.String()
}

// finish delivers everything and checks the result. Then no EP uses the connection, which is closed.
func (w *modelWorld) finish() {
	for _, m := range w.sides {
		if len(m.eps) == 0 && m.mode.Trusted() { // the other side may wait for a connection
			m.newEP()
		}
	}
	w.settle()
	state := func() string { return strings.Join(w.path, ", ") + "\n" + w.key() }
	for _, m := range w.sides {
		// Messages of one EP arrive in order.
		got := slices.Clone(m.got)
		slices.SortStableFunc(got, func(a, b uint64) int { return cmp.Compare(a>>modelEPShift, b>>modelEPShift) })
		require.True(w.t, slices.Equal(m.peer.sent, got), "sent by %s: %v, received %v: %s", m.peer.name, m.peer.sent, m.got, state())
		require.Empty(w.t, m.errs, state())
		require.Empty(w.t, m.it.unproven.handshakes(), state())
		for _, e := range m.eps {
			_, err := e.Flush(nil)
			require.NoError(w.t, err)
		}
	}
	w.settle()
	require.LessOrEqual(w.t, len(w.links), 1, state())
	for _, m := range w.sides {
		for len(m.eps) > 0 {
			m.closeEP()
		}
	}
	w.settle()
	for range 4 { // the first timeouts may request a flush
		for _, m := range w.sides {
			m.timeout()
			w.settle()
		}
	}
	for _, m := range w.sides {
		require.Empty(w.t, m.errs, state())
		require.Empty(w.t, m.it.table, "not closed by %s: %s", m.name, state())
		require.Zero(w.t, m.it.openCount, state())
		require.Empty(w.t, m.it.unused, state())
	}
	require.Empty(w.t, w.links, state())
}

// handshakes returns the connections whose HELLO was not answered.
func (u *unprovenSet) handshakes() (all []*incoming) {
	for _, p := range u.all {
		if p.in != nil {
			all = append(all, p.in)
		}
	}
	return all
}

// replay returns the state after the steps.
func replay(t testing.TB, f *modelFixture, start *modelStart, steps []modelStep) *modelWorld {
	w := newModelWorld(t, f, start)
	for _, s := range slices.Concat(start.steps, steps) {
		w.do(s)
	}
	return w
}

// explore visits every state that is reached within depth steps, and finishes each. It returns their number.
func explore(t *testing.T, f *modelFixture, start *modelStart, depth int) int {
	seen := map[string]bool{}
	frontier := [][]modelStep{nil}
	for n := 0; n <= depth && len(frontier) > 0; n++ {
		var next [][]modelStep
		for _, steps := range frontier {
			w := replay(t, f, start, steps)
			if k := w.key(); !seen[k] {
				seen[k] = true
				for _, s := range w.steps() {
					next = append(next, append(slices.Clone(steps), s))
				}
				w.finish()
			}
			w.close()
		}
		frontier = next
	}
	return len(seen)
}

// TestExplore_Unused explores all orders in which EPs are made, closed and used, timeouts pass, and
// messages and ends of streams arrive. No message is lost, duplicated or reordered, no EP fails, and
// a connection without EPs is closed in the end.
func TestExplore_Unused(t *testing.T) {
	testenv.SkipRace(t, "one goroutine has both sides")
	for _, s := range []modelStart{
		{name: "both dial"},
		{name: "both dial at once", modes: [2]uct.DialMode{uct.DialNow, uct.DialNow}},
		{name: "one dials", modes: [2]uct.DialMode{uct.DialNow, uct.DialByPeer}},
		{name: "the other dials", modes: [2]uct.DialMode{uct.DialByPeer, uct.DialNow}, eps: [2]int{0, 1}},
		{name: "an EP on one side", eps: [2]int{1, 0}},
		{name: "only one side has a timeout", eps: [2]int{0, 1}, never: [2]bool{true, false}},
		{name: "one has proposed", steps: []modelStep{timeoutOf(0)}},
		{name: "the side that cannot dial has proposed", modes: [2]uct.DialMode{uct.DialByPeer, uct.DialNow}, steps: []modelStep{timeoutOf(0)}},
		{name: "both have proposed", steps: []modelStep{timeoutOf(0), timeoutOf(1)}},
		{name: "both have proposed, and one connects", modes: [2]uct.DialMode{uct.DialNow, uct.DialNow},
			steps: []modelStep{timeoutOf(0), timeoutOf(1), deliverTo(0), newEPOf(0)}},
		{name: "both have proposed, and the other connects", modes: [2]uct.DialMode{uct.DialNow, uct.DialNow},
			steps: []modelStep{timeoutOf(0), timeoutOf(1), deliverTo(1), newEPOf(1)}},
	} {
		t.Run(s.name, func(t *testing.T) {
			f := newModelFixture(t)
			depth := 4
			switch {
			case testenv.Sweep(): // a step more is three times as many states
				depth += 3
			case testing.Short():
				depth--
			}
			n := explore(t, f, &s, depth)
			t.Logf("%d states", n)
			require.Greater(t, n, 20)
		})
	}
}
