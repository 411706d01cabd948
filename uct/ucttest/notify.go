package ucttest

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/uct"
)

var notifyChecks = []check{
	{
		name: "notify/sizes",
		rule: "a put with notification, of any length, delivers its notification once, after its data; a put of 0 bytes delivers the notification alone",
		need: uct.CapNotify, run: checkNotifySizes,
	},
	{
		name: "notify/order",
		rule: "notifications and messages of one EP arrive in order, once each, under backpressure",
		need: uct.CapNotify | uct.CapAM, run: checkNotifyOrder,
	},
	{
		name: "notify/fence",
		rule: "a notification posted after a fence is delivered after the puts and atomics before the fence have taken effect",
		need: uct.CapNotify, run: checkNotifyFence,
	},
	{
		name: "notify/refused",
		rule: "a put with notification that exceeds the limits of put, or whose buffer is not registered, returns ErrTooLong or ErrInvalidParam and delivers no notification",
		need: uct.CapNotify, run: checkNotifyRefused,
	},
	{
		name: "notify/failed",
		rule: "notifications and messages posted after a put that failed at the target are not delivered",
		need: uct.CapNotify | uct.CapErrRemoteMem, run: checkNotifyFailed,
	},
	{
		name: "notify/unhandled",
		rule: "notifications without a handler are dropped and use up no resources",
		need: uct.CapNotify, run: checkNotifyUnhandled,
	},
}

// wordBox is a handler that records notifications and calls look for each.
type wordBox struct {
	got  []uint32
	look func(word uint32)
}

// HandleNotify implements uct.NotifyHandler.
func (b *wordBox) HandleNotify(word uint32) {
	b.got = append(b.got, word)
	if b.look != nil {
		b.look(word)
	}
}

// notes sets a handler on l that records the notifications of l.
func notes(l *link) *wordBox {
	b := &wordBox{}
	l.EP.Ops().Notify.SetNotifyHandler(b)
	return b
}

// claimedNotify returns the variants of a put with notification. Each posts the value of *word.
func claimedNotify(a *uct.IfaceAttr, word *uint32) []putVariant {
	m := &a.Put
	pieces := func(n int) func(*pair, *link, uint64, uct.RKey, []byte) error {
		return func(p *pair, l *link, raddr uint64, key uct.RKey, data []byte) error {
			return p.zcopy(l.From, data, split(len(data), n), func(iov []uct.IOV, c *uct.Completion) (bool, error) {
				return l.EP.Ops().Notify.NotifyZcopy(iov, raddr, key, *word, c)
			})
		}
	}
	return []putVariant{
		{opVariant{"bcopy", uct.CapPutBcopy, 0, m.MaxBcopy}, func(_ *pair, l *link, raddr uint64, key uct.RKey, data []byte) error {
			buf := append([]byte{}, data...)
			err := l.EP.Ops().Notify.NotifyBcopy(buf, raddr, key, *word)
			scribble(buf)
			return err
		}},
		{opVariant{"zcopy", uct.CapPutZcopy, m.MinZcopy, m.MaxZcopy}, pieces(1)},
		{opVariant{"zcopy iov", uct.CapPutZcopy, m.MinZcopy, m.MaxZcopy}, pieces(m.MaxIOV)},
	}
}

func checkNotifySizes(t checkT, p *pair) {
	target, word := p.B.Mem.Bytes(), uint32(0)
	for _, v := range claimedNotify(p.A.Iface.Attr(), &word) {
		for i, n := range v.rmaLens() {
			off := 16 + i%9
			scribble(target)
			data, box := pattern(n, n), notes(p.BA)
			box.look = func(uint32) {
				assert.True(t, bytes.Equal(data, target[off:off+n]), "%s of %d bytes: the notification arrived before the data", v.name, n)
			}
			word = ^uint32(i) // all of its bits
			require.NoError(t, p.push(t, func() error { return v.put(p, p.AB, p.AB.Raddr+uint64(off), p.AB.Key, data) }), v.name)
			p.until(t, "no notification", func() bool { return len(box.got) > 0 })
			p.flush(t, p.AB)
			p.settle()
			assert.Equal(t, []uint32{word}, box.got, "%s of %d bytes", v.name, n)
			assert.True(t, untouched(target[:off]) && untouched(target[off+n:]), "%s of %d bytes wrote outside its range", v.name, n)
		}
	}
}

// notifyRounds is larger than the depth of the queues in these checks.
const notifyRounds = 120

func checkNotifyOrder(t checkT, p *pair) {
	word, sent := uint32(0), []uint32{}
	ways, am := claimedNotify(p.A.Iface.Attr(), &word), anyAM(p.A.Iface.Attr())
	box := notes(p.BA)
	require.NoError(t, p.B.Iface.SetAMHandler(3, uct.AMHandlerFunc(func([]byte, uct.Desc) bool {
		box.got = append(box.got, uint32(len(box.got)))
		return false
	})))
	for i := range uint32(notifyRounds) {
		word, sent = i, append(sent, i)
		post := func() error { return am.send(p, p.AB, 3, pattern(0, 64)) }
		if i%5 < 4 {
			v := ways[int(i)%len(ways)]
			post = func() error { return v.put(p, p.AB, p.AB.Raddr, p.AB.Key, pattern(0, 64)) }
		}
		require.NoError(t, p.push(t, post))
	}
	p.until(t, "not all arrived", func() bool { return len(box.got) >= notifyRounds })
	p.flush(t, p.AB)
	p.settle()
	assert.Equal(t, sent, box.got)
}

