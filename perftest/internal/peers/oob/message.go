package oob

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// Verb is the action of a Request.
type Verb string

// Verbs.
const (
	// Hello opens a session. The Value of the reply is the process id of the target.
	Hello Verb = "hello"
	// Open opens Layer with Params. The reply contains the target's Address.
	Open Verb = "open"
	// Connect connects Layer to the initiator's Address.
	Connect Verb = "connect"
	// Prepare prepares the target's part of an operation of Layer by Spec, and fills the buffer from which it sends.
	Prepare Verb = "prepare"
	// Drive makes the target progress Layer, or its part there, until the next request. It starts Value nanoseconds
	// after the reply, unless a request arrives before.
	Drive Verb = "drive"
	// Rest does nothing: it ends a Drive. The Value of the reply is 1 if the Drive had started.
	Rest Verb = "rest"
	// Finish finishes the part of Layer. The Value of the reply is the number of received operations. It fails if one
	// of them was wrong.
	Finish Verb = "finish"
	// Fill writes the pattern of Seed to the first Len bytes of Layer's memory, and a guard pattern after them.
	Fill Verb = "fill"
	// Check fails unless Layer's memory contains the pattern of Seed and Len, with the guard, as Fill writes it; the
	// first and last byte must be Stamp, if it is set.
	Check Verb = "check"
	// SetWord stores Value in the first 8 bytes of Layer's memory.
	SetWord Verb = "set-word"
	// Word returns the first 8 bytes of Layer's memory as Value.
	Word Verb = "word"
	// State returns what Layer waits for, in State of the reply. A Drive continues after it.
	State Verb = "state"
	// Close closes Layer.
	Close Verb = "close"
	// Bye ends the session.
	Bye Verb = "bye"
)

// Request is a message of the initiator.
type Request struct {
	Verb    Verb    `json:"verb"`
	Layer   string  `json:"layer,omitempty"`
	Params  *Params `json:"params,omitempty"`
	Address []byte  `json:"address,omitempty"`
	Seed    uint64  `json:"seed,omitempty"`
	Len     int     `json:"len,omitempty"`
	Value   uint64  `json:"value,omitempty"`
	Spec    *Spec   `json:"spec,omitempty"`
	Stamp   *byte   `json:"stamp,omitempty"`
}

// Spec is layer.Spec.
type Spec struct {
	Kind     uint8  `json:"kind"`
	Size     int    `json:"size"`
	Window   int    `json:"window"`
	Variant  uint8  `json:"variant"`
	Seed     uint64 `json:"seed"`
	Thorough bool   `json:"thorough"`

	Wildcard   bool `json:"wildcard,omitempty"`
	Unexpected bool `json:"unexpected,omitempty"`
	Written    bool `json:"written,omitempty"`

	SendLayout uint8 `json:"send_layout,omitempty"`
	RecvLayout uint8 `json:"recv_layout,omitempty"`
}

// maxDelay is the maximum delay of a Drive in nanoseconds.
const maxDelay = 1e9

// Params are the parameters with which the target opens its side.
type Params struct {
	Transport string `json:"transport"`
	Device    string `json:"device"`
	Fabric    string `json:"fabric"`
	MemLen    int    `json:"mem_len"`
	// Memory is layer.Memory.
	Memory uint8 `json:"memory,omitempty"`
	// Sleep is layer.Config.Sleep.
	Sleep bool `json:"sleep,omitempty"`
}

// MaxMemLen is the maximum length in bytes of the memory that a peer may make the target allocate for one layer.
const MaxMemLen = 1 << 30

// Reply is the target's reply to a Request.
type Reply struct {
	// Error is the text of an error; the other fields are then zero.
	Error   string `json:"error,omitempty"`
	Address []byte `json:"address,omitempty"`
	Value   uint64 `json:"value,omitempty"`
	State   string `json:"state,omitempty"` // at most MaxState bytes
}

// MaxState is the maximum length of Reply.State in bytes. With it the reply fits into a frame, also if JSON escapes
// characters.
const MaxState = MaxPayload / 4

// layered contains the verbs that need Layer.
var layered = map[Verb]bool{
	Hello: false, Bye: false,
	Rest: false, Prepare: true, Finish: true,
	Open: true, Connect: true, Drive: true, Fill: true, Check: true,
	SetWord: true, Word: true, Close: true, State: true,
}

// check validates a request that came from a peer.
func (r *Request) check() error {
	needsLayer, known := layered[r.Verb]
	switch {
	case !known:
		return fmt.Errorf("%w: unknown verb %q", ErrFrame, r.Verb)
	case needsLayer != (r.Layer != ""):
		return fmt.Errorf("%w: %s with layer %q", ErrFrame, r.Verb, r.Layer)
	case (r.Verb == Open) != (r.Params != nil):
		return fmt.Errorf("%w: params belong to open alone", ErrFrame)
	case (r.Verb == Prepare) != (r.Spec != nil):
		return fmt.Errorf("%w: a spec belongs to prepare alone", ErrFrame)
	case r.Spec != nil && (r.Spec.Size < 0 || r.Spec.Size > MaxMemLen):
		return fmt.Errorf("%w: operation of %d bytes, want 0..%d", ErrFrame, r.Spec.Size, MaxMemLen)
	case r.Verb == Drive && r.Value > maxDelay:
		return fmt.Errorf("%w: a delay of %d ns, at most %d", ErrFrame, r.Value, int64(maxDelay))
	case r.Params != nil && (r.Params.MemLen < 1 || r.Params.MemLen > MaxMemLen):
		return fmt.Errorf("%w: memory of %d bytes, want 1..%d", ErrFrame, r.Params.MemLen, MaxMemLen)
	case r.Len < 0 || r.Len > MaxMemLen:
		return fmt.Errorf("%w: length %d, want 0..%d", ErrFrame, r.Len, MaxMemLen)
	}
	return nil
}

// decode reads exactly one JSON value without unknown fields.
func decode(payload []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(payload))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("%w: %w", ErrFrame, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return fmt.Errorf("%w: bytes after the message", ErrFrame)
	}
	return nil
}
