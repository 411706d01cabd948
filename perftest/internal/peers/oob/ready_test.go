package oob

import (
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReady_ReportsRequestAndEnd(t *testing.T) {
	a, b, err := Pipe()
	require.NoError(t, err)
	defer a.Close()
	c := NewConn(b)
	defer func() { assert.NoError(t, c.Close()) }()
	assert.False(t, c.Ready())

	require.NoError(t, NewConn(a).send(kindRequest, &Request{Verb: Hello}))
	assert.True(t, c.Ready())
	assert.True(t, c.Ready(), "Ready must not consume the request")
	_, err = c.Receive(0)
	require.NoError(t, err)
	assert.False(t, c.Ready())

	assert.Zero(t, testing.AllocsPerRun(100, func() { c.Ready() }))
	require.NoError(t, a.Close())
	assert.True(t, c.Ready(), "closed")
}

func TestReady_TrueWithoutSocket(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	assert.True(t, NewConn(b).Ready())
}

func TestReady_AfterClose(t *testing.T) {
	a, b, err := Pipe()
	require.NoError(t, err)
	require.NoError(t, a.Close())
	c := NewConn(b)
	require.NoError(t, c.Close())
	assert.True(t, c.Ready(), "Receive returns the reason")
}
