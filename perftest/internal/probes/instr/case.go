package instr

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gucx/gucx/uct/ib/dv"
	"github.com/gucx/gucx/uct/ib/rc"
	"github.com/gucx/gucx/uct/ib/ud"
	"github.com/gucx/gucx/uct/self"
	"github.com/gucx/gucx/uct/sm"
)

// Op is an operation whose instructions are counted.
type Op uint8

// Operations. Only the named call is counted; the steps in brackets are done before or after it.
const (
	Put   Op = iota // post a put [then complete it]
	Get             // post a get [then complete it]
	Add             // post an atomic add without result [then complete it]
	FAdd            // post a fetching add [then complete it]
	Flush           // [one put, then] flush to its remote completion
	Idle            // progress without work
	Busy            // [one signaled put, then] the progress that handles its completion

	// Polls of empty completion queues, for verbs and averbs: transports have one queue for sends and receives.
	PollTx // poll the queue of sends
	PollRx // poll the queue of receives

	// Zero-copy puts and gets, as they are posted in windows before a flush: in UCP without a request.
	PutZcopy // post a put of registered memory [then flush it]
	GetZcopy // post a get into registered memory [then flush it]

	// Windows of windowLen zero-copy operations, with a flush at the end.
	PutWindow  // post puts of registered memory, and flush
	GetWindow  // post gets into registered memory, and flush
	FAddWindow // post fetching adds, and flush

	// Active messages: sender and receiver. UCP has SendActive for both; the names are those of UCT.
	AMShort     // send by AMShort, or a short SendActive [then deliver it]
	AMShortRecv // [one such message, then] the progress that passes it to the handler
	AMBcopy     // send by AMBcopy, or by a larger SendActive [then deliver it]
	AMBcopyRecv // [one such message, then] the progress that passes it to the handler

	// Tagged messages, of UCP.
	Tag     // send to a posted receive [then deliver it]
	TagPost // post a receive [then send to it, and deliver the message]
	TagRecv // [post a receive, send to it, then] the progress that completes it
	TagKept // [send one and deliver it as unexpected, then] receive it

	// Tagged messages by rendezvous, between memory allocated by MemAlloc.
	Rndv     // send to a posted receive [then deliver it]
	RndvRecv // [post a receive, send to it, then] the progress that fetches the data
	RndvDone // [post a receive, send to it, fetch the data, then] the sender's progress that completes the send
	numOps
)

var opNames = [numOps]string{"put", "get", "add", "fadd", "flush", "idle", "busy", "poll_tx", "poll_rx", "put_zcopy", "get_zcopy",
	"put_window", "get_window", "fadd_window",
	"am_short", "am_short_recv", "am_bcopy", "am_bcopy_recv", "tag", "tag_post", "tag_recv", "tag_kept",
	"rndv", "rndv_recv", "rndv_done"}

// String returns the name in tables, flags and files.
func (o Op) String() string {
	if o < numOps {
		return opNames[o]
	}
	return fmt.Sprintf("Op(%d)", uint8(o))
}

// ParseOp returns the operation with a name.
func ParseOp(name string) (Op, error) {
	if i := slices.Index(opNames[:], name); i >= 0 {
		return Op(i), nil
	}
	return 0, fmt.Errorf("unknown operation %q; there are %s", name, strings.Join(opNames[:], ", "))
}

// sizes returns the message lengths with which an operation is counted, from a list: atomics have one, and idle
// progress has none.
func (o Op) sizes(asked []int) []int {
	switch o {
	case Add, FAdd, FAddWindow:
		return []int{wordLen}
	case Idle, PollTx, PollRx:
		return []int{0}
	case PutZcopy, GetZcopy, PutWindow, GetWindow:
		return slices.DeleteFunc(slices.Clone(asked), func(n int) bool { return n < minZcopy })
	case AMShort, AMShortRecv:
		return slices.DeleteFunc(slices.Clone(asked), func(n int) bool { return n > dv.MaxInline })
	case Rndv, RndvRecv, RndvDone:
		return slices.DeleteFunc(slices.Clone(asked), func(n int) bool { return n < minRndv })
	}
	return asked
}

// windowed reports whether op is a window.
func (o Op) windowed() bool { return o >= PutWindow && o <= FAddWindow }

// polls reports whether op polls one of two queues.
func (o Op) polls() bool { return o == PollTx || o == PollRx }

// windowLen is the number of operations of a window: more than rc posts for one completion.
const windowLen = 80

// message reports whether op is one of messages, and tagged whether they have tags.
func (o Op) message() bool { return o >= AMShort }
func (o Op) tagged() bool  { return o >= Tag }

// maxAMShort is the maximum length of a message, in bytes, with its header, that all transports send as a short one. UCP sends messages up
// to it short over all of them. AMShort of uct is counted up to dv.MaxInline, over transports that support the length.
const maxAMShort = 64

// minZcopy is the minimum length of a put or get, in bytes, that all layers post without a copy; UCP copies shorter
// ones (experiment 0086 in docs/perf).
const minZcopy = 512

// minRndv is the minimum length of messages, in bytes, that use rendezvous over every transport (experiment 0076 in
// docs/perf).
const minRndv = 32 << 10

// wordLen is the length of the operand of atomics, in bytes.
const wordLen = 8

// maxSize is the maximum length of a message: the length of the memory that rigs allocate.
const maxSize = 64 << 10

