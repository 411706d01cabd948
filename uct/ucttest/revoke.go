package ucttest

import (
	"errors"
	"runtime"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

var revokeChecks = []check{
	{
		name: "revoke/registered",
		rule: "after Mem.Close of registered memory has returned nil, no peer and no transport accesses it, whatever was in flight; the key is refused, and other memory remains accessible",
		need: uct.CapErrRemoteMem, any: uct.CapPut | uct.CapGet | uct.CapAtomic, run: checkRevokeRegistered,
	},
	{
		name: "revoke/allocated",
		rule: "after Mem.Close of allocated memory has returned, the key is refused, and operations in flight do not access new memory at the same address; other memory remains accessible",
		need: uct.CapErrRemoteMem, any: uct.CapPut | uct.CapGet | uct.CapAtomic, run: checkRevokeAllocated,
	},
	{
		name: "revoke/iface",
		rule: "an iface may be closed while peers access memory of its domain, and a later Mem.Close revokes the memory as usual",
		need: uct.CapErrRemoteMem, any: uct.CapPut | uct.CapGet | uct.CapAtomic, run: checkRevokeIface,
	},
	{
		name: "revoke/local",
		rule: "the caller owns a zero-copy buffer again when the completion has fired, also if Close of the EP or iface canceled the operation",
		any:  uct.CapPutZcopy | uct.CapGetZcopy, run: checkRevokeLocal,
	},
}

// revokeRounds returns the number of rounds for each operation. Round i closes the memory after 5*i more steps.
func revokeRounds() int { return testenv.Rounds(2, 10) }

// closeMem closes memory that peers may be accessing. It calls Close again after each InUseError, which Close returns
// after ucs.RevokeLimit, up to 30 times.
func closeMem(t checkT, mem uct.Mem) {
	t.Helper()
	const tries = 30
	var err error
	for range tries {
		var inUse *ucs.InUseError
		if err = mem.Close(); !errors.As(err, &inUse) {
			break
		}
	}
	require.NoError(t, err, "close memory")
}

// region returns floodLen bytes of memory of s: registered or allocated.
type region func(t checkT, p *pair, s *side) uct.Mem

func registered(t checkT, p *pair, s *side) uct.Mem {
	t.Helper()
	reg := s.MD.Ext().Reg
	if reg == nil {
		t.Skipf("the md does not register memory")
	}
	mem, err := reg.Reg(make([]byte, floodLen), uct.AccessAll)
	require.NoError(t, err, "register memory")
	p.mems = append(p.mems, mem)
	return mem
}

func allocated(t checkT, p *pair, s *side) uct.Mem {
	t.Helper()
	alloc := s.MD.Ext().Alloc
	if alloc == nil {
		t.Skipf("the md does not allocate")
	}
	mem, err := alloc.Alloc(floodLen, uct.AccessAll)
	require.NoError(t, err, "allocate memory")
	p.mems = append(p.mems, mem)
	return mem
}

func checkRevokeRegistered(t checkT, p *pair) {
	p.eachFlood(t, func(k *floodKind, round int) {
		v := p.flooded(t, k, p.B, registered)
		v.closeUnder(t, round)
		v.owned = append(v.owned, v.mem)
		v.after(t)
	})
}

func checkRevokeAllocated(t checkT, p *pair) {
	p.eachFlood(t, func(k *floodKind, round int) {
		v := p.flooded(t, k, p.B, allocated)
		v.closeUnder(t, round)
		for range 2 {
			v.owned = append(v.owned, allocated(t, p, p.B))
		}
		v.after(t)
	})
}

// eachFlood calls f for revokeRounds rounds of each operation.
func (p *pair) eachFlood(t checkT, f func(k *floodKind, round int)) {
	t.Helper()
	for _, k := range floodKinds(p.A.Iface.Attr()) {
		for round := range revokeRounds() {
			f(&k, round)
		}
		p.works(t, p.AB, "another ep after the memory was closed during "+k.name)
	}
}

// victim is memory that its owner closes while A accesses it.
type victim struct {
	p     *pair
	s     *side // owner of mem
	mem   uct.Mem
	buf   []byte
	f     *flood
	owned []uct.Mem // memory that only the owner may access after Close of mem
	from  *runner   // drives A; nil if the check's goroutine does
	at    *runner   // drives the owner; nil if the check's goroutine does
}

// flooded opens a region of s and starts a flood of it from A.
func (p *pair) flooded(t checkT, k *floodKind, s *side, open region) *victim {
	t.Helper()
	v := &victim{p: p, s: s, mem: open(t, p, s)}
	v.buf = v.mem.Bytes()
	fillWith(v.buf, oldByte)
	l, back := p.connect(t, p.A, s)
	l.mayFail, back.mayFail = true, true
	v.f = p.newFlood(t, k, l, v.mem.Addr(), p.unpack(t, p.A, v.mem))
	if !p.h.OneGoroutine {
		v.from, v.at = repeat(t, v.f.step), repeat(t, s.progress)
	}
	return v
}

// spend waits until the flood has made the given number of further steps.
func (v *victim) spend(steps int64) {
	for end := v.f.steps.Load() + steps; v.f.steps.Load() < end; runtime.Gosched() {
		v.turn()
	}
}

// turn runs one step of each side that has no goroutine.
func (v *victim) turn() {
	if v.from == nil {
		v.f.step()
	}
	if v.at == nil && v.s.Iface != nil {
		v.s.Iface.Progress()
	}
}

// underWay returns when the EP has accepted three operations, and 5*round steps later.
func (v *victim) underWay(t checkT, round int) {
	t.Helper()
	const accepted = 3
	for v.f.posted.Load() < accepted {
		require.False(t, v.f.ended.Load(), "%v: refused before the memory was closed", v.f)
		v.turn()
		runtime.Gosched()
	}
	v.spend(int64(round * 5))
}

// closeUnder closes the memory while operations are in flight.
func (v *victim) closeUnder(t checkT, round int) {
	t.Helper()
	v.underWay(t, round)
	closeMem(t, v.mem)
}

// after continues the flood for 200 steps and checks that no operation read or wrote the memory in owned, and that the
// key is refused.
func (v *victim) after(t checkT) {
	t.Helper()
	const steps = 200
	for _, m := range v.owned {
		fillWith(m.Bytes(), ownByte)
	}
	v.spend(steps)
	v.join(t)
	for _, m := range v.owned {
		require.True(t, holdsOnly(m.Bytes(), ownByte), "%v: memory was written after it was closed", v.f)
		v.p.drop(t, m)
	}
	require.Zero(t, countByte(v.f.iov[0].Buf, ownByte), "%v: memory was read after it was closed", v.f)
	if v.s.Iface != nil {
		v.p.denied(t, "after the memory was closed", &v.f.kind.access, v.f.raddr, v.f.key)
	}
	v.p.drop(t, v.mem)
	v.p.drop(t, v.f.iov[0].Mem)
}

// drop closes mem and removes it from the memory that the pair closes at the end of the check.
func (p *pair) drop(t checkT, mem uct.Mem) {
	t.Helper()
	closeMem(t, mem)
	p.mems = slices.DeleteFunc(p.mems, func(m uct.Mem) bool { return m == mem })
}

// join stops the goroutines and the flood, and waits for the outstanding completions.
func (v *victim) join(t checkT) {
	t.Helper()
	if v.from != nil {
		v.from.stop()
	}
	if v.at != nil {
		v.at.stop()
	}
	v.f.ended.Store(true)
	v.p.eventually(t, "an operation did not complete", func() bool { return v.f.open == 0 })
}

func checkRevokeIface(t checkT, p *pair) {
	for i, k := range floodKinds(p.A.Iface.Attr()) {
		open := region(registered)
		if i%2 == 1 {
			open = allocated
		}
		c := p.open(t, "C", p.B)
		v := p.flooded(t, &k, c, open)
		v.underWay(t, 1)
		if v.at != nil {
			v.at.stop()
			v.at = nil
		}
		require.NoError(t, c.Iface.Close(), "close iface under %v", v.f)
		c.Iface = nil
		closeMem(t, v.mem)
		if i%2 == 0 {
			v.owned = append(v.owned, v.mem)
		} else { // the allocator may reuse the address range
			v.owned = append(v.owned, allocated(t, p, c))
		}
		v.after(t)
	}
	p.works(t, p.AB, "another iface")
}

// checkRevokeLocal closes an EP or iface while zero-copy operations are in flight. Then it writes their buffers and
// checks that no operation accesses them.
func checkRevokeLocal(t checkT, p *pair) {
	for _, k := range floodKinds(p.A.Iface.Attr()) {
		if k.access.need == uct.AccessRemoteAtomic || k.n < floodLen/64 {
			continue
		}
		for round := range 2 * revokeRounds() {
			p.tryLocal(t, &k, round)
		}
	}
	p.works(t, p.AB, "another ep")
}

func (p *pair) tryLocal(t checkT, k *floodKind, round int) {
	t.Helper()
	c := p.open(t, "C", p.A)
	l, back := p.connect(t, c, p.B)
	back.mayFail = true
	target := p.memory(t, p.B, floodLen, uct.AccessAll)
	fillWith(target.Bytes(), oldByte)
	f := p.newFlood(t, k, l, target.Addr(), p.unpack(t, c, target))
	for f.posted.Load() == 0 {
		f.post()
		p.round()
	}
	for range round {
		f.post()
		p.round()
	}
	if round%2 == 0 {
		p.closeLink(t, l)
		p.eventually(t, "an operation did not complete after Close of its ep", func() bool { return f.open == 0 })
	} else {
		require.NoError(t, c.Iface.Close())
		c.Iface, l.EP = nil, nil
		require.Zero(t, f.open, "%v: completions that had not fired when Close of the iface returned", f)
	}
	fillWith(f.iov[0].Buf, ownByte)
	p.settle()
	require.True(t, holdsOnly(f.iov[0].Buf, ownByte), "%v: a buffer was written after its completion", f)
	require.Zero(t, countByte(target.Bytes(), ownByte), "%v: a buffer was read after its completion", f)
	p.closeLink(t, back)
	p.drop(t, target)
	p.drop(t, f.iov[0].Mem)
}
