package ucttest

import (
	"bytes"
	"maps"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs/stats"
	"github.com/gucx/gucx/uct"
)

var amChecks = []check{
	{
		name: "am/sizes",
		rule: "a message arrives with the payload the concatenation of header and data; the caller's buffer is free on return (short, bcopy) or at completion (zcopy)",
		any:  uct.CapAM, run: checkAMSizes,
	},
	{
		name: "am/too-long",
		rule: "a send that exceeds the limit of the variant returns ErrTooLong and has no effect",
		any:  uct.CapAM, run: checkAMTooLong,
	},
	{
		name: "am/iov",
		rule: "AMZcopy sends the bytes of all pieces, in order, empty ones too; more than MaxIOV is ErrTooLong",
		need: uct.CapAMZcopy, run: checkAMIOV,
	},
	{
		name: "am/packer",
		rule: "AMBcopy calls the packer once, with a buffer of AM.MaxBcopy bytes, and not if AMBcopy returns an error",
		need: uct.CapAMBcopy, run: checkPacker,
	},
	{
		name: "am/ids",
		rule: "messages go to the handler of their id; those without a handler are dropped and counted; ids over MaxAMID are ErrInvalidParam",
		any:  uct.CapAM, run: checkAMIDs,
	},
	{
		name: "am/post-in-handler",
		rule: "handlers run inside Progress and may post",
		any:  uct.CapAM, run: checkPostInHandler,
	},
	{
		name: "am/post-in-completion",
		rule: "completions run inside Progress and may post and reuse their Completion",
		need: uct.CapAMZcopy, run: checkPostInCompletion,
	},
	{
		name: "am/both-ways",
		rule: "messages of one EP arrive once each and in order, under backpressure and with both sides sending",
		any:  uct.CapAM, run: checkBothWays,
	},
}

// expect waits for the messages and compares them with want.
func (p *pair) expect(t checkT, in *inbox, what string, want ...[]byte) {
	t.Helper()
	p.until(t, what+": not all messages arrived", func() bool { return len(in.msgs) >= len(want) })
	require.Len(t, in.msgs, len(want), "%s: number of messages", what)
	for i := range want {
		if !bytes.Equal(want[i], in.msgs[i]) {
			t.Errorf("%s: message %d of %d bytes arrived wrong (%d bytes, first difference at %d)",
				what, i, len(want[i]), len(in.msgs[i]), difference(want[i], in.msgs[i]))
		}
	}
	in.msgs = nil
}

