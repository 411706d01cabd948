package ucp

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/gucx/gucx/ucp/internal/proto"
	"github.com/gucx/gucx/ucp/internal/selection"
	"github.com/gucx/gucx/wireup"
)

// EPInfo describes an EP at one moment, for people and for programs that show it: they marshal it as JSON. A new
// version may add fields. The text of String is what [EP.Explain] returns.
type EPInfo struct {
	ID     uint64 `json:"id"`            // unique among the EPs of the worker that are open
	Worker uint64 `json:"worker,string"` // UUID of the worker
	Peer   uint64 `json:"peer,string"`   // UUID of the peer worker

	State      string   `json:"state"`              // "open", "closing", "failed" or "closed"
	Conditions []string `json:"conditions"`         // State, and conditions that explain what the EP waits for
	Err        string   `json:"err,omitempty"`      // why it failed
	ByPeer     bool     `json:"by_peer"`            // the peer made the connection
	Identity   string   `json:"identity,omitempty"` // identity of the peer, if the EP is from Listen or Dial

	// Transports are the transports of the worker. It is nil in the EPs of a WorkerInfo, which has them itself.
	Transports []TransportInfo `json:"transports,omitempty"`
	// Choices are the pairs of transports from which lanes are chosen, by role.
	Choices []wireup.Choice `json:"choices"`
	// Lanes are the connections of the EP over transports. There is none before the first operation.
	Lanes []LaneInfo `json:"lanes"`
	// Protocols are the protocols of puts, gets and messages, by length and by class of buffer.
	Protocols []ProtocolInfo `json:"protocols"`
	// Sharing describes the operations that several lanes share. It is empty if no lane has puts and gets.
	Sharing []SharingInfo `json:"sharing,omitempty"`
	// InFlight are the operations in progress.
	InFlight InFlightInfo `json:"in_flight"`
	// Credit is the flow control of messages; nil before the first message.
	Credit *CreditInfo `json:"credit,omitempty"`
	// Idle: the lanes are closed because neither side has had operations. The next operation connects again.
	Idle bool `json:"idle,omitempty"`
	// GivenUp are the errors of transports that have failed, in the order of their failures.
	GivenUp []string `json:"given_up,omitempty"`
	// Retries are transports whose lane has failed and that this side tries again.
	Retries []RetryInfo `json:"retries,omitempty"`
}

// TransportInfo is a transport on a device of this host.
type TransportInfo struct {
	Transport string `json:"transport"`
	Device    string `json:"device"`
	Selected  bool   `json:"selected"`         // the configuration selects it
	Open      bool   `json:"open"`             // the worker uses it: it is selected, or carries handshakes
	Why       string `json:"why"`              // the setting that selects or excludes it
	System    string `json:"system,omitempty"` // the implementation in use, for a transport that depends on what the system permits
}

// LaneInfo is a connection of an EP over one transport.
type LaneInfo struct {
	Number    int      `json:"number"` // the same at both sides
	Transport string   `json:"transport"`
	Device    string   `json:"device"`
	Roles     []string `json:"roles"`            // "rma", "amo", "am", "rma_bw", "am_bw": see wireup.Role
	Active    bool     `json:"active"`           // operations use it
	Connected bool     `json:"connected"`        // its transport has connected
	Retired   bool     `json:"retired"`          // it broke, did not connect, or its roles have moved to a better lane
	Trial     bool     `json:"trial,omitempty"`  // its path has failed before and is tried again
	Pending   int      `json:"pending"`          // operations that wait for its resources
	System    string   `json:"system,omitempty"` // the implementation in use, for a transport that depends on what the system permits
}

// RetryInfo is a transport that is tried again after its lane has failed.
type RetryInfo struct {
	Transport string        `json:"transport"`
	Device    string        `json:"device"`
	Running   bool          `json:"running"`      // a retry is in progress
	In        time.Duration `json:"in,omitempty"` // time until the next retry if none is in progress, in nanoseconds
}

// ProtocolInfo describes the protocols of an operation over the transport that it uses, or would use.
type ProtocolInfo struct {
	Op        string      `json:"op"` // "put", "get", "messages", or "active messages" if they differ from other messages
	Transport string      `json:"transport"`
	Device    string      `json:"device"`
	Buffer    string      `json:"buffer,omitempty"` // class of buffers; empty if there is one
	Ranges    []RangeInfo `json:"ranges"`           // by length, without gaps, from 1 byte on
	// RegisteredFrom is the length in bytes from which gucx registers the buffer for the operation; 0 means never.
	RegisteredFrom int    `json:"registered_from,omitempty"`
	Costs          string `json:"costs,omitempty"` // for messages: source of the costs by which protocols are chosen
}

// RangeInfo is a protocol, and the lengths for which it is used.
type RangeInfo struct {
	Min      int    `json:"min"`           // in bytes
	Max      int    `json:"max,omitempty"` // in bytes; 0: there is no limit
	Protocol string `json:"protocol"`      // "short", "bcopy", "zcopy", "rndv" or "none"
	Why      string `json:"why"`
}

