package ucp_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/all"
	"github.com/gucx/gucx/uct/tcp"
)

// otherTLS is a component whose sockets of Listen and Dial present another certificate than its data connections.
type otherTLS struct {
	uct.Component
	other uct.Component
}

func (c otherTLS) OpenMD(name string) (uct.MD, error) {
	md, err := c.Component.OpenMD(name)
	if err != nil {
		return nil, err
	}
	other, err := c.other.OpenMD(name)
	if err != nil {
		return nil, err
	}
	return otherMD{md, other}, nil
}

type otherMD struct {
	uct.MD
	other uct.MD
}

func (m otherMD) Close() error { return errors.Join(m.MD.Close(), m.other.Close()) }

func (m otherMD) Ext() *uct.MDExt {
	ext := *m.MD.Ext()
	ext.TLS = m.other.Ext().TLS
	return &ext
}

// TestDial_TLSOfAnotherWorker: a listener whose data connections present another certificate than its socket is
// rejected.
func TestDial_TLSOfAnotherWorker(t *testing.T) {
	a := testenv.NewAuthority(t)
	set := tlsets.Set{Name: "tcp", TLS: config.Allow("tcp"), Open: func(testing.TB) (_, _ []uct.Component) {
		at := tlsets.Components(all.Config{TCP: withURI(t, a, dialerURI)})
		return at, []uct.Component{otherTLS{tcp.New(withURI(t, a, "spiffe://cluster/other")), tcp.New(withURI(t, a, listenerURI))}}
	}}
	p := ucppair.New(t, set, ucp.Config{})
	l := listen(t, &p.B, "tcp", ":0", ucp.ListenConfig{})
	_, err := dialTo(p, l, ucp.DialConfig{})
	require.ErrorIs(t, err, ucs.ErrRejected)
	assert.ErrorContains(t, err, "spiffe://cluster/other")
	assert.Empty(t, l.events)
}

// TestListen_TLSOfAnotherWorker: a dialer whose data connections present another certificate than its socket is
// rejected.
func TestListen_TLSOfAnotherWorker(t *testing.T) {
	a := testenv.NewAuthority(t)
	set := tlsets.Set{Name: "tcp", TLS: config.Allow("tcp"), Open: func(testing.TB) (_, _ []uct.Component) {
		bt := tlsets.Components(all.Config{TCP: withURI(t, a, listenerURI)})
		return []uct.Component{otherTLS{tcp.New(withURI(t, a, "spiffe://cluster/other")), tcp.New(withURI(t, a, dialerURI))}}, bt
	}}
	p := ucppair.New(t, set, ucp.Config{WireupTimeout: time.Second})
	l := listen(t, &p.B, "tcp", ":0", ucp.ListenConfig{})
	_, err := dialTo(p, l, ucp.DialConfig{})
	require.Error(t, err)
	for _, peer := range l.peers {
		assert.False(t, peer.EP.Established())
	}
}
