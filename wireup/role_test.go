package wireup

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs"
)

func TestRole_Text(t *testing.T) {
	for r := range Role(roleEnd) {
		text, err := r.MarshalText()
		require.NoError(t, err)
		var back Role
		require.NoError(t, back.UnmarshalText(text))
		assert.Equal(t, r, back)
	}
	var r Role
	assert.ErrorIs(t, r.UnmarshalText([]byte("none of these")), ucs.ErrInvalidParam)
	assert.Equal(t, "unknown", Role(9).String())
}
