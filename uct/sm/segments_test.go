package sm

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestSegments_Model takes at random, as messages and for answers, and gives back in
// order: no segment is out twice, all come back, and the last that did goes first.
func TestSegments_Model(t *testing.T) {
	for _, segs := range []int{1, 2, 3, 64, maxSegs} {
		var returned [maxSegs]atomic.Uint32
		l := newSegments(&returned, segs)
		rng := rand.New(rand.NewPCG(7, uint64(segs)))
		out := map[uint8]bool{}
		var messages, answers []uint8
		for range 20000 {
			i, ok := l.next()
			switch {
			case !ok:
				assert.Len(t, out, segs, "none is here only if all are out")
			case rng.IntN(2) == 0:
				assert.False(t, out[i], "taken twice")
				out[i] = true
				if rng.IntN(4) == 0 {
					l.take(i)
					answers = append(answers, i)
				} else {
					l.send(i)
					messages = append(messages, i)
				}
			}
			for len(messages) > 0 && rng.IntN(2) == 0 {
				returned[messages[0]].Add(1)
				delete(out, messages[0])
				messages = messages[1:]
			}
			if len(answers) > 0 && rng.IntN(3) == 0 {
				returned[answers[0]].Add(1)
				assert.True(t, l.isBack(answers[0]))
				l.put(answers[0])
				delete(out, answers[0])
				answers = answers[1:]
			}
		}
	}
}

// TestSegments_LastBackGoesFirst is what keeps few segments in use.
func TestSegments_LastBackGoesFirst(t *testing.T) {
	var returned [maxSegs]atomic.Uint32
	l := newSegments(&returned, 64)
	for range 1000 {
		i, ok := l.next()
		assert.True(t, ok)
		assert.Less(t, i, uint8(collectEvery))
		l.send(i)
		returned[i].Add(1)
	}
}
