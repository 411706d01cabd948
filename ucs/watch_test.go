package ucs_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gucx/gucx/ucs"
)

func TestWatch_Idle(t *testing.T) {
	var word, attention uint32
	w := ucs.Watch{Word: &word, Attention: &attention}
	assert.True(t, w.Idle())
	word = 7
	assert.False(t, w.Idle(), "something arrived")
	w.Quiet = 7
	assert.True(t, w.Idle(), "it was taken")
	attention = 1
	assert.False(t, w.Idle(), "the device wants to be driven")
}
