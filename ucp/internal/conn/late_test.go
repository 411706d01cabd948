package conn

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLate_InOrderWhileFresh(t *testing.T) {
	var l Late
	require.Nil(t, l.Next(0))
	for i := range byte(3) {
		l.Add(time.Duration(i)*lateFor/2, []byte{i})
	}
	assert.Equal(t, []byte{1}, l.Next(lateFor), "the first is too old")
	assert.Equal(t, []byte{2}, l.Next(lateFor))
	assert.True(t, l.Empty())
	assert.Zero(t, l.bytes)
	l.Add(0, []byte{9})
	assert.Nil(t, l.Next(lateFor))
	assert.True(t, l.Empty())
}

func TestLate_IsBounded(t *testing.T) {
	var l Late
	msg := make([]byte, 1000)
	for range 2 * maxLate / len(msg) {
		l.Add(0, msg)
	}
	assert.Len(t, l.list, maxLate/len(msg))
	for l.Next(0) != nil {
	}
	assert.Zero(t, l.bytes)
}
