package faketp

import (
	"testing"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/uct"
)

// Set returns a set of one component with fake transports.
func Set(name string, kinds ...Kind) tlsets.Set {
	return tlsets.Set{Name: name, Open: func(testing.TB) (a, b []uct.Component) {
		c := []uct.Component{New(kinds...)}
		return c, c
	}}
}

// Sets returns the sets of fake transports over which the suite of ucp runs.
func Sets() []tlsets.Set {
	return []tlsets.Set{
		Set("like rc+ud", LikeRC(), LikeUD()),
		Set("like sm", LikeSM()),
		Set("like tcp", LikeTCP()), // the target executes atomics
		Set("like sm+rc+ud", LikeSM(), LikeRC(), LikeUD()),
	}
}

// AllSets returns the sets of fake and of real transports. Over fake ones one goroutine does everything. With -short under
// the race detector, only that one is among them which is like none of the real sets there.
func AllSets() []tlsets.Set {
	if testenv.RaceEnabled && testing.Short() {
		return append([]tlsets.Set{Set("like sm", LikeSM())}, tlsets.RealSets()...)
	}
	return append(Sets(), tlsets.RealSets()...)
}
