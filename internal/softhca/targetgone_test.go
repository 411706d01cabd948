package softhca_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/softhca"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// TestXRC_TargetClosesAfterMessages: messages whose sends have completed are received, although the target
// was not driven since, and is then closed or connected to another initiator.
func TestXRC_TargetClosesAfterMessages(t *testing.T) {
	for name, reconnect := range map[string]bool{"closed": false, "reconnected": true} {
		t.Run(name, func(t *testing.T) {
			x := openNode(t, softhca.Config{}).enterDomain(verbs.XRCDInitAttr{FD: verbs.PrivateXRCD})
			s := x.newSRQ()
			i := openNode(t, softhca.Config{})
			other := i.newInitiator()
			for round := range uint64(20) {
				target, from := x.newTarget(), i.newInitiator()
				connectXRC(from, x, target, defaultLink)
				for id := range round%4 + 1 {
					x.post(s, id, 0, 100)
					from.sendSRQ(s.Number(), id, 10)
				}
				for id := range round%4 + 1 {
					from.succeed(id)
				}
				if reconnect {
					require.NoError(t, target.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPMaskState))
					toRTS(t, target, other.gid, other.qp.Number(), defaultLink)
				} else {
					require.NoError(t, target.Close())
				}
				for id := range round%4 + 1 {
					x.succeed(id)
				}
				if reconnect {
					require.NoError(t, target.Close())
				}
			}
		})
	}
}
