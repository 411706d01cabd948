package kvstore

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/gucx/gucx/ucp/ucprpc"
)

// Methods of a server. The request of methodGet and methodRemove is the key; that of methodPut is the length of the key
// (u16), the key and the value. The request of methodInfo is the info of the caller in JSON, or empty; the reply is the
// info of the server.
var (
	methodInfo   = ucprpc.Method{Number: 1, Idempotent: true}
	methodGet    = ucprpc.Method{Number: 2, Idempotent: true}
	methodPut    = ucprpc.Method{Number: 3}
	methodRemove = ucprpc.Method{Number: 4}
)

// Errors of clients.
var (
	ErrNoKey   = errors.New("kvstore: no such key")
	ErrFull    = errors.New("kvstore: the table is full")
	ErrTooLong = errors.New("kvstore: the key is empty or too long, or the value is too long")
	// ErrUnknown is the error of an update whose connection failed before the reply: the server may have executed it.
	ErrUnknown = errors.New("kvstore: the connection failed: the update may have run")
)

// errNotPrimary is the error of a server that does not serve.
var errNotPrimary = errors.New("kvstore: the server does not serve")

const codeNotPrimary = ucprpc.CodeUser + 4

// codes are the errors that a server sends to clients, by code.
var codes = map[ucprpc.Code]error{
	ucprpc.CodeUser:     ErrNoKey,
	ucprpc.CodeUser + 1: ErrFull,
	ucprpc.CodeUser + 2: ErrTooLong,
	ucprpc.CodeUser + 3: ErrUnknown,
	codeNotPrimary:      errNotPrimary,
}

// encodeError returns the error of a handler with its code.
func encodeError(err error) error {
	if err == nil {
		return nil
	}
	for code, e := range codes {
		if err == e {
			return &ucprpc.Error{Code: code}
		}
	}
	return err
}

// decodeError returns the error with the code of err, or err if the code is unknown.
func decodeError(err error) error {
	if e := codes[ucprpc.CodeOf(err)]; e != nil {
		return e
	}
	return err
}

// info is the state of a server, for other servers and clients.
type info struct {
	ID         string // ID of this start of the server; a primary publishes its table under this name
	Role       role
	New        bool // Config.New
	Lease      time.Duration
	Key, Value int // maximum lengths in bytes
	shape
}

// appendPut appends the request of methodPut.
func appendPut(b []byte, key string, value []byte) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(len(key)))
	return append(append(b, key...), value...)
}

// parsePut parses a request of methodPut from an untrusted client.
func parsePut(b []byte) (key, value []byte, err error) {
	if len(b) < 2 {
		return nil, nil, ErrTooLong
	}
	n := int(binary.LittleEndian.Uint16(b))
	if b = b[2:]; n > len(b) {
		return nil, nil, ErrTooLong
	}
	return b[:n], b[n:], nil
}
