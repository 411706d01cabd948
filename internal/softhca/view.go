package softhca

import (
	"sync"
	"sync/atomic"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/softhca/internal/table"
	"github.com/gucx/gucx/internal/softhca/internal/xrcdomain"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// domainView is the directory of a shared domain, which initiators of this device read.
type domainView struct {
	key   xrcdomain.Key
	users int // QPs; under viewTable.mu
	state atomic.Uint32
	dir   *xrcdomain.View // when state is viewOpen
}

// States of a view.
const (
	viewOpening = iota
	viewOpen
	viewFailed
)

// viewTable has the views of a device.
type viewTable struct {
	mu   sync.Mutex
	open map[xrcdomain.Key]*domainView
}

// viewOf returns the view of a domain that has the device member. If there is none, it starts to open
// one. The caller must release it.
func (h *hca) viewOf(key xrcdomain.Key, member verbs.GID) *domainView {
	t := &h.views
	t.mu.Lock()
	defer t.mu.Unlock()
	v := t.open[key]
	if v == nil || v.state.Load() == viewOpen && !v.dir.HasMember(member) {
		v = &domainView{key: key}
		if t.open == nil {
			t.open = map[xrcdomain.Key]*domainView{}
		}
		t.open[key] = v
		v.users++ // of openView
		h.dials.Go(func() { h.openView(v) })
	}
	v.users++
	return v
}

// openView opens a view. It blocks while members do not reply.
func (h *hca) openView(v *domainView) {
	var err error
	if v.dir, err = xrcdomain.Open(v.key); err != nil {
		logger.Info("XRC domain not found", "device", h.cfg.Name, "reason", err)
		v.state.Store(viewFailed)
	} else {
		v.state.Store(viewOpen)
	}
	h.views.release(v)
}

// release drops a reference to a view; the last one closes it. A view that has failed is removed from
// the table, so that viewOf opens a new one.
func (t *viewTable) release(v *domainView) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v.users--
	if t.open[v.key] == v && (v.users == 0 || v.state.Load() == viewFailed) {
		delete(t.open, v.key)
	}
	if v.users == 0 && v.dir != nil {
		_ = v.dir.Close() // unmapping mapped memory does not fail
	}
}

// findDomain searches the target of an initiator in the shared domains of the device that it is
// connected to. exec is held.
func (qp *queuePair) findDomain() stepResult {
	if v, ok := qp.ready(); !ok {
		return v
	}
	t := qp.req.link.table
	exists, opening := false, false
	for i := range table.MaxSharedDomains {
		key, ok := t.SharedDomain(i).Load()
		if !ok {
			continue
		}
		v := qp.view(key)
		switch v.state.Load() {
		case viewOpening:
			opening = true
		case viewOpen:
			e := table.TargetEntry(v.dir, qp.attr.DestQPN)
			if e.Accepts(qp.attr.DestQPN, qp.qpn, &qp.hca.gidWords) {
				qp.enterDomain(v, e)
				return stepDone
			}
			exists = exists || !e.Destroyed(qp.attr.DestQPN)
		}
	}
	switch {
	case opening: // within a time limit
		return qp.sleepUntil(qp.hca.clock() + peerPoll)
	case !exists:
		return qp.failNext(prm.SyndromeRetryExceeded)
	}
	return qp.awaitPeer()
}

// view returns the view of a domain, which the QP releases in releaseShared.
func (qp *queuePair) view(key xrcdomain.Key) *domainView {
	for _, v := range qp.req.views {
		if v.key == key {
			return v
		}
	}
	v := qp.hca.viewOf(key, qp.req.link.gid)
	qp.req.views = append(qp.req.views, v)
	return v
}

// enterDomain records the shared domain of the target, with path as the first path to a member.
func (qp *queuePair) enterDomain(v *domainView, e *table.QP) {
	r := &qp.req
	r.deadline = 0
	current := new(path)
	*current = r.path
	r.shared = &sharedPeer{view: v, entry: e, current: current, paths: []*path{current}}
}
