package ucp_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
)

// sendAll sends messages of a to b with the tags 0 to n-1, and returns the requests that have not completed. There is
// no credit for the last ones.
func sendAll(p *ucppair.Pair, n, size int) (reqs []*ucp.Request) {
	p.T.Helper()
	data := testenv.Pattern(size, 0)
	for i := range n {
		r, err := p.A.EP.TagSend(uint64(i), data, nil)
		require.NoError(p.T, err)
		if r != nil {
			reqs = append(reqs, r)
		}
		if i%16 == 0 {
			p.Step()
		}
	}
	return reqs
}

// finishAll waits for requests, which must succeed.
func finishAll(p *ucppair.Pair, reqs []*ucp.Request) {
	p.T.Helper()
	for _, r := range reqs {
		require.NoError(p.T, p.Finish(r, nil))
	}
}

// TestOrder_Reverse: any number of messages can be received in reverse order, with one receive at a time, or all posted
// at once.
func TestOrder_Reverse(t *testing.T) {
	testenv.SkipRace(t, oneGoroutine)
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		growWindow(p)
		for _, tc := range []struct{ n, size int }{{800, 0}, {700, 64}, {300, 1 << 10}, {170, 8 << 10}, {720, tlsets.RndvThresh}} {
			for _, posted := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d of %d bytes, posted %v", tc.n, tc.size, posted), func(t *testing.T) {
					p.T = t
					sent := sendAll(p, tc.n, tc.size)
					require.NotEmpty(t, sent)
					var recvs []*ucp.Request
					bufs := make([][]byte, tc.n)
					for i := tc.n - 1; i >= 0; i-- {
						bufs[i] = make([]byte, tc.size)
						r, err := p.B.W.TagRecv(bufs[i], uint64(i), exact, nil, nil)
						if posted && err == nil && r != nil {
							recvs = append(recvs, r)
							continue
						}
						require.NoError(t, p.Finish(r, err), "message %d", i)
					}
					finishAll(p, recvs)
					finishAll(p, sent)
					for i := range bufs {
						testenv.RequireBytes(t, testenv.Pattern(tc.size, 0), bufs[i])
					}
				})
			}
		}
	})
}

// TestOrder_OthersUnreceived: a receive matches a message behind 100,000 unreceived ones.
func TestOrder_OthersUnreceived(t *testing.T) {
	testenv.SkipRace(t, oneGoroutine)
	for _, size := range []int{0, 20} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			p := growWindow(ucppair.New(t, tlsets.Real("sm", "sm"), ucp.Config{}))
			const n = 100_000
			buf := make([]byte, size)
			early, err := p.B.W.TagRecv(make([]byte, size), 1, exact, nil, nil)
			require.NoError(t, err)
			var sent []*ucp.Request
			for range n {
				r, err := p.A.EP.TagSend(7, buf, nil)
				require.NoError(t, err)
				if r != nil {
					sent = append(sent, r)
				}
			}
			p.Step()
			for tag := range uint64(3) {
				r, err := p.A.EP.TagSend(tag, buf, nil)
				require.NoError(t, err)
				sent = append(sent, r)
			}
			require.NoError(t, p.Finish(early, nil))
			require.NoError(t, p.Finish(p.B.W.TagRecv(buf, 2, exact, nil, nil)))
			require.NoError(t, p.Finish(p.B.W.TagRecv(buf, 0, exact, nil, nil)))
			for range n {
				require.NoError(t, p.Finish(p.B.W.TagRecv(buf, 7, exact, nil, nil)))
			}
			finishAll(p, sent)
		})
	}
}
