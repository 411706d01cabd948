package all_test

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/offheap"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/all"
)

// While the process can open only a part of the descriptors that a connection needs, EPs are
// created and a message is sent. The message arrives, at the latest when there are descriptors
// again, or a side reports an error; nothing waits for ever, and no descriptor is left.
func TestConnect_DescriptorsExhausted(t *testing.T) {
	for i, c := range all.Components() {
		if c.Name() == "self" {
			continue // connects to itself only
		}
		for _, r := range resourcesOf(t, c) {
			if strings.HasSuffix(r.Transport, "_mlx5") {
				continue // connects as the transport over verbs does
			}
			t.Run(r.Transport, func(t *testing.T) {
				enough := connectWith(t, i, r, most) + inPassing
				for n := range enough {
					files, bytes := openFiles(t), offheap.InUse()
					connectWith(t, i, r, n)
					testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
						return slices.Equal(files, openFiles(t)) && bytes == offheap.InUse()
					})
				}
			})
		}
	}
}

// most is a number of descriptors that no iface and no connection needs.
const most = 64

// inPassing is how many descriptors are closed again while a connection is made.
const inPassing = 4

// limitedRounds is for how many rounds of progress descriptors are missing.
const limitedRounds = 300

// connectWith connects two sides of component i while n descriptors can be opened, lifts the
// limit, and waits for the message or an error. It returns the number of descriptors that the
// connection has.
func connectWith(t *testing.T, i int, r uct.Resource, n int) (has int) {
	t.Helper()
	p := &pairOf{}
	for k := range p.sides {
		p.sides[k] = openSide(t, all.Components()[i], r)
	}
	before := len(openFiles(t))
	testenv.WithDescriptors(t, n, func() {
		p.connect()
		for k := 0; k < limitedRounds && !p.settled(); k++ {
			p.progress()
		}
	})
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool { p.progress(); return p.settled() })
	if n == most {
		require.True(t, p.sides[1].received, "%v, %v", p.sides[0].err, p.sides[1].err)
	}
	has = len(openFiles(t)) - before
	for _, s := range p.sides {
		require.NoError(t, errors.Join(s.it.Close(), s.md.Close()), "with %d descriptors", n)
	}
	return has
}

// sideOf is a transport that is open in an MD of its own.
type sideOf struct {
	md       uct.MD
	it       uct.Iface
	ep       uct.EP
	err      error // of NewEP, Connect, a post, or what OnError was called with
	received bool
}

func openSide(t *testing.T, c uct.Component, r uct.Resource) *sideOf {
	t.Helper()
	s := &sideOf{}
	mds, err := c.MDs()
	require.NoError(t, err)
	s.md, err = c.OpenMD(mds[0].Name)
	require.NoError(t, err)
	s.it, err = s.md.OpenIface(uct.IfaceParams{Transport: r.Transport, Device: r.Device,
		OnError: func(_ uct.EP, err error) { s.err = err }})
	require.NoError(t, err)
	require.NoError(t, s.it.SetAMHandler(1, uct.AMHandlerFunc(func([]byte, uct.Desc) bool { s.received = true; return false })))
	return s
}

// pairOf is two sides; the first sends to the second.
type pairOf struct {
	sides [2]*sideOf
	sent  bool
}

func (p *pairOf) connect() {
	for k, s := range p.sides {
		var params uct.EPParams
		if a := p.sides[1-k].it.Ext().Address; !s.it.Attr().Caps.Has(uct.CapConnectEP) {
			params = uct.EPParams{DeviceAddr: a.DeviceAddr(nil), IfaceAddr: a.IfaceAddr(nil)}
		}
		if s.ep, s.err = s.it.NewEP(params); s.err != nil {
			return // settled
		}
	}
	for k, s := range p.sides {
		peer := p.sides[1-k]
		if c := s.ep.Ops().Connect; c != nil && s.err == nil {
			s.err = c.Connect(peer.it.Ext().Address.DeviceAddr(nil), peer.ep.Ops().Connect.EPAddr(nil))
		}
	}
}

// settled reports that the message has arrived, or an error has been reported.
func (p *pairOf) settled() bool {
	return p.sides[1].received || p.sides[0].err != nil || p.sides[1].err != nil
}

func (p *pairOf) progress() {
	if from := p.sides[0]; !p.sent && !p.settled() {
		err := from.ep.Ops().AM.AMShort(1, 0, nil)
		if p.sent = err == nil; err != nil && err != uct.ErrNoResource {
			from.err = err
		}
	}
	for _, s := range p.sides {
		s.it.Progress()
	}
	runtime.Gosched()
}
