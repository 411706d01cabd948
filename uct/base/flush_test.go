package base

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gucx/gucx/uct"
)

func TestFlushGroups(t *testing.T) {
	var g FlushGroups
	for range 3 {
		fired := 0
		user := &uct.Completion{Count: 1, Func: func(c *uct.Completion) { fired++; assert.NotZero(t, c.Status) }}
		all := g.Get(user, 3)
		other := g.Get(&uct.Completion{Count: 1, Func: func(*uct.Completion) {}}, 1)
		assert.NotSame(t, all, other)
		other.Complete(0)
		all.Complete(0)
		all.Complete(3)
		assert.Zero(t, fired)
		all.Complete(0)
		assert.Equal(t, 1, fired)
	}
}
