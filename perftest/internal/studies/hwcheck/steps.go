package hwcheck

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/uct/ib/verbs"
)

// Names of steps on which others depend.
const (
	opened    = "open"
	objects   = "create CQ and QPs"
	connected = "connect RC"
)

// steps are all tests, in order.
var steps = []step{
	{opened, (*rig).open, ""},
	{"register memory", (*rig).register, opened},
	{objects, (*rig).create, "register memory"},
	{connected, (*rig).connectRC, objects},
	{"write, doorbell", (*rig).writeDoorbell, connected},
	{"write, BlueFlame", (*rig).writeBlueFlame, connected},
	{"write, inline lengths", (*rig).writeInline, connected},
	{"write, lengths", (*rig).writeLengths, connected},
	{"write, gathered", (*rig).writeGathered, connected},
	{"write, around the ring", (*rig).writeAround, connected},
	{"read", (*rig).read, connected},
	{"atomics", (*rig).atomics, connected},
	{"send", (*rig).send, connected},
	{"send to an SRQ", (*rig).sendSRQ, connected},
	{"completion event", (*rig).completionEvent, connected},
	{"asynchronous event", (*rig).asyncEvent, connected},
	{"thread domains", (*rig).threadDomains, connected},
	{"datagrams", (*rig).datagrams, objects},
	{"XRC", (*rig).xrc, objects},
	{"measure write, BlueFlame", (*rig).measureBlueFlame, connected},
	{"measure write, doorbell", (*rig).measureDoorbell, connected},
	{"measure writes in windows", (*rig).measureWindow, connected},
	{"measure set-up of a QP", (*rig).measureSetup, objects},
	{"refused access", (*rig).refused, connected}, // the last of RC: the QPs are in ERR after it
}

func (r *rig) open() (string, error) {
	var err error
	if r.ctx, err = r.dev.Open(); err != nil {
		return "", err
	}
	r.undo.Add(r.ctx.Close)
	a := r.ctx.QueryDevice()
	if r.port, err = r.ctx.QueryPort(r.cfg.Port); err != nil {
		return "", err
	}
	if r.port.State != verbs.PortActive {
		return "", fmt.Errorf("port %d is in state %d, want %d, active", r.cfg.Port, r.port.State, verbs.PortActive)
	}
	r.path = verbs.AHAttr{Port: r.cfg.Port, DLID: r.port.LID, HopLimit: 64}
	link := "InfiniBand"
	if r.port.Ethernet {
		link = "RoCE"
		list, err := r.ctx.GIDs(r.cfg.Port)
		if err != nil {
			return "", err
		}
		e, ok := verbs.ChooseGID(list)
		if !ok {
			return "", errors.New("the port has no GID to send from")
		}
		link += fmt.Sprintf(", GID %d %v %v", e.Index, e.GID, e.Type)
		r.path.Global, r.path.SGIDIndex, r.path.DGID = true, e.Index, e.GID
	}
	return fmt.Sprintf("%s, part %d, firmware %s, %g Gb/s, MTU %d, %s", r.dev.Name(), a.VendorPartID, a.FWVer, r.port.SpeedGbps,
		r.port.ActiveMTU.Bytes(), link), nil
}

func (r *rig) register() (string, error) {
	pd, err := r.ctx.AllocPD()
	if err != nil {
		return "", err
	}
	r.pd = pd
	r.undo.Add(pd.Close)
	buf, err := r.ctx.AllocBuffer(2 * half)
	if err != nil {
		return "", err
	}
	r.undo.Add(buf.Close)
	if r.mr, err = pd.RegMR(buf.Bytes(), allRights); err != nil {
		return "", err
	}
	r.undo.Add(r.mr.Close)
	r.mem, r.shadow = buf.Bytes(), make([]byte, 2*half)
	r.fill(0, half)
	return fmt.Sprintf("%d KiB, lkey %#x, rkey %#x", 2*half>>10, r.mr.LKey(), r.mr.RKey()), nil
}

func (r *rig) create() (_ string, err error) {
	if r.ch, err = r.ctx.CreateCompChannel(); err != nil {
		return "", err
	}
	r.undo.Add(r.ch.Close)
	if r.cq, err = r.ctx.CreateCQ(verbs.CQInitAttr{Depth: cqDepth, Channel: r.ch}); err != nil {
		return "", err
	}
	r.undo.Add(r.cq.Close)
	for _, qp := range []**verbs.QP{&r.a, &r.b} {
		if *qp, err = r.newQP(verbs.QPTypeRC, r.cq); err != nil {
			return "", err
		}
		r.undo.Add((*qp).Close)
	}
	reg, _ := r.a.Register()
	return fmt.Sprintf("QPs %#x and %#x, UAR page %d, BlueFlame %v", r.a.Number(), r.b.Number(), reg.UARPage, reg.BlueFlame), nil
}

