package instr

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/uct"
)

// TestMessages_WithoutRoom: if a transport has no room for a message, as the other side has not run, the repetition
// is void, and a later one has room.
func TestMessages_WithoutRoom(t *testing.T) {
	for _, tl := range transports {
		t.Run(tl, func(t *testing.T) {
			opened, err := openUCT(fabrics[0], tl)
			require.NoError(t, err)
			defer func() { assert.NoError(t, opened.Close()) }()
			r := opened.(*uctRig)
			require.NoError(t, r.far.Iface().SetAMHandler(fillID, uct.AMHandlerFunc(drop)))
			for _, op := range []Op{AMShort, AMShortRecv, AMBcopy, AMBcopyRecv} {
				s, err := r.steps(Case{Op: op, API: UCT, Size: 8, Switch: tl})
				require.NoError(t, err)
				fillUp(t, r)
				once := func() error { return s.once(func() {}, func(bool) {}) }
				assert.Equal(t, errVoid, once(), op)
				for range polls {
					if err = once(); err != errVoid {
						break
					}
				}
				assert.NoError(t, err, op)
			}
		})
	}
}

// fillID is the handler of messages that only fill the queue.
const fillID = amID + 1

func drop([]byte, uct.Desc) (keep bool) { return false }

// fillUp sends until the transport has no room.
func fillUp(t *testing.T, r *uctRig) {
	t.Helper()
	const limit = 1 << 20
	for range limit {
		err := r.am.sender.AMShort(fillID, 0, nil)
		if err == uct.ErrNoResource {
			return
		}
		require.NoError(t, err)
	}
	t.Fatal("the transport always has room")
}
