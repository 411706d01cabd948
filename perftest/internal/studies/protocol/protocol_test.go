package protocol

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestList_Find(t *testing.T) {
	l := List{{Name: "eager"}, {"am", []string{"GUCX_RNDV_SCHEME=am"}}}
	for i, name := range l.Names() {
		p, err := l.Find(name)
		require.NoError(t, err)
		assert.Equal(t, l[i], p)
	}
	_, err := l.Find("magic")
	assert.EqualError(t, err, `protocol "magic": there are eager, am`)
}
