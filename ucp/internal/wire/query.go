package wire

import "encoding/binary"

// Active messages of the queries of receives for messages that their sender has queued;
// docs/wire.md, "Queries".
const (
	AMQuery = 23 // the receiver looks for a message in the sender's queue
	AMReply = 24 // the sender has no credit, or replies to a query
	AMOffer = 25 // the sender offers a message out of turn
)

// QueryKind is the type of a Query.
type QueryKind uint8

// Kinds of Query.
const (
	QueryNone  QueryKind = 0 // no query: the message only replies to the latest offer
	QueryMatch QueryKind = 1 // requests the first message up to number Limit that matches Tag and Mask
	QueryList  QueryKind = 2 // requests the tags of the messages after number Limit, also of those that are queued later
	QueryProbe QueryKind = 3 // as QueryMatch, but requests only the number, tag and length of the message
)

// QueryLen is the length of a Query.
const QueryLen = 40

// Query is the content of AMQuery.
type Query struct {
	EP       uint64 // the receiver's id of the connection
	Number   uint32 // of the query, not 0, unless Kind is QueryNone
	Kind     QueryKind
	Returned bool // the message that was offered last matches no receive
	Tag      uint64
	Mask     uint64
	Limit    uint64 // number of a message
}

// Append appends the message.
func (q *Query) Append(b []byte) []byte {
	flags := byte(0)
	if q.Returned {
		flags = 1
	}
	b = binary.LittleEndian.AppendUint64(b, q.EP)
	b = binary.LittleEndian.AppendUint32(b, q.Number)
	return appendThree(append(b, byte(q.Kind), flags, 0, 0), q.Tag, q.Mask, q.Limit)
}

// Unpack decodes a message. It reports whether the length and the kind are valid.
func (q *Query) Unpack(b []byte) bool {
	if len(b) != QueryLen {
		return false
	}
	le := binary.LittleEndian
	q.EP, q.Number, q.Kind, q.Returned = le.Uint64(b), le.Uint32(b[8:]), QueryKind(b[12]), b[13]&1 != 0
	q.Tag, q.Mask, q.Limit = le.Uint64(b[16:]), le.Uint64(b[24:]), le.Uint64(b[32:])
	return q.Kind <= QueryProbe
}

// ReplyKind is the type of a Reply.
type ReplyKind uint8

// Kinds of Reply.
const (
	ReplyBlocked ReplyKind = 1 // no reply: the sender has no credit. Value is the number of AMCredit that it has received
	ReplyNone    ReplyKind = 2 // no message matches. Value is the number of the last message in the queue
	ReplyList    ReplyKind = 3 // numbers and tags of messages follow, in the order of the queue
	ReplyProbe   ReplyKind = 4 // Value is the number of the message; its tag and length follow
)

// ReplyLen is the length of a Reply without its pairs, PairLen that of a Pair.
const (
	ReplyLen = 24
	PairLen  = 16
)

// MaxPairs is the maximum number of pairs in a Reply.
const MaxPairs = 48

// Pair is the number and the tag of a queued message; in ReplyProbe the tag and the length.
type Pair struct{ First, Second uint64 }

// Reply is the content of AMReply, without its pairs.
type Reply struct {
	EP     uint64 // the receiver's id of the connection
	Number uint32 // of the query; 0 in ReplyBlocked
	Kind   ReplyKind
	Value  uint64
}

// Append appends the message without pairs.
func (r *Reply) Append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, r.EP)
	b = binary.LittleEndian.AppendUint32(b, r.Number)
	return binary.LittleEndian.AppendUint64(append(b, byte(r.Kind), 0, 0, 0), r.Value)
}

// Append appends the pair to a Reply.
func (p Pair) Append(b []byte) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(b, p.First), p.Second)
}

// Unpack decodes a message and returns its packed pairs. It reports whether the kind and the
// number of pairs are valid.
func (r *Reply) Unpack(b []byte) (pairs []byte, ok bool) {
	if len(b) < ReplyLen {
		return nil, false
	}
	le := binary.LittleEndian
	r.EP, r.Number, r.Kind, r.Value = le.Uint64(b), le.Uint32(b[8:]), ReplyKind(b[12]), le.Uint64(b[16:])
	pairs = b[ReplyLen:]
	n := len(pairs) / PairLen
	switch {
	case len(pairs)%PairLen != 0:
		return nil, false
	case r.Kind == ReplyBlocked || r.Kind == ReplyNone:
		return pairs, n == 0
	case r.Kind == ReplyProbe:
		return pairs, n == 1
	}
	return pairs, r.Kind == ReplyList && n > 0 && n <= MaxPairs
}

// UnpackPair decodes the first pair and returns the others.
func UnpackPair(b []byte) (p Pair, rest []byte) {
	return Pair{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])}, b[PairLen:]
}

// OfferLen is the length of an Offer without its RTS.
const OfferLen = 32

// Offer precedes the RTS of a message that is offered.
type Offer struct {
	EP      uint64 // the receiver's id of the connection
	Query   uint32 // number of the query
	Message uint64 // number of the message in the sender's queue
	Tag     uint64
}

// Append appends the Offer, after which the RTS follows.
func (o *Offer) Append(b []byte) []byte {
	return appendThree(binary.LittleEndian.AppendUint64(b, o.EP), uint64(o.Query), o.Message, o.Tag)
}

// Unpack decodes the Offer, and returns the bytes of the RTS after it.
func (o *Offer) Unpack(b []byte) (rest []byte, ok bool) {
	if len(b) < OfferLen {
		return nil, false
	}
	le := binary.LittleEndian
	o.EP, o.Query, o.Message, o.Tag = le.Uint64(b), le.Uint32(b[8:]), le.Uint64(b[16:]), le.Uint64(b[24:])
	return b[OfferLen:], true
}
