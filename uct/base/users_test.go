package base

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/uct"
)

func TestUsers(t *testing.T) {
	var u Users
	released := 0
	release := func() error { released++; return nil }

	require.NoError(t, u.Hold())
	require.NoError(t, u.Hold())
	u.Drop()
	err := u.Close(release)
	assert.ErrorIs(t, err, uct.ErrBusy)
	assert.ErrorContains(t, err, "1 ifaces and memory handles")
	assert.Zero(t, released)

	u.Drop()
	assert.NoError(t, u.Close(release))
	assert.NoError(t, u.Close(release), "idempotent")
	assert.Equal(t, 1, released)
	assert.ErrorIs(t, u.Hold(), uct.ErrClosed)
}

func TestUsers_OpenAfterFailedRelease(t *testing.T) {
	var u Users
	cause := errors.New("device is stuck")
	assert.ErrorIs(t, u.Close(func() error { return cause }), cause)
	assert.NoError(t, u.Hold())
}
