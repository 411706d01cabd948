package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestOrder(t *testing.T) {
	g := newGraph([]string{"a", "b", "c", "d"})
	for _, u := range []string{"ab", "bc", "cd", "ad", "ca"} { // ca closes a circle
		g.use(u[:1], u[1:])
	}
	g.use("a", "a")
	assert.Equal(t, 5, g.arrows())
	assert.Equal(t, 4, g.uphill([]int{0, 1, 2, 3}))
	order := g.order()
	assert.Equal(t, 1, g.uphill(order))
	var out bytes.Buffer
	g.print(&out, order)
	assert.Equal(t, 1, bytes.Count(out.Bytes(), []byte("^")))
	assert.Contains(t, out.String(), "  d:\n")
}