// Case is one count: an operation through the API of a layer.
type Case struct {
	Op   Op
	API  Part // Verbs, AVerbs, UCT or UCP
	Size int  // bytes; 0 if the operation has no length
	// Switch is an alternative of the layer: one of switches, or a transport; "" is the default, and rc_mlx5 for
	// AVerbs.
	Switch string
}

// String describes the case, such as "put 8 B, ucp, resolve".
func (c Case) String() string {
	s := c.Op.String()
	if c.Size > 0 {
		s += fmt.Sprintf(" %d B", c.Size)
	}
	s += ", " + c.API.String()
	if c.Switch != "" {
		s += ", " + c.Switch
	}
	return s
}

// Plan selects the cases to count.
type Plan struct {
	Ops   []Op
	APIs  []Part
	Sizes []int // bytes, 1..64 KiB
	// Transports are the transports with which UCT is counted, and UCP over those of rc, rc_mlx5, sm and self among
	// them; empty means rc, and for messages all.
	Transports []string
	// Switches adds the alternatives of the layers to their defaults.
	Switches bool
}

// transports lists the transports with which UCT can be counted; the first is the default. Those of datagrams support
// only messages.
var transports = []string{rc.Name, dv.RCName, sm.Name, self.Name, ud.Name, dv.UDName}

// ucpTransports lists the transports with which UCP can be counted. With rc the handshake uses ud, with rc_mlx5
// ud_mlx5.
var ucpTransports = []string{rc.Name, dv.RCName, sm.Name, self.Name}

// deviceless lists the transports without a device: operations complete in the call that posts them.
var deviceless = map[string]bool{sm.Name: true, self.Name: true}

// Cases returns the cases in the order of the report: by operation, size and API.
func (p Plan) Cases() (cases []Case) {
	for _, op := range p.Ops {
		for _, size := range op.sizes(p.Sizes) {
			for _, api := range p.APIs {
				cases = append(cases, p.defaults(op, api, size)...)
				if p.Switches {
					cases = append(cases, p.switched(op, api, size)...)
				}
			}
		}
	}
	return cases
}

// defaults returns the cases of op without alternatives: one, or one for each transport.
func (p Plan) defaults(op Op, api Part, size int) (cases []Case) {
	over := p.Transports
	switch {
	case op.message() && api < UCT:
		return nil // verbs are measured only with one-sided operations
	case op.polls() && api >= UCT:
		return nil
	case op.tagged() && api == UCT:
		return nil // uct has none
	case op >= AMBcopy && !op.tagged() && api == UCP && size <= maxAMShort:
		return nil // the same call as AMShort
	case op.message() && op < AMBcopy && api == UCP && size > maxAMShort:
		return nil // the same call as AMBcopy
	case op.message() && len(over) == 0:
		over = transports
	case api == AVerbs:
		return []Case{{Op: op, API: api, Size: size, Switch: dv.RCName}} // the transport above it
	case !op.message() && (api == Verbs || len(over) == 0):
		return []Case{{Op: op, API: api, Size: size}}
	}
	for _, tl := range over {
		if api == UCP && !slices.Contains(ucpTransports, tl) {
			continue
		}
		c := Case{Op: op, API: api, Size: size}
		if tl != transports[0] {
			c.Switch = tl
		}
		cases = append(cases, c)
	}
	return cases
}

// switched returns the alternatives that affect op.
func (p Plan) switched(op Op, api Part, size int) (cases []Case) {
	for _, s := range switches {
		if s.api == api && slices.Contains(s.ops, op) && (s.over == "" || slices.Contains(p.Transports, s.over)) {
			cases = append(cases, Case{Op: op, API: api, Size: size, Switch: s.name})
		}
	}
	return cases
}

// Alternatives. Some undo improvements of ucp and the transports over the UCX of the study (its sections IV and V);
// another uses a worker that goroutines share.
const (
	switchResolve     = "resolve" // resolve the remote key in each operation
	switchPollTx      = "poll-tx" // poll an idle queue of sends in each progress, as UCX did
	switchProgressAll = "idle-ud" // progress ifaces without connections
	switchShared      = "shared"  // call through a SharedWorker that no other goroutine uses
	// overDirect is the prefix of the first three over rc_mlx5.
	overDirect = dv.RCName + "+"
)

// switches lists the alternatives with the operations that they affect.
var switches = []struct {
	name string
	api  Part
	ops  []Op
	over string // transport that must be counted too; "" for the default
}{
	{switchPollTx, UCT, []Op{Idle}, ""},
	{overDirect + switchPollTx, UCT, []Op{Idle}, dv.RCName},
	{dv.UDName + "+" + switchPollTx, UCT, []Op{Idle}, dv.UDName},
	{switchResolve, UCP, []Op{Put, Get, Add, FAdd}, ""},
	{switchPollTx, UCP, []Op{Flush, Idle, Busy}, ""},
	{switchProgressAll, UCP, []Op{Flush, Idle, Busy}, ""},
	{switchShared, UCP, []Op{Put}, ""},
	{overDirect + switchResolve, UCP, []Op{Put, Get}, dv.RCName},
	{overDirect + switchPollTx, UCP, []Op{Flush, Idle}, dv.RCName},
	{overDirect + switchProgressAll, UCP, []Op{Flush, Idle}, dv.RCName},
}
