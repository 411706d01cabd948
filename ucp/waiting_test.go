package ucp_test

import (
	"testing"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
)

// TestAllocs_Waiting: many messages that wait for credit allocate nothing after warm-up.
func TestAllocs_Waiting(t *testing.T) {
	p := ucppair.New(t, tlsets.Real("sm", "sm"), ucp.Config{})
	from, to := openStream(p)
	piece, all := testenv.Pattern(4<<10, 1), make([]byte, 2*ucp.DefaultEagerWindow)
	n := 0
	pass := func() {
		for range len(all) / len(piece) {
			if r, err := from.StreamSend(piece, nil); r != nil {
				r.Release()
			} else if err != nil {
				panic(err)
			}
		}
		r, err := to.StreamRecv(all, true, &n, nil)
		p.MustFinish(r, err)
	}
	for range 10 { // warm the pools of all layers
		pass()
	}
	testenv.NoAllocs(t, "streams that wait", pass)
	testenv.RequireBytes(t, piece, all[len(all)-len(piece):])
}
