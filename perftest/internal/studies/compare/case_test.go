package compare

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCases_NamesDifferAndGoalsAreSet(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range Cases() {
		assert.False(t, seen[c.String()], "two cases have the name %s", c)
		seen[c.String()] = true
		assert.Positive(t, c.Goal, c)
		assert.Positive(t, c.Size, c)
		assert.NotEmpty(t, c.UCX.Test, c)
		assert.Equal(t, c.Name == "self", c.UCX.Loop, c)
	}
}

func TestChoose(t *testing.T) {
	got, err := choose(Cases(), "^tcp/am_mr/(8|64)/short")
	require.NoError(t, err)
	require.Len(t, got, 2)
	assert.Equal(t, "tcp/am_mr/8/short", got[0].String())

	all, err := choose(Cases(), "")
	require.NoError(t, err)
	assert.Equal(t, Cases(), all)

	_, err = choose(Cases(), "nothing")
	assert.ErrorContains(t, err, "--list")
	_, err = choose(Cases(), "(")
	assert.Error(t, err)
}

func TestCase_Transport(t *testing.T) {
	assert.Equal(t, "sm", Case{Name: "cma"}.Transport())
	assert.Equal(t, "tcp", Case{Name: "tcp"}.Transport())
}
