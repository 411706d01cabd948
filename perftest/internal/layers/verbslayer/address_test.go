package verbslayer

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/uct/ib/verbs"
)

func TestAddress_RoundTrip(t *testing.T) {
	in := address{GID: verbs.GID{1, 15: 2}, LID: 0x1234, QPN: maxQPN, PSN: 5, RKey: 6, Memory: layer.Region{Addr: 7, Len: 8}}
	packed := in.append(nil)
	require.Len(t, packed, addrLen)
	out, err := parseAddress(packed, 8)
	require.NoError(t, err)
	assert.Equal(t, in, out)
	_, err = parseAddress(packed[1:], 8)
	assert.ErrorIs(t, err, layer.ErrAddress)
}

// TestConn_Path: packets have a global route header only if the link needs one.
func TestConn_Path(t *testing.T) {
	peer := &address{GID: verbs.GID{15: 1}, LID: 3}
	c := Conn{port: 2, gid: verbs.GIDEntry{Index: 4}}
	assert.Equal(t, verbs.AHAttr{Port: 2, DLID: 3}, c.path(peer))
	c.link.Ethernet = true
	assert.Equal(t, verbs.AHAttr{Port: 2, Global: true, SGIDIndex: 4, DGID: peer.GID, HopLimit: 1}, c.path(peer))
}