// difference returns the first index at which a and b differ.
func difference(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

func checkAMSizes(t checkT, p *pair) {
	in := newInbox(t, p.B, 3)
	for _, v := range claimedAM(p.A.Iface.Attr()) {
		for _, n := range v.sizes() {
			msg := pattern(n, n)
			err := p.push(t, func() error { return v.send(p, p.AB, 3, msg) })
			require.NoError(t, err, "am %s of %d bytes", v.name, n)
			p.expect(t, in, "am "+v.name, msg)
		}
	}
	p.settle()
	assert.Empty(t, in.msgs, "messages that nobody sent")
}

func checkAMTooLong(t checkT, p *pair) {
	in := newInbox(t, p.B, 3)
	a := p.A.Iface.Attr()
	for _, v := range claimedAM(a) {
		if v.cap == uct.CapAMBcopy { // the packer cannot write beyond its buffer
			continue
		}
		if v.max+1 > limitLen {
			t.Logf("am %s: limit of %d bytes is beyond what is tried", v.name, v.max)
			continue
		}
		err := p.push(t, func() error { return v.send(p, p.AB, 3, make([]byte, v.max+1)) })
		assert.ErrorIs(t, err, uct.ErrTooLong, "am %s of %d bytes", v.name, v.max+1)
	}
	if a.Caps.Has(uct.CapAMZcopy) && a.AM.MaxHeader < limitLen {
		_, err := p.AB.AM.AMZcopy(3, make([]byte, a.AM.MaxHeader+1), nil, nil)
		assert.ErrorIs(t, err, uct.ErrTooLong, "header of %d bytes", a.AM.MaxHeader+1)
	}
	v := anyAM(a)
	require.NoError(t, p.push(t, func() error { return v.send(p, p.AB, 3, pattern(1, 64)) }))
	p.expect(t, in, "the message after the refused ones", pattern(1, 64))
}

// shapes returns lists of IOV lengths whose sum is total, such as with empty and 1-byte IOVs.
func shapes(total, maxIOV int) [][]int {
	all := [][]int{{total}, {0, total}, {total, 0}, {1, total - 1}, {total - 1, 1}, {1, 0, total - 1}}
	even := make([]int, maxIOV)
	for i := range total {
		even[i%maxIOV]++
	}
	all = append(all, even)
	var out [][]int
	for _, s := range all {
		if len(s) <= maxIOV {
			out = append(out, s)
		}
	}
	return out
}

func checkAMIOV(t checkT, p *pair) {
	in := newInbox(t, p.B, 3)
	a := p.A.Iface.Attr()
	for _, header := range []int{0, 1, a.AM.MaxHeader} {
		total := max(a.AM.MinZcopy, min(100, a.AM.MaxZcopy-a.AM.MaxHeader))
		if header > a.AM.MaxHeader || total < 2 {
			continue
		}
		for _, lens := range shapes(total, a.AM.MaxIOV) {
			hdr, body := pattern(header, header), pattern(total, total)
			require.NoError(t, p.sendShape(t, p.AB, hdr, body, lens), "shape %v", lens)
			p.expect(t, in, "am zcopy", append(hdr[:len(hdr):len(hdr)], body...))
		}
	}
	if a.AM.MaxIOV < 1024 {
		_, err := p.AB.AM.AMZcopy(3, nil, make([]uct.IOV, a.AM.MaxIOV+1), nil)
		assert.ErrorIs(t, err, uct.ErrTooLong, "%d pieces", a.AM.MaxIOV+1)
	}
}

func (p *pair) sendShape(t checkT, l *link, hdr, body []byte, lens []int) error {
	return p.push(t, func() error {
		return p.zcopy(l.From, body, lens, func(iov []uct.IOV, c *uct.Completion) (bool, error) {
			return l.AM.AMZcopy(3, hdr, iov, c)
		})
	})
}

func checkPacker(t checkT, p *pair) {
	in := newInbox(t, p.B, 3)
	k := &bytesPacker{data: pattern(1, 32)}
	refused := 0
	err := p.push(t, func() error {
		k.calls = 0
		n, err := p.AB.AM.AMBcopy(3, k)
		if err != nil {
			refused++
			assert.Zero(t, k.calls, "the packer ran although the post was refused")
			return err
		}
		assert.Equal(t, 1, k.calls, "calls of the packer")
		assert.Equal(t, p.A.Iface.Attr().AM.MaxBcopy, k.room, "room for the packer")
		assert.Equal(t, len(k.data), n)
		return nil
	})
	require.NoError(t, err)
	p.expect(t, in, "am bcopy", k.data)
	_, err = p.AB.AM.AMBcopy(uct.MaxAMID+1, k)
	assert.ErrorIs(t, err, uct.ErrInvalidParam)
}

func checkAMIDs(t checkT, p *pair) {
	v := anyAM(p.A.Iface.Attr())
	boxes := make([]*inbox, uct.MaxAMID+1)
	for id := range boxes {
		boxes[id] = newInbox(t, p.B, uint8(id))
	}
	assert.ErrorIs(t, p.B.Iface.SetAMHandler(uct.MaxAMID+1, boxes[0]), uct.ErrInvalidParam)
	assert.ErrorIs(t, v.send(p, p.AB, uct.MaxAMID+1, pattern(0, 64)), uct.ErrInvalidParam)
	for id := range boxes {
		require.NoError(t, p.push(t, func() error { return v.send(p, p.AB, uint8(id), pattern(id, 64)) }))
	}
	for id, in := range boxes {
		p.expect(t, in, "by id", pattern(id, 64))
	}
	require.NoError(t, p.B.Iface.SetAMHandler(5, nil))
	for i := range 3 * tinyRxDepth { // dropped messages must not use up the receive queue
		require.NoError(t, p.push(t, func() error { return v.send(p, p.AB, 5, pattern(i, 64)) }))
	}
	require.NoError(t, p.push(t, func() error { return v.send(p, p.AB, 6, pattern(6, 64)) }))
	p.expect(t, boxes[6], "after unknown ids", pattern(6, 64))
	assert.Empty(t, boxes[5].msgs, "a removed handler was called")
	if c := p.B.Iface.Ext().Stats; c != nil {
		n := stats.New("iface")
		c.AddStats(n)
		counted := maps.Collect(n.Snapshot().All())
		assert.Equal(t, uint64(3*tinyRxDepth), counted["iface.no_handler"], "counted: %v", counted)
	}
}

// echo replies to each message with the next, until last.
type echo struct {
	p     *pair
	l     *link
	v     amVariant
	next  int
	last  int
	retry uct.PendingReq
	err   error
}

func (e *echo) HandleAM(data []byte, _ uct.Desc) bool {
	if want := pattern(e.next, 64); !bytes.Equal(data, want) {
		e.p.complain("message %d arrived wrong", e.next)
	}
	e.next += 2
	if e.next <= e.last {
		e.post()
	}
	return false
}

// post sends the reply now or as a pending request.
func (e *echo) post() {
	for {
		err := e.v.send(e.p, e.l, 4, pattern(e.next-1, 64))
		if err != uct.ErrNoResource {
			e.err = err
			return
		}
		if e.err = e.l.EP.AddPending(&e.retry); e.err != uct.ErrBusy {
			return
		}
	}
}

func checkPostInHandler(t checkT, p *pair) {
	const rounds = 200
	v := anyAM(p.A.Iface.Attr())
	b := &echo{p: p, l: p.BA, v: v, next: 0, last: rounds}
	a := &echo{p: p, l: p.AB, v: v, next: 1, last: rounds + 1}
	for _, e := range []*echo{a, b} {
		e.retry.Func = func(*uct.PendingReq) error { return e.v.send(e.p, e.l, 4, pattern(e.next-1, 64)) }
		require.NoError(t, e.l.From.Iface.SetAMHandler(4, e))
	}
	require.NoError(t, p.push(t, func() error { return v.send(p, p.AB, 4, pattern(0, 64)) }))
	p.until(t, "the exchange stopped", func() bool { return b.next > rounds || a.err != nil || b.err != nil })
	assert.NoError(t, a.err)
	assert.NoError(t, b.err)
	p.settle()
}

func checkPostInCompletion(t checkT, p *pair) {
	const rounds = 100
	in := newInbox(t, p.B, 3)
	n := max(8, p.A.Iface.Attr().AM.MinZcopy)
	buf := p.A.staged.take(n)
	iov := []uct.IOV{{Buf: buf, Mem: p.A.staged.mem}}
	sent, short := 0, false
	var err error
	c := &uct.Completion{}
	post := func() {
		short = false
		for sent < rounds {
			copy(buf, pattern(sent, n))
			c.Count, c.Status = 1, 0
			var pending bool
			pending, err = p.AB.AM.AMZcopy(3, nil, iov, c)
			if err == uct.ErrNoResource {
				short, err = true, nil
				return
			}
			if err != nil {
				return
			}
			sent++
			if pending {
				return
			}
		}
	}
	c.Func = func(*uct.Completion) { post() }
	post()
	p.until(t, "completions stopped", func() bool {
		if short {
			post()
		}
		return sent == rounds && len(in.msgs) == rounds || err != nil
	})
	require.NoError(t, err)
	for i, msg := range in.msgs {
		assert.Equal(t, pattern(i, n), msg, "message %d", i)
	}
	p.settle()
	p.A.staged.giveBack(buf)
}

func checkBothWays(t checkT, p *pair) {
	const count = 500
	links := []*link{p.AB, p.BA}
	boxes := []*inbox{newInbox(t, p.B, 3), newInbox(t, p.A, 3)}
	v := anyAM(p.A.Iface.Attr())
	var sent [2]int
	p.until(t, "traffic stopped", func() bool {
		for i, l := range links {
			for sent[i] < count {
				err := v.send(p, l, 3, pattern(sent[i], 64))
				if err == uct.ErrNoResource {
					break
				}
				require.NoError(t, err)
				sent[i]++
			}
		}
		return len(boxes[0].msgs) >= count && len(boxes[1].msgs) >= count
	})
	p.settle()
	for _, in := range boxes {
		require.Len(t, in.msgs, count)
		for i, msg := range in.msgs {
			require.Equal(t, pattern(i, 64), msg, "message %d", i)
		}
	}
}
