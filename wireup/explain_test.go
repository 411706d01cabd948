package wireup

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs"
)

// TestChoices_JSON: a choice that was marshaled has the same text.
func TestChoices_JSON(t *testing.T) {
	a, b := address(t, 1, "rc", "ud", "sm"), address(t, 2, "rc", "ud")
	choices := Choices(a, b, reach(a, b), Rails{})
	require.Len(t, choices, int(roleEnd))
	for _, c := range choices {
		text, err := json.Marshal(c)
		require.NoError(t, err)
		var back Choice
		require.NoError(t, json.Unmarshal(text, &back))
		assert.Equal(t, c, back)
		assert.Equal(t, c.String(), back.String())
	}
	var r Role
	assert.ErrorIs(t, r.UnmarshalText([]byte("none of these")), ucs.ErrInvalidParam)
}
