package ib

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/uct"
)

func TestEndpoints_Text(t *testing.T) {
	for e := EndpointsAuto; e.Valid(); e++ {
		text, err := e.MarshalText()
		require.NoError(t, err)
		var back Endpoints
		require.NoError(t, back.UnmarshalText(text))
		assert.Equal(t, e, back)
		assert.Contains(t, e.Grammar(), string(text))
	}
	e := EndpointsStatic
	assert.ErrorIs(t, e.UnmarshalText([]byte("mine")), uct.ErrInvalidParam)
	assert.Equal(t, EndpointsStatic, e)
	require.NoError(t, e.UnmarshalText([]byte("mpi+THREADS")))
	assert.Equal(t, EndpointsMPIThreads, e)
	assert.Equal(t, "Endpoints(9)", Endpoints(9).String())
}

func TestEndpoints_OneOwner(t *testing.T) {
	var alone []Endpoints
	for e := EndpointsAuto; e.Valid(); e++ {
		if e.oneOwner() {
			alone = append(alone, e)
		}
	}
	assert.Equal(t, []Endpoints{EndpointsMPIEverywhere, EndpointsMPIThreads}, alone)
}
