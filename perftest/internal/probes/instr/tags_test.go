package instr

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/uct/sm"
)

// TestTagMessages_Late: if the counted progress does not find the message, the repetition is void, and the message
// is received before the next one.
func TestTagMessages_Late(t *testing.T) {
	opened, err := openUCP(fabrics[0], sm.Name)
	require.NoError(t, err)
	defer func() { assert.NoError(t, opened.Close()) }()
	r := opened.(*ucpRig)
	s, err := r.steps(Case{Op: TagRecv, API: UCP, Size: 8, Switch: sm.Name})
	require.NoError(t, err)
	once := func(s steps) (void bool, err error) {
		err = s.once(func() {}, func(v bool) { void = v })
		return void, err
	}
	var other [8]byte // receives the first message; a second one is late
	q, err := r.peer.TagRecv(other[:], aTag, exactly, nil, nil)
	require.NoError(t, err)
	late := s
	late.after = inTurn(func() error { return r.tags.send(r) }, s.after)
	void, err := once(late)
	assert.Equal(t, errVoid, err)
	assert.True(t, void)
	assert.True(t, q.Done())
	q.Release()
	void, err = once(s)
	assert.NoError(t, err)
	assert.False(t, void)
}
