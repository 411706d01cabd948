package ucp_test

import (
	"encoding/binary"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/internal/handshake"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/wireup"
)

// Offsets of the first port and of the public key in an address of a tcp iface; docs/wire.md.
const (
	tcpPort4 = 2
	tcpKey   = 6
)

// lieAbout returns an address like that of w whose tcp iface has another key and the port of l.
func lieAbout(t *testing.T, w *ucp.Worker, l net.Listener, i int) *wireup.Address {
	t.Helper()
	addr, err := wireup.UnpackAddress(w.Address())
	require.NoError(t, err)
	for k := range addr.Resources {
		if r := &addr.Resources[k]; r.Transport == "tcp" {
			binary.LittleEndian.PutUint16(r.IfaceAddr[tcpPort4:], uint16(l.Addr().(*net.TCPAddr).Port))
			r.IfaceAddr[tcpKey] = byte(i)
		}
	}
	return addr
}

// TestRequest_ThirdPartyAddress: a REQUEST over any transport does not make the worker connect to a third party, neither
// for the reply nor for the lanes.
func TestRequest_ThirdPartyAddress(t *testing.T) {
	for _, tls := range [][]string{{"tcp"}, {"tcp", "ud"}} {
		t.Run(tls[len(tls)-1], func(t *testing.T) {
			l, err := net.Listen("tcp4", "127.0.0.1:0")
			require.NoError(t, err)
			defer l.Close()
			p := ucppair.New(t, tlsets.Real("", tls...), ucp.Config{})
			liar := thirdWorker(p, p.B.Ctx)
			for i := range 20 {
				addr := lieAbout(t, liar, l, i)
				packed, err := addr.Pack()
				require.NoError(t, err)
				m := &handshake.Msg{Type: handshake.Request, Seq: uint32(i), SrcUUID: addr.UUID(), DstUUID: p.A.W.AddressInfo().UUID(),
					SrcEP: uint64(1 + i), Addr: packed}
				for k := range addr.Resources {
					m.Lanes = append(m.Lanes, handshake.MsgLane{Src: uint8(k), Dst: uint8(k), Roles: handshake.Set(wireup.AM)})
				}
				p.A.W.Handler(wire.AMWireup)(seal(liar, p.A.W, m), nil)
				for range 100 {
					p.Step()
				}
			}
			require.NoError(t, l.(*net.TCPListener).SetDeadline(time.Now().Add(time.Millisecond)))
			_, err = l.Accept()
			assert.ErrorContains(t, err, "timeout")
			p.Connect().Warm() // others can connect
		})
	}
}
