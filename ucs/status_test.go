package ucs_test

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs"
)

// lastStatus is the highest one; TestStatus_EveryOneHasAnError notices a new one.
const lastStatus = ucs.StatusStreamEnded

// A Status in an error variable would be non-nil for success.
func TestStatus_IsNoError(t *testing.T) {
	for _, typ := range []reflect.Type{reflect.TypeFor[ucs.Status](), reflect.TypeFor[*ucs.Status]()} {
		assert.False(t, typ.Implements(reflect.TypeFor[error]()), typ)
	}
	var zero ucs.Status
	assert.Equal(t, ucs.StatusOK, zero)
	assert.NoError(t, zero.Err())
	assert.Equal(t, "ok", zero.String())
}

// TestStatus_Numbers pins them: they travel between processes.
func TestStatus_Numbers(t *testing.T) {
	for i, s := range []ucs.Status{
		ucs.StatusOK, ucs.StatusInProgress, ucs.StatusNoResource, ucs.StatusIOError, ucs.StatusNoMemory,
		ucs.StatusInvalidParam, ucs.StatusUnreachable, ucs.StatusInvalidAddr, ucs.StatusNotImplemented, ucs.StatusTruncated,
		ucs.StatusCanceled, ucs.StatusRemoteAccess, ucs.StatusConnReset, ucs.StatusTimedOut, ucs.StatusRejected,
		ucs.StatusUnsupported, ucs.StatusLocalAccess, ucs.StatusInternal, ucs.StatusRemoteInvalid, ucs.StatusRNR,
		ucs.StatusPeerClosed, ucs.StatusStreamEnded,
	} {
		assert.Equal(t, ucs.Status(i), s, "%v", s)
	}
}

func TestStatus_EveryOneHasAnError(t *testing.T) {
	seen := map[error]ucs.Status{}
	for s := ucs.StatusOK + 1; s <= lastStatus; s++ {
		err := s.Err()
		require.Error(t, err, "status %d", s)
		assert.Equal(t, err.Error(), s.String())
		if other, twice := seen[err]; twice {
			// Both say that it is not there; UCX has both names.
			assert.Equal(t, []ucs.Status{ucs.StatusNotImplemented, ucs.StatusUnsupported}, []ucs.Status{other, s})
		}
		seen[err] = s
	}
	assert.Equal(t, ucs.ErrInternal, (lastStatus + 1).Err(), "a status was added: move lastStatus")
}

func TestStatus_OutOfRange(t *testing.T) {
	for _, s := range []ucs.Status{-1, -128, 127} {
		assert.Equal(t, ucs.ErrInternal, s.Err())
		assert.Equal(t, "internal error", s.String())
	}
}

func TestStatus_FlowControlIsBare(t *testing.T) {
	assert.True(t, ucs.StatusNoResource.Err() == ucs.ErrNoResource, "compared with == on the data path")
	assert.True(t, ucs.ErrUnsupported == errors.ErrUnsupported)
}

func TestOpError_Text(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  ucs.OpError
		want string
	}{
		{"all", ucs.OpError{TL: "rc", Dev: "softhca0:1", Op: "modify qp 0x1a2 to RTR", Err: ucs.ErrTimedOut},
			"rc softhca0:1: modify qp 0x1a2 to RTR: operation timed out"},
		{"no device", ucs.OpError{TL: "tcp", Op: "dial", Err: ucs.ErrUnreachable}, "tcp: dial: destination is unreachable"},
		{"no transport", ucs.OpError{Dev: "mlx5_0", Op: "open", Err: ucs.ErrBusy}, "mlx5_0: open: device is busy"},
		{"neither", ucs.OpError{Op: "unpack", Err: ucs.ErrInvalidRKey}, "unpack: remote key not valid"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.EqualError(t, &tt.err, tt.want)
		})
	}
}

func TestOpError_Unwrap(t *testing.T) {
	cause := os.NewSyscallError("mmap", syscall.ENOMEM)
	err := fmt.Errorf("open worker: %w", &ucs.OpError{TL: "rc", Op: "create cq", Err: errors.Join(ucs.ErrNoMemory, cause)})
	assert.ErrorIs(t, err, ucs.ErrNoMemory)
	assert.ErrorIs(t, err, syscall.ENOMEM)
	var op *ucs.OpError
	require.ErrorAs(t, err, &op)
	assert.Equal(t, "create cq", op.Op)
	var call *os.SyscallError
	require.ErrorAs(t, err, &call)
	assert.Equal(t, "mmap", call.Syscall)
}