func (r *rig) newQP(typ verbs.QPType, cq *verbs.CQ) (*verbs.QP, error) {
	return r.pd.CreateQP(verbs.QPInitAttr{Type: typ, SendCQ: cq, RecvCQ: cq,
		Cap: verbs.QPCap{MaxSendWR: sendDepth, MaxRecvWR: recvDepth, MaxSendSGE: 3, MaxRecvSGE: 2, MaxInline: inlineLen}})
}

func (r *rig) connectRC() (string, error) {
	if err := r.connect(r.a, r.b.Number()); err != nil {
		return "", err
	}
	return "", r.connect(r.b, r.a.Number())
}

// writeDoorbell posts a list, which is never written by BlueFlame: the adapter fetches the work requests.
func (r *rig) writeDoorbell() (string, error) {
	before, _ := r.a.SendCounts()
	r.expect(remoteAt, 0, 8)
	r.expect(remoteAt+gap, gap, 16)
	if err := r.post(r.a, r.write(0, 8, 0), r.write(gap, 16, 0)); err != nil {
		return "", err
	}
	if _, err := r.complete(2); err != nil {
		return "", err
	}
	after, _ := r.a.SendCounts()
	return fmt.Sprintf("%d doorbells for 2 work requests, %d by BlueFlame", after.Doorbells-before.Doorbells, after.BlueFlames-before.BlueFlames), r.compare()
}

// writeBlueFlame posts work requests one by one, which are written to both BlueFlame buffers of the register in turn.
func (r *rig) writeBlueFlame() (string, error) {
	before, _ := r.a.SendCounts()
	for i := range 16 {
		off := 4096 + gap*i
		r.fill(off, 8)
		r.expect(remoteAt+off, off, 8)
		if err := r.post(r.a, r.write(off, 8, verbs.SendInline)); err != nil {
			return "", err
		}
		if _, err := r.complete(1); err != nil {
			return "", fmt.Errorf("work request %d: %w", i, err)
		}
	}
	after, _ := r.a.SendCounts()
	return fmt.Sprintf("%d of 16 by BlueFlame", after.BlueFlames-before.BlueFlames), r.compare()
}

func (r *rig) writeInline() (string, error) {
	limit := r.a.Cap().MaxInline
	lengths := 0
	for n := 0; n <= min(limit, 256); n++ {
		r.fill(8192, n)
		r.expect(remoteAt+8192, 8192, n)
		if err := r.post(r.a, r.write(8192, n, verbs.SendInline)); err != nil {
			return "", fmt.Errorf("%d bytes: %w", n, err)
		}
		if _, err := r.complete(1); err != nil {
			return "", fmt.Errorf("%d bytes: %w", n, err)
		}
		if err := r.compare(); err != nil {
			return "", fmt.Errorf("%d bytes: %w", n, err)
		}
		lengths++
	}
	return fmt.Sprintf("%d lengths, the limit is %d bytes", lengths, limit), nil
}

func (r *rig) writeLengths() (string, error) {
	lengths := []int{0, 1, 7, 64, 255, 1024, 4095, 4096, 4097, 65536, 1 << 18, half - 1}
	for _, n := range lengths {
		r.fill(1, n)
		r.expect(remoteAt+1, 1, n)
		if err := r.post(r.a, r.write(1, n, 0)); err != nil {
			return "", fmt.Errorf("%d bytes: %w", n, err)
		}
		if _, err := r.complete(1); err != nil {
			return "", fmt.Errorf("%d bytes: %w", n, err)
		}
	}
	return fmt.Sprintf("%d lengths up to %d bytes", len(lengths), half-1), r.compare()
}

func (r *rig) writeGathered() (string, error) {
	wr := r.write(100, 0, 0)
	wr.SGList = []verbs.SGE{r.sge(100, 10), r.sge(500, 1), r.sge(900, 333)}
	r.expect(remoteAt+100, 100, 10)
	r.expect(remoteAt+110, 500, 1)
	r.expect(remoteAt+111, 900, 333)
	if err := r.post(r.a, wr); err != nil {
		return "", err
	}
	if _, err := r.complete(1); err != nil {
		return "", err
	}
	return "3 pieces", r.compare()
}

// writeAround posts lists of different lengths until the queue has wrapped several times.
func (r *rig) writeAround() (string, error) {
	posted := 0
	for n := 1; posted < 10*sendDepth; n = n%17 + 1 {
		var list []verbs.SendWR
		for i := range n {
			off := gap * (i + 1)
			flags := verbs.SendFlags(0)
			if i%3 == 0 {
				flags = verbs.SendInline
			}
			r.fill(off, 40)
			r.expect(remoteAt+off, off, 40)
			list = append(list, r.write(off, 40, flags))
		}
		if err := r.post(r.a, list...); err != nil {
			return "", err
		}
		if _, err := r.complete(n); err != nil {
			return "", fmt.Errorf("after %d work requests: %w", posted, err)
		}
		posted += n
	}
	return fmt.Sprintf("%d work requests in a queue of %d", posted, r.a.Cap().MaxSendWR), r.compare()
}

