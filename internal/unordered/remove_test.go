package unordered

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestRemove(t *testing.T) {
	one, two, three := new(int), new(int), new(int)
	s := []*int{one, two, three}
	assert.Same(t, three, Remove(&s, 0))
	assert.Equal(t, []*int{three, two}, s)
	assert.Nil(t, s[:3][2], "nothing keeps what was removed")
	assert.Same(t, two, Remove(&s, 1), "the last one")
	assert.Same(t, three, Remove(&s, 0))
	assert.Empty(t, s)
}