// SharingInfo describes how lanes share an operation.
type SharingInfo struct {
	Op    string      `json:"op"`             // "put, get" or "data of rendezvous messages"
	From  int         `json:"from,omitempty"` // length in bytes from which lanes share
	Lanes []ShareInfo `json:"lanes,omitempty"`
	Never string      `json:"never,omitempty"` // reason for which lanes never share
}

// ShareInfo is the part of one lane.
type ShareInfo struct {
	Lane    string `json:"lane"` // transport and device: "rc mlx5_0:1"
	Percent int    `json:"percent"`
}

// InFlightInfo counts operations of an EP that are not complete.
type InFlightInfo struct {
	Listed  []OperationInfo `json:"listed,omitempty"`  // with a request, in progress
	Waiting []OperationInfo `json:"waiting,omitempty"` // for a lane, for credit, or behind a fence
	Awaited []OperationInfo `json:"awaited,omitempty"` // for a reply of the peer
	Direct  int             `json:"direct"`            // posted in one call, without a place in a list
}

// OperationInfo counts operations of one class.
type OperationInfo struct {
	Op string `json:"op"`
	N  int    `json:"n"`
}

// CreditInfo is the flow control of messages, in bytes. Each message uses its length and 400 bytes.
type CreditInfo struct {
	Left     int64 `json:"left"`     // credit that the peer has granted and that is not used; negative if the reserve is in use, or tuple queues withhold more
	Most     int64 `json:"most"`     // the greatest Left so far
	Window   int64 `json:"window"`   // window of the peer here
	Held     int64 `json:"held"`     // credit that unreceived messages of the peer use
	Due      int64 `json:"due"`      // credit that must be returned to the peer
	Sent     int64 `json:"sent"`     // credit that all sent messages have used
	Received int64 `json:"received"` // credit that all messages of the peer have used
}

// WorkerInfo describes a worker at one moment; see [EPInfo]. String returns the texts of all EPs.
type WorkerInfo struct {
	UUID       uint64          `json:"uuid,string"`
	Transports []TransportInfo `json:"transports"`
	Listeners  []string        `json:"listeners,omitempty"` // network and address of each
	EPs        []EPInfo        `json:"eps"`

	Receives     int   `json:"receives"`                // posted receives of tags
	Unexpected   int   `json:"unexpected"`              // tagged messages that match no receive yet
	Blocked      int   `json:"blocked"`                 // peers that lack credit for tagged messages
	Left         int64 `json:"left_bytes"`              // bytes of unreceived messages of closed EPs
	Requests     int   `json:"requests"`                // in the pool of requests, with those in use
	Await        int   `json:"await_reply"`             // operations to which peers may reply
	EagerGranted int64 `json:"eager_granted,omitempty"` // bytes of Config.EagerBudget that windows of peers use
}

// ContextInfo describes a context at one moment; see [EPInfo].
type ContextInfo struct {
	Version    string          `json:"version"` // version of gucx
	Transports []TransportInfo `json:"transports"`
	Domains    []string        `json:"domains"` // components of the open memory domains
	Workers    int             `json:"workers"` // number of open workers
	Memory     int             `json:"memory"`  // regions of MemMap and MemAlloc that are open
	Closed     bool            `json:"closed"`
}

// Info describes the EP. It allocates, may make system calls, and makes no progress. It must be called by the
// goroutine that owns the worker, also in a callback; for other goroutines, see [Worker.Inspect].
func (e *EP) Info() *EPInfo {
	info := e.info()
	info.Transports = e.w.transportInfos()
	return &info
}

// info is Info without Transports, which are the same for all EPs of the worker.
func (e *EP) info() EPInfo {
	i := EPInfo{
		ID: e.id, Worker: e.w.net.addr.UUID(), Peer: e.peer.Addr.UUID(),
		State: e.state.String(), Conditions: e.conditions(), ByPeer: e.origin.accepted,
		Choices: selection.Choices(e.w.net.addr, e.peer.Addr, e.w.reacher(e.peer.Addr), e.w.ctx.cfg.rails()),
		Lanes:   e.laneInfos(), Protocols: e.protocolInfos(), Sharing: e.sharingInfos(), InFlight: e.inFlight(),
	}
	if e.failed.err != nil {
		i.Err = e.failed.err.Error()
	}
	if e.identity != nil {
		i.Identity = e.identity.String()
	}
	if m := e.msgs; m != nil {
		i.Credit = m.creditInfo()
	}
	if e.link != nil {
		for _, why := range e.link.whyGivenUp() {
			i.GivenUp = append(i.GivenUp, why.Error())
		}
		i.Retries = e.link.retryInfos()
		i.Idle = e.link.idle.closed
	}
	return i
}