func (r *rig) read() (string, error) {
	for _, n := range []int{1, 8, 4096, 100_000} {
		r.fill(remoteAt+64, n)
		r.expect(300_000, remoteAt+64, n)
		wr := verbs.SendWR{ID: r.id(), Opcode: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGList: []verbs.SGE{r.sge(300_000, n)},
			RemoteAddr: r.addr(remoteAt + 64), RKey: r.mr.RKey()}
		if err := r.post(r.a, wr); err != nil {
			return "", err
		}
		if _, err := r.complete(1); err != nil {
			return "", fmt.Errorf("%d bytes: %w", n, err)
		}
	}
	return "4 lengths", r.compare()
}

func (r *rig) atomics() (string, error) {
	const counter, result = remoteAt + 8192, 16384
	put := func(b []byte, off int, v uint64) { binary.NativeEndian.PutUint64(b[off:], v) }
	put(r.mem, counter, 41)
	put(r.shadow, counter, 41)
	for _, wr := range []struct {
		verbs.SendWR
		before, after uint64
	}{
		{verbs.SendWR{Opcode: verbs.OpAtomicFetchAdd, CompareAdd: 1}, 41, 42},
		{verbs.SendWR{Opcode: verbs.OpAtomicCmpSwap, CompareAdd: 42, Swap: 1 << 40}, 42, 1 << 40},
		{verbs.SendWR{Opcode: verbs.OpAtomicCmpSwap, CompareAdd: 42, Swap: 9}, 1 << 40, 1 << 40},
	} {
		wr.ID, wr.Flags, wr.SGList = r.id(), verbs.SendSignaled, []verbs.SGE{r.sge(result, 8)}
		wr.RemoteAddr, wr.RKey = r.addr(counter), r.mr.RKey()
		put(r.shadow, result, wr.before)
		put(r.shadow, counter, wr.after)
		if err := r.post(r.a, wr.SendWR); err != nil {
			return "", err
		}
		if _, err := r.complete(1); err != nil {
			return "", err
		}
		if err := r.compare(); err != nil {
			return "", fmt.Errorf("%v: %w", wr.Opcode, err)
		}
	}
	return "fetch and add, compare and swap that matches and that does not", nil
}

// sendTo sends n bytes with an immediate by a QP to a receive that post posts, and checks the completion of the
// receive. The message starts after skip bytes of the receive.
func (r *rig) sendTo(qp *verbs.QP, post func([]verbs.RecvWR) (int, error), wr verbs.SendWR, n, skip int) error {
	const from, to = 20_000, remoteAt + 20_000
	r.fill(from, n)
	id := r.id()
	if _, err := post([]verbs.RecvWR{{ID: id, SGList: []verbs.SGE{r.sge(to, n+skip)}}}); err != nil {
		return err
	}
	r.expect(to+skip, from, n)
	wr.ID, wr.Opcode, wr.Flags, wr.Imm, wr.SGList = r.id(), verbs.OpSendWithImm, verbs.SendSignaled, 0xcafe0001, []verbs.SGE{r.sge(from, n)}
	if err := r.post(qp, wr); err != nil {
		return err
	}
	if err := r.sent(wr, id, n+skip); err != nil {
		return err
	}
	copy(r.shadow[to:to+skip], r.mem[to:to+skip])
	return r.compare()
}

// sent waits for the completions of a send and of its receive.
func (r *rig) sent(wr verbs.SendWR, recvID uint64, n int) error {
	list, err := r.complete(2)
	if err != nil {
		return err
	}
	for _, wc := range list {
		if wc.Opcode != verbs.WCRecv {
			continue
		}
		if wc.ID != recvID || wc.ByteLen != uint32(n) || wc.Imm != wr.Imm || wc.Flags&verbs.WCWithImm == 0 {
			return fmt.Errorf("receive %d of %d bytes with immediate %#x, want %d of %d with %#x", wc.ID, wc.ByteLen, wc.Imm, recvID, n, wr.Imm)
		}
		return nil
	}
	return errors.New("no completion of a receive")
}

// waitEvent waits for an event of the channel, which must be for the CQ.
func (r *rig) waitEvent() error {
	fds := []unix.PollFd{{Fd: int32(r.ch.FD()), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, int(r.cfg.Timeout.Milliseconds()))
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return errors.Join(fmt.Errorf("no event within %v", r.cfg.Timeout), err)
		}
		break
	}
	if cq := r.ch.TryGet(); cq != r.cq {
		return errors.New("the event is of another CQ")
	}
	return nil
}

func (r *rig) completionEvent() (string, error) {
	for i := range 3 {
		if err := r.cq.Arm(false); err != nil {
			return "", err
		}
		if i < 2 && r.ch.TryGet() != nil {
			return "", errors.New("an event without a completion")
		}
		if err := r.post(r.a, r.write(0, 0, 0)); err != nil {
			return "", err
		}
		if err := r.waitEvent(); err != nil {
			return "", fmt.Errorf("event %d: %w", i, err)
		}
		if _, err := r.complete(1); err != nil {
			return "", err
		}
	}
	return "3 times armed, posted, woken", nil
}
