package selection

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/workeraddr"
	"github.com/gucx/gucx/wireup"
)

// TestChoices_JSON: a choice that was marshaled has the same text.
func TestChoices_JSON(t *testing.T) {
	a, b := workeraddr.Make(t, 1, "rc", "ud", "sm"), workeraddr.Make(t, 2, "rc", "ud")
	choices := Choices(a, b, workeraddr.Reach(a, b), Rails{})
	require.Len(t, choices, int(wireup.Aux)+1)
	for _, c := range choices {
		text, err := json.Marshal(c)
		require.NoError(t, err)
		var back wireup.Choice
		require.NoError(t, json.Unmarshal(text, &back))
		assert.Equal(t, c, back)
		assert.Equal(t, c.String(), back.String())
	}
}
