package ucp_test

import (
	"fmt"
	"testing"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
)

// TestAllocs_Tags: tagged sends, receives and unexpected messages allocate nothing, inline and with bcopy.
func TestAllocs_Tags(t *testing.T) {
	self := tlsets.Real("self", "self")
	self.Oneself = true
	for _, set := range []tlsets.Set{self, tlsets.Real("sm", "sm"), tlsets.Real("ib", `\rc`, `\ud`), tlsets.Real("tcp", "tcp")} {
		t.Run(set.Name, func(t *testing.T) {
			p := ucppair.New(t, set, ucp.Config{}).Connect()
			info, buf := &ucp.TagInfo{}, make([]byte, 2000)
			receive := func(n int) *ucp.Request {
				r, err := p.B.W.TagRecv(buf[:n], 7, exact, info, nil)
				if err != nil {
					panic(err)
				}
				return r
			}
			end := func(r *ucp.Request) {
				for r != nil && !r.Done() {
					p.Step()
				}
				if r != nil && r.Take() != nil {
					panic("it has failed")
				}
			}
			send := func(n int) {
				r, err := p.A.EP.TagSend(7, buf[:n], nil)
				if err != nil {
					panic(err)
				}
				end(r)
				refill(p)
			}
			for _, n := range []int{8, 2000} {
				expected := func() {
					r := receive(n)
					send(n)
					end(r)
				}
				unexpected := func() {
					send(n)
					for p.B.W.Tags().Unexpected() == 0 {
						p.Step()
					}
					end(receive(n))
				}
				for _, run := range []func(){expected, unexpected} {
					for range 600 { // warm the pools of all layers
						run()
					}
				}
				testenv.NoAllocs(t, fmt.Sprintf("%d bytes, expected", n), expected)
				testenv.NoAllocs(t, fmt.Sprintf("%d bytes, unexpected", n), unexpected)
			}
		})
	}
}

// refill waits until a has credit again: a message without credit uses rendezvous, allocates, and waits for its
// receive.
func refill(p *ucppair.Pair) {
	p.Until(func() bool { return p.A.EP.Messages().Credit > ucp.DefaultEagerWindow/4 })
}
