package layer

import (
	"errors"
	"fmt"
	"strings"
)

// Variant is the way in which uct transfers the bytes of an operation; see package uct.
type Variant uint8

// Variants. With Auto the layer selects by size.
const (
	Auto Variant = iota
	Short
	Bcopy
	Zcopy
	numVariants
)

var variantNames = [numVariants]string{"", "short", "bcopy", "zcopy"}

// String returns UCX's name; empty for Auto.
func (v Variant) String() string {
	if v < numVariants {
		return variantNames[v]
	}
	return fmt.Sprintf("Variant(%d)", uint8(v))
}

// Variants lists the names that ParseVariant accepts, except the empty one.
func Variants() []string { return append([]string{}, variantNames[1:]...) }

// ParseVariant parses a name; the empty name is Auto.
func ParseVariant(name string) (Variant, error) {
	for v, n := range variantNames {
		if n == name {
			return Variant(v), nil
		}
	}
	return 0, fmt.Errorf("unknown variant %q; there are %s", name, strings.Join(Variants(), ", "))
}

// ErrNoSuchOp is the error of a layer that has no operation of a kind, with any transport.
var ErrNoSuchOp = fmt.Errorf("the layer has no such operation: %w", errors.ErrUnsupported)

// ErrNotConnected is the error of an operation before Connect.
var ErrNotConnected = errors.New("not connected")

// LimitError is the error of an operation that exceeds a limit of the transport.
type LimitError struct {
	Transport string
	Spec      Spec
	Limit     string // such as "at most 8192 bytes"
}

// Error returns transport, operation and limit.
func (e *LimitError) Error() string {
	op := e.Spec.Kind.String()
	if e.Spec.Variant != Auto {
		op += " " + e.Spec.Variant.String()
	}
	if l := e.Spec.Layouts.String(); l != "" {
		op += " " + l
	}
	return fmt.Sprintf("%s: %s of %d bytes: %s", e.Transport, op, e.Spec.Size, e.Limit)
}

// Unwrap makes errors.Is(e, errors.ErrUnsupported) true.
func (e *LimitError) Unwrap() error { return errors.ErrUnsupported }

// ErrData is the error of an operation with a wrong result.
var ErrData = errors.New("data verification failed")
