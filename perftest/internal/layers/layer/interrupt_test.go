package layer

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestInterrupt_IdleWaitContinues: Idle continues after an interrupt, until the context ends.
func TestInterrupt_IdleWaitContinues(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	i := NewInterrupt(ctx)
	looks := 0
	i.OnRaise(func() { looks++ })
	idle := NewIdle(Config{Context: ctx, Interrupt: i})
	poll := func() (err error) {
		for range 2 * lookInterval {
			if err == nil {
				err = idle.Poll()
			}
		}
		return err
	}
	assert.NoError(t, poll())
	assert.Zero(t, looks)
	for want := range 3 {
		i.Raise()
		assert.NoError(t, poll())
		assert.Equal(t, want+1, looks)
	}
	i.OnRaise(nil)
	i.Raise()
	assert.NoError(t, poll())

	why := errors.New("enough")
	cancel(why)
	assert.Equal(t, why, poll())
}

type stated string

func (s stated) State() string { return string(s) }

func TestState_OfEachPartOnce(t *testing.T) {
	assert.Equal(t, "a\nb\n", State(stated("a\n"), nil, 3, stated("b\n"), stated("b\n")))
}
