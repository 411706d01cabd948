package footprint

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRun_EndpointsOfRCHaveQueues(t *testing.T) {
	s := &Study{Transports: Transports(), Peers: []int{4}}
	require.NoError(t, s.Check())
	rows, err := s.Run(t.Context(), func(string, int) {})
	require.NoError(t, err)
	require.Len(t, rows, 4)
	for _, r := range rows[:2] {
		assert.Equal(t, 4, r.QPs, r.Transport)
		assert.Positive(t, r.QPBytes, r.Transport)
	}
	for _, r := range rows[2:] {
		assert.Equal(t, 1, r.QPs, r.Transport)
		assert.Zero(t, r.QPBytes, r.Transport)
	}
}

func TestRun_LazyConnectsOnUse(t *testing.T) {
	s := &Study{Connect: []string{"lazy", "eager"}, Peers: []int{3}}
	rows, err := s.Run(t.Context(), func(string, int) {})
	require.NoError(t, err)
	require.Len(t, rows, 2)
	assert.Equal(t, 1, rows[0].QPs)
	assert.Equal(t, 3, rows[1].QPs)
}

func TestCheck(t *testing.T) {
	for _, s := range []Study{{Transports: []string{"tcp"}, Peers: []int{1}}, {Peers: []int{1}},
		{Connect: []string{"lazy"}, Peers: []int{1000}}, {Transports: []string{"rc"}, Peers: []int{0}}, {Transports: []string{"rc"}}} {
		assert.Error(t, s.Check(), "%+v", s)
	}
}
