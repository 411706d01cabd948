package timing

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAgenda_TimeThenOrderOfMaking(t *testing.T) {
	var a agenda
	type mark struct {
		at Time
		n  int
	}
	var got []mark
	random := rand.New(rand.NewPCG(7, 7))
	for n := range 2000 {
		at := Time(random.IntN(50))
		a.at(at, func() {
			assert.Equal(t, at, a.now)
			got = append(got, mark{at, n})
		})
	}
	for a.next() {
	}
	require.Len(t, got, 2000)
	for i := range got[1:] {
		b, c := got[i], got[i+1]
		require.True(t, b.at < c.at || b.at == c.at && b.n < c.n, "%v before %v", b, c)
	}
}

func TestAgenda_NothingInThePast(t *testing.T) {
	a := agenda{now: 5}
	assert.Panics(t, func() { a.at(4, func() {}) })
}

func TestAgenda_QuietUntil(t *testing.T) {
	var a agenda
	assert.True(t, a.quietUntil(100))
	a.at(10, func() {})
	assert.True(t, a.quietUntil(9))
	assert.False(t, a.quietUntil(10), "an event at the same time is first")
}
