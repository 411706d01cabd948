package lane

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucp/internal/handshake"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/wireup"
)

// two are a set with two lanes that are active and connected.
func two() *Set[string] {
	s := &Set[string]{}
	for n, name := range []string{"first", "second"} {
		s.All[n] = Lane[string]{Iface: name}
	}
	s.Activate(&s.All[0], handshake.Set(wireup.RMA, wireup.AMO))
	s.Activate(&s.All[1], handshake.Set(wireup.AM))
	return s
}

func TestSet_SingleIsWhatAFlushIsFor(t *testing.T) {
	s := two()
	assert.Nil(t, s.Single, "nothing was posted")
	s.SetConnected(&s.All[0])
	assert.Same(t, &s.All[0], s.Single)
	s.SetConnected(&s.All[1])
	assert.Nil(t, s.Single, "both")
	s.Clear()
	assert.Nil(t, s.Use[wireup.RMA])
	assert.Equal(t, "first", s.Via[wireup.RMA], "errors still name it")
}

func TestSet_Retire(t *testing.T) {
	s := two()
	s.SetConnected(&s.All[0])
	s.SetConnected(&s.All[1])
	require.Equal(t, handshake.Set(wireup.RMA, wireup.AMO), s.Retire(&s.All[0], ucs.StatusTimedOut))
	assert.Nil(t, s.Use[wireup.RMA])
	assert.Same(t, &s.All[1], s.Use[wireup.AM])
	assert.Equal(t, ucs.StatusTimedOut, s.Lost(wireup.AMO))
	assert.Equal(t, ucs.StatusOK, s.Lost(wireup.AM))
	assert.Equal(t, ucs.StatusTimedOut, s.Unreported())
	assert.Nil(t, s.Single, "a flush must look")
	s.Reported()
	assert.Same(t, &s.All[1], s.Single)

	s.All[1].MarkReported()
	s.Retire(&s.All[1], ucs.StatusIOError)
	assert.Equal(t, ucs.StatusOK, s.Unreported(), "a flush has told already")
}

func TestSet_RetireOfWhatWasNotUsed(t *testing.T) {
	s := two()
	s.Retire(&s.All[0], ucs.StatusIOError)
	assert.Equal(t, ucs.StatusOK, s.Unreported(), "nothing was posted over it")
	assert.Equal(t, ucs.StatusIOError, s.LastLost())
	assert.True(t, s.All[0].Retired)
	s.Retire(&s.All[2], ucs.StatusRejected)
	assert.Equal(t, ucs.StatusIOError, s.LastLost(), "it came to nothing")
	assert.Equal(t, 1, s.Index(&s.All[1]))
	assert.Equal(t, -1, s.Index(&Lane[string]{}))
}
