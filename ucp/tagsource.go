package ucp

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math"

	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// tagSources is the rule of RestrictTags: which tagged messages each peer may send. tagMessages.source
// caches the value for the peer of a connection.
type tagSources struct {
	mask uint64 // 0: every peer may send every tag
	bits map[wireup.PublicKey]uint64
}

// noSource is the source of a peer that may not send tagged messages. No masked tag equals it,
// because the mask is never full.
const noSource = math.MaxUint64

// sourceOf returns the value that the tags of a peer must have under the mask, or noSource.
func (s *tagSources) sourceOf(key wireup.PublicKey) uint64 {
	if s.mask == 0 {
		return 0
	}
	if bits, ok := s.bits[key]; ok {
		return bits
	}
	return noSource
}

// maySend reports whether the peer of m may send a message with this tag.
func (w *Worker) maySend(m *messages, tag uint64) bool { return tag&w.tag.sources.mask == m.tag.source }

// setSource updates the cached source after RestrictTags. m may be nil.
func (m *messages) setSource() {
	if m == nil {
		return
	}
	m.tag.source = m.e.w.tag.sources.sourceOf(m.e.peer.Addr.Key)
	if m.tag.source == noSource {
		m.e.w.refuseSource(m)
	}
}

// checkSource drops an unexpected message if its peer may not send it.
func (u *TagMessage) checkSource() {
	m := u.msgs
	m.tag.source = m.e.w.tag.sources.sourceOf(m.e.peer.Addr.Key) // the EP may be destroyed, and RestrictTags has not updated its messages
	switch {
	case m.e.w.maySend(m, u.node.Tag):
		return
	case u.in != nil:
		u.in.drop(ucs.StatusCanceled)
	default:
		u.failRest(ucs.StatusCanceled)
	}
	u.w.stats.badMessages.Inc()
}

// RestrictTags limits the tags that each peer may send, so that bits of a tag identify the sender. sources yields an EP
// for each peer that may send tagged messages, and the bits that its tags have under mask. From then on the worker drops
// a tagged message if its sender is not such a peer, or if its tag has other bits under mask. It counts dropped messages
// in "bad_messages". It also drops such messages that have arrived and that no receive has
// matched. A peer is a worker: the rule applies to all its connections, also later ones (see [EP.SamePeer]).
//
// A mask of 0 with nil sources removes the restriction. Without a restriction, an expected message costs no more.
// Errors: ErrInvalidParam if the mask is full, bits are outside the mask, an EP is of another worker, or a
// peer has two sources; ErrClosed; those of the transports.
func (w *Worker) RestrictTags(mask uint64, sources iter.Seq2[*EP, uint64]) error {
	if w.closed {
		return fmt.Errorf("ucp: restrict tags: %w", ucs.ErrClosed)
	}
	s, err := w.newTagSources(mask, sources)
	if err != nil {
		return fmt.Errorf("ucp: restrict tags: %w", err)
	}
	w.tag.sources = s
	for e := range w.eps.All() {
		e.msgs.setSource()
	}
	for m := range w.tag.table.Messages() {
		m.Owner.checkSource()
	}
	var errs []error
	for _, i := range w.ifaces {
		if i.attr.Caps&uct.CapAM != 0 {
			errs = append(errs, i.SetAMHandler(wire.AMTag, w.tagHandler()))
		}
	}
	return ucs.Join(errs...)
}

// newTagSources checks the arguments of RestrictTags and returns the rule.
func (w *Worker) newTagSources(mask uint64, sources iter.Seq2[*EP, uint64]) (tagSources, error) {
	s := tagSources{mask: mask}
	switch {
	case mask == 0 && sources == nil:
		return s, nil
	case mask == 0 || mask == math.MaxUint64 || sources == nil:
		return s, fmt.Errorf("mask %#x: %w", mask, ucs.ErrInvalidParam)
	}
	s.bits = map[wireup.PublicKey]uint64{}
	for e, bits := range sources {
		key := e.peer.Addr.Key
		if _, twice := s.bits[key]; twice || e.w != w || bits&^mask != 0 {
			return s, fmt.Errorf("source %#x: %w", bits, ucs.ErrInvalidParam)
		}
		s.bits[key] = bits
	}
	return s, nil
}

// tagHandler returns the handler of complete tagged messages.
func (w *Worker) tagHandler() uct.AMHandler {
	if w.tag.sources.mask != 0 {
		return w.withArrivalOrder((*sourcedArrivals)(w))
	}
	return w.withArrivalOrder((*tagArrivals)(w))
}

// sourcedArrivals is tagArrivals for a worker with a rule.
type sourcedArrivals Worker

// HandleAM calls that of tagArrivals if the message arrived over the same connection as the latest
// message and its tag is allowed there. Otherwise handleTag checks it.
func (a *sourcedArrivals) HandleAM(data []byte, d uct.Desc) bool {
	w := (*Worker)(a)
	if m := w.messages.latest; len(data) > wire.HeadLen && m.self == binary.LittleEndian.Uint64(data[wire.WordLen:]) &&
		binary.LittleEndian.Uint64(data)&w.tag.sources.mask == m.tag.source {
		return (*tagArrivals)(w).HandleAM(data, d)
	}
	w.handleTag(data)
	return false
}

// refuseTagged drops a tagged message that its sender may not send, and releases its charge of n
// bytes.
func (w *Worker) refuseTagged(e *EP, n int) {
	w.stats.badMessages.Inc()
	e.msgs.received(n)
}
