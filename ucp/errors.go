package ucp

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/ucp/internal/bootstrap"
	"github.com/gucx/gucx/ucp/internal/selection"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// Error is an error in one line, with the operation, the peer, the transport and the reason:
// "ucp: put 8 bytes to worker 0x1f over rc_mlx5 softhca0:1: connection reset by remote
// peer". It matches ErrEPFailed if the EP has failed.
type Error struct {
	Op   string // the operation or object that failed, such as "put 8 bytes" or "endpoint"
	Peer uint64 // UUID of the peer worker, as in Explain; 0 if there is none
	Via  string // transport and device; empty if there is none, or if the text of Err has them
	Err  error  // cause

	failed bool // the EP has failed
}

// Error returns the text.
func (e *Error) Error() string {
	s := "ucp: " + e.Op
	if e.Peer != 0 {
		s += " to worker 0x" + strconv.FormatUint(e.Peer, 16)
	}
	if e.Via != "" {
		s += " over " + e.Via
	}
	return s + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether the EP has failed and target is ErrEPFailed. The text of the error does not say that.
func (e *Error) Is(target error) bool { return e.failed && target == ucs.ErrEPFailed }

// action describes an operation in errors.
type action struct {
	stage *stage
	op    uct.AtomicOp
	n     int // bytes
}

// String returns a text such as "put 8 bytes".
func (a action) String() string {
	switch s := a.stage; {
	case s.opped:
		return s.name + " " + a.op.String() + " of " + bytesText(a.n)
	case s.sized:
		return s.name + " " + bytesText(a.n)
	}
	return a.stage.name
}

func bytesText(n int) string {
	if n == 1 {
		return "1 byte"
	}
	return strconv.Itoa(n) + " bytes"
}

// action returns the description of the request.
func (r *Request) action() action {
	switch {
	case r.stage.opped:
		return action{r.stage, r.atomic.op, int(r.atomic.size)}
	case r.buf != nil:
		return action{stage: r.stage, n: len(r.buf)}
	}
	return action{stage: r.stage, n: r.off}
}

// err returns the error of a completed request.
func (r *Request) err() error {
	if r.status == ucs.StatusOK {
		return nil
	}
	if r.ep == nil {
		return &Error{Op: r.action().String(), Err: r.status.Err()}
	}
	return r.ep.failure(r.action(), r.status)
}

// failure returns the error of an operation that ended with st. If the EP failed with st,
// that is the error of the EP.
func (e *EP) failure(a action, st ucs.Status) *Error {
	if e.failed.err != nil && st == e.failed.cause {
		return &Error{Op: a.String(), Peer: e.peer.Addr.UUID(), Via: e.failed.err.Via, Err: e.failed.err.Err, failed: true}
	}
	if why := e.lostRoleErr(a.stage.role); why != nil && st == e.link.lost.status {
		return e.errorOf(a, why)
	}
	return e.errorOf(a, st.Err())
}

// errorOf returns the error of an operation whose cause the lane or the EP has reported.
func (e *EP) errorOf(a action, cause error) *Error {
	return &Error{Op: a.String(), Peer: e.peer.Addr.UUID(), Via: e.via(a.stage).String(), Err: cause, failed: e.failed.err != nil}
}

// wrong returns the error of an operation that is not valid and was not posted.
func (e *EP) wrong(a action, sentinel error, detail string) *Error {
	return &Error{Op: a.String(), Peer: e.peer.Addr.UUID(), Err: fmt.Errorf("%w: %s", sentinel, detail)}
}

// refuses returns the error of an operation on an EP that accepts no operations; nil if it accepts them.
func (e *EP) refuses(a action) error {
	switch e.state {
	case epOpen:
		return nil
	case epFailed:
		return e.failure(a, e.failed.cause)
	}
	return &Error{Op: a.String(), Peer: e.peer.Addr.UUID(), Err: ucs.ErrClosed}
}

// refused returns the error of an operation that a transport rejected. If the reason
// is a broken lane, it fails the EP now: the caller may not make progress. If the transport reports only
// that the peer has closed the connection, the next Progress, which finds out why, ends the
// operations in progress and reports the failure.
//
//go:noinline
func (e *EP) refused(a action, err error) error {
	if e.state == epOpen && errors.Is(err, uct.ErrEPFailed) {
		i, why := e.broken()
		if why == nil {
			i, why = e.via(a.stage), err
		}
		if e.markFailed(statusOf(why), why, i); !e.onlyClosed() {
			e.closeFailed()
		}
	}
	if e.failed.err != nil {
		return e.failure(a, e.failed.cause)
	}
	return e.errorOf(a, err)
}

// via returns the transport of a stage, also after its lane was closed. It returns nil if the stage has had no lane, or if it
// uses all lanes.
func (e *EP) via(s *stage) *iface {
	switch {
	case e.link == nil:
		return nil
	case s.role != noRole:
		return e.link.lanes.Via[s.role]
	case e.link.lanes.Single != nil:
		return e.link.lanes.Single.Iface
	}
	return nil
}

// String names the transport and its device.
func (i *iface) String() string {
	if i == nil {
		return ""
	}
	return i.attr.Resource.Transport + " " + i.attr.Resource.Device
}

// failure returns an error of i with its name.
func (i *iface) failure(err error) error { return &ucs.OpError{Op: i.String(), Err: i.cause(err)} }

// cause returns the error that i has reported without ErrEPFailed and
// without the name of i, which the caller adds.
func (i *iface) cause(err error) error {
	if u, ok := err.(interface{ Unwrap() []error }); ok {
		all := u.Unwrap()
		if rest := slices.DeleteFunc(slices.Clone(all), func(err error) bool { return err == uct.ErrEPFailed }); len(rest) < len(all) {
			return i.cause(ucs.Join(rest...))
		}
	}
	if op, ok := err.(*ucs.OpError); ok {
		named := *op
		if i != nil && op.TL == i.attr.Resource.Transport {
			named.TL, named.Dev = "", ""
		}
		named.Err = i.cause(op.Err)
		return &named
	}
	return err
}

// unreachable returns a text with the reasons why no transport of the worker has a role for a peer.
func (w *Worker) unreachable(p wireup.Role, addr *wireup.Address) string {
	reasons := w.obstacles(p, addr)
	if len(reasons) == 0 {
		return "no transport is open"
	}
	texts := make([]string, len(reasons))
	for i, r := range reasons {
		texts[i] = r.String()
	}
	return strings.Join(texts, "; ")
}

// obstacles returns, for each transport of the worker, the criterion by which it cannot have a role for a peer. For a
// transport on a network device that the program has used, it returns the setting that excludes the transport.
func (w *Worker) obstacles(p wireup.Role, addr *wireup.Address) (reasons []bootstrap.Reason) {
	last := -1
	for _, c := range selection.Rank(p, w.net.addr, addr, w.reacher(addr)) {
		if c.Local != last && c.Why != "" {
			r := &w.ifaces[c.Local].attr.Resource
			reasons = append(reasons, bootstrap.Reason{Transport: r.Transport, Device: r.Device, Why: c.Why})
		}
		last = c.Local
	}
	for i := range w.net.excluded {
		o := &w.net.excluded[i]
		reasons = append(reasons, bootstrap.Reason{Transport: o.Transport, Device: o.Device, Why: o.why})
	}
	return reasons
}

// outOfFiles reports whether the process cannot open any file descriptor. Transports need a descriptor to find out whether
// they reach a peer.
func outOfFiles() bool {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err == nil {
		_ = unix.Close(fd)
	}
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE)
}