func checkNotifyFence(t checkT, p *pair) {
	word, box, place := uint32(0), notes(p.BA), p.B.Mem.Bytes()[placeOff:placeOff+wordBytes]
	value, what := uint64(0), ""
	box.look = func(uint32) {
		assert.Equal(t, value, binary.NativeEndian.Uint64(place), "%s, fence, notification", what)
	}
	for _, v := range claimedNotify(p.A.Iface.Attr(), &word) {
		for _, x := range steps(p.A.Iface.Attr()) {
			if x.reads {
				continue
			}
			what, value = x.name, value+1
			r := &row{l: p.AB}
			s := p.pushStep(t, r, &x, value)
			p.fenced(t, p.AB.EP.Fence)
			before := len(box.got)
			require.NoError(t, p.push(t, func() error { return v.put(p, p.AB, p.AB.Raddr+blockLen, p.AB.Key, pattern(0, 64)) }))
			p.until(t, "no notification", func() bool { return len(box.got) > before && s.done })
		}
	}
}

func checkNotifyRefused(t checkT, p *pair) {
	box, put, n := notes(p.BA), &p.A.Iface.Attr().Put, p.AB.EP.Ops().Notify
	assert.Equal(t, uct.ErrTooLong, n.NotifyBcopy(make([]byte, put.MaxBcopy+1), p.AB.Raddr, p.AB.Key, 1))
	c := p.comp(1)
	c.expect = 0
	_, err := n.NotifyZcopy(make([]uct.IOV, put.MaxIOV+1), p.AB.Raddr, p.AB.Key, 2, &c.Completion)
	assert.Equal(t, uct.ErrTooLong, err, "pieces")
	if p.A.MD.Attr().NeedMemH {
		_, err = n.NotifyZcopy([]uct.IOV{{Buf: make([]byte, 64)}}, p.AB.Raddr, p.AB.Key, 3, &c.Completion)
		assert.Equal(t, uct.ErrInvalidParam, err, "no Mem")
	}
	require.NoError(t, p.push(t, func() error { return n.NotifyBcopy(nil, 0, 0, 4) }))
	p.until(t, "no notification", func() bool { return len(box.got) > 0 })
	p.settle()
	assert.Equal(t, []uint32{4}, box.got)
}

func checkNotifyFailed(t checkT, p *pair) {
	mem := p.memory(t, p.B, 4096, uct.AccessAll)
	key, beyond := p.unpack(t, p.A, mem), mem.Addr()+uint64(len(mem.Bytes()))
	attr, word, messages := p.A.Iface.Attr(), uint32(1), 0
	require.NoError(t, p.B.Iface.SetAMHandler(3, uct.AMHandlerFunc(func([]byte, uct.Desc) bool {
		messages++
		return false
	})))
	am := anyAM(attr)
	for _, v := range slices.Concat(claimedPut(attr), claimedNotify(attr, &word)) {
		l, back := p.connect(t, p.A, p.B)
		box := notes(back)
		data := pattern(1, v.clamp(8))
		if err := p.push(t, func() error { return v.put(p, l, beyond, key, data) }); err != nil {
			require.ErrorIs(t, err, uct.ErrRemoteAccess, v.name)
			continue // the put was not posted
		}
		l.failed, back.mayFail = true, true // a device may fail both EPs of the connection
		for _, post := range []func() error{
			l.EP.Fence,
			func() error { return l.EP.Ops().Notify.NotifyBcopy(nil, 0, 0, word) },
			func() error { return am.send(p, l, 3, pattern(0, 64)) },
		} {
			if err := post(); err != nil && err != uct.ErrNoResource {
				require.ErrorIs(t, err, uct.ErrEPFailed, v.name)
			}
		}
		p.until(t, "the put did not fail", func() bool { return p.failures(l) > 0 })
		p.settle()
		assert.Empty(t, box.got, "%s: a word came", v.name)
		assert.Zero(t, messages, "%s: a message came", v.name)
		p.closeLink(t, l)
		p.closeLink(t, back)
	}
}

func checkNotifyUnhandled(t checkT, p *pair) {
	box := notes(p.BA)
	p.BA.EP.Ops().Notify.SetNotifyHandler(nil)
	notify := func(l *link, word uint32) {
		require.NoError(t, p.push(t, func() error { return l.EP.Ops().Notify.NotifyBcopy([]byte{1}, l.Raddr, l.Key, word) }))
		p.flush(t, l)
		p.settle()
	}
	for range tinyRxDepth + 1 { // more than the receives and credits of the connection
		notify(p.AB, 1)
	}
	assert.Empty(t, box.got, "no handler")
	p.BA.EP.Ops().Notify.SetNotifyHandler(box)
	notify(p.AB, 2)
	p.until(t, "no notification", func() bool { return len(box.got) > 0 })
	assert.Equal(t, []uint32{2}, box.got)
}