// laneInfos describes the lanes of the EP, also those that are out of use.
func (e *EP) laneInfos() (all []LaneInfo) {
	if e.link == nil {
		return nil
	}
	for n := range e.link.lanes.All {
		x := &e.link.lanes.All[n]
		if x.EP == nil {
			continue
		}
		r := &x.Iface.attr.Resource
		info := LaneInfo{
			Number: n, Transport: r.Transport, Device: r.Device, Roles: []string{},
			Active: x.Active, Connected: x.Connected, Retired: x.Retired, Trial: e.link.onTrial(x),
		}
		for role, use := range e.link.lanes.Use {
			if use == x {
				info.Roles = append(info.Roles, wireup.Role(role).String())
			}
		}
		for r := range e.ops.all {
			if r.flags&reqQueued != 0 && r.waitsOn() == x {
				info.Pending++
			}
		}
		if why := x.EP.Ops().Explain; why != nil && !x.Retired {
			info.System = why.Explain()
		}
		all = append(all, info)
	}
	return all
}

// retryInfos describes the paths that are tried again.
func (l *link) retryInfos() (all []RetryInfo) {
	for _, r := range l.conn.Retries() {
		res := &l.e.w.ifaces[r.Local].attr.Resource
		info := RetryInfo{Transport: res.Transport, Device: res.Device, Running: r.Running}
		if !r.Running {
			info.In = max(0, r.At-l.e.w.engine.Alarm.Now())
		}
		all = append(all, info)
	}
	return all
}

// inFlight counts the operations in progress.
func (e *EP) inFlight() InFlightInfo {
	i := InFlightInfo{Listed: countOperations(e.ops.all), Awaited: countOperations(e.awaited.all), Direct: int(e.counts.direct)}
	if q := e.waiting; !q.Empty() {
		i.Waiting = countOperations(q.All)
	}
	return i
}

// countOperations counts operations by type, sorted by the name of the type.
func countOperations(all func(func(*Request) bool)) (counts []OperationInfo) {
	for r := range all {
		at, found := slices.BinarySearchFunc(counts, r.stage.name, func(c OperationInfo, name string) int {
			return strings.Compare(c.Op, name)
		})
		if !found {
			counts = slices.Insert(counts, at, OperationInfo{Op: r.stage.name})
		}
		counts[at].N++
	}
	return counts
}

func (m *messages) creditInfo() *CreditInfo {
	return &CreditInfo{
		Left: m.Credit, Most: m.Most, Window: m.Size, Held: m.Held, Due: m.TotalDue(),
		Sent: m.Sent(), Received: m.Received(),
	}
}

// transportInfos describes each transport that was found: whether the worker uses it, and why.
func (w *Worker) transportInfos() []TransportInfo {
	all := []TransportInfo{}
	for _, o := range slices.Concat(w.ctx.found, w.net.offers, w.net.excluded) {
		t := o.info(&w.ctx.cfg)
		for _, i := range w.ifaces {
			if r := &i.attr.Resource; r.Transport != o.Transport || r.Device != o.Device {
				continue
			}
			t.Open = true
			if why := i.Ext().Explain; why != nil && !w.closed {
				t.System = why.Explain()
			}
		}
		if t.Open && !t.Selected {
			t.Why += ", open for handshakes only"
		}
		all = append(all, t)
	}
	return all
}

// info describes the transport, and which setting of cfg selects or excludes it.
func (o *offer) info(cfg *Config) TransportInfo {
	t := TransportInfo{Transport: o.Transport, Device: o.Device, Selected: o.selected, Why: o.why}
	if o.selected {
		t.Why = "TLS=" + o.selectedBy(cfg.TLS)
	}
	return t
}

// Info describes the worker and its EPs, without those that are closed. Its time grows with the number of EPs.
// Otherwise as [EP.Info].
func (w *Worker) Info() *WorkerInfo {
	i := &WorkerInfo{
		UUID: w.net.addr.UUID(), Transports: w.transportInfos(), EPs: []EPInfo{},
		Blocked: len(w.tag.blocked), Left: w.messages.leftBytes, Requests: w.pool.made, Await: w.pool.remote.Len(),
		EagerGranted: w.messages.granted,
	}
	for _, l := range w.connecting.listening.listeners {
		i.Listeners = append(i.Listeners, l.Addr().Network()+" "+l.Addr().String())
	}
	for range w.tag.table.Receives() {
		i.Receives++
	}
	for range w.tag.table.Messages() {
		i.Unexpected++
	}
	for e := range w.eps.All() {
		i.EPs = append(i.EPs, e.info())
	}
	return i
}

// Info describes the context. Any goroutine may call it.
func (c *Context) Info() *ContextInfo {
	i := &ContextInfo{Version: Version, Transports: []TransportInfo{}, Domains: []string{}, Memory: c.memory.Len()}
	for k := range c.found {
		i.Transports = append(i.Transports, c.found[k].info(&c.cfg))
	}
	for _, d := range c.memory.Domains {
		i.Domains = append(i.Domains, d.Attr.Component)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	i.Workers, i.Closed = c.workers, c.closed
	return i
}

// rangeInfos describes a table of protocols.
func rangeInfos(t proto.Table) []RangeInfo {
	all := make([]RangeInfo, len(t))
	for k := range t {
		r := &t[k]
		all[k] = RangeInfo{Min: r.Min, Max: r.Max, Protocol: r.Protocol.String(), Why: r.Why}
		if r.Max == math.MaxInt {
			all[k].Max = 0
		}
	}
	return all
}
