package ibport

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/uct/ib/verbs"
)

// TestWhyGID covers the order of the choice: see verbs.ChooseGID.
func TestWhyGID(t *testing.T) {
	v4 := verbs.GID{10: 0xff, 11: 0xff, 12: 10, 13: 77, 15: 1}
	v6 := verbs.GID{0: 0xfd, 1: 0x77, 15: 1}
	for _, c := range []struct {
		list  []verbs.GIDEntry
		index uint8
		why   string
	}{
		{[]verbs.GIDEntry{{GID: v6, Index: 4, Type: verbs.GIDRoCEv2}}, 4, ""},
		{[]verbs.GIDEntry{{GID: v6, Type: verbs.GIDRoCEv2}, {GID: v4, Index: 1, Type: verbs.GIDRoCEv1}, {GID: v4, Index: 2, Type: verbs.GIDRoCEv2}}, 2,
			"the first of 3 that is of RoCE v2 with an IPv4 address"},
		{[]verbs.GIDEntry{{GID: v4, Type: verbs.GIDRoCEv1}, {GID: v6, Index: 1, Type: verbs.GIDRoCEv2}}, 1,
			"the first of 2 that is of RoCE v2, none of that type has an IPv4 address"},
	} {
		e, ok := verbs.ChooseGID(c.list)
		require.True(t, ok)
		assert.Equal(t, c.index, e.Index)
		assert.Equal(t, c.why, whyGID(e, c.list))
		p := Port{gidIndex: e.Index, gidWhy: c.why}
		p.Addr.GID = e.GID
		if c.why == "" {
			assert.Nil(t, p.Explainer())
			continue
		}
		assert.Contains(t, p.Explainer().Explain(), fmt.Sprintf("sends from GID %d, %v; chosen: %s", c.index, e.GID, c.why))
	}
}
