package ucp

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/tlsets"
)

// sendAll sends messages of a to b with the tags 0 to n-1, and returns the requests that have not completed. There is
// no credit for the last ones.
func (p *pair) sendAll(n, size int) (reqs []*Request) {
	p.t.Helper()
	data := pattern(size, 0)
	for i := range n {
		r, err := p.a.ep.TagSend(uint64(i), data, nil)
		require.NoError(p.t, err)
		if r != nil {
			reqs = append(reqs, r)
		}
		if i%16 == 0 {
			p.step()
		}
	}
	return reqs
}

// endAll waits for requests, which must succeed.
func (p *pair) endAll(reqs []*Request) {
	p.t.Helper()
	for _, r := range reqs {
		require.NoError(p.t, p.finish(r, nil))
	}
}

// TestOrder_Reverse: any number of messages can be received in reverse order, with one receive at a time, or all posted
// at once.
func TestOrder_Reverse(t *testing.T) {
	testenv.SkipRace(t, oneGoroutine)
	overAll(t, func(t *testing.T, p *pair) {
		p.grown()
		for _, tc := range []struct{ n, size int }{{800, 0}, {700, 64}, {300, 1 << 10}, {170, 8 << 10}, {720, tlsets.RndvThresh}} {
			for _, posted := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d of %d bytes, posted %v", tc.n, tc.size, posted), func(t *testing.T) {
					p.t = t
					sent := p.sendAll(tc.n, tc.size)
					require.NotEmpty(t, sent)
					var recvs []*Request
					bufs := make([][]byte, tc.n)
					for i := tc.n - 1; i >= 0; i-- {
						bufs[i] = make([]byte, tc.size)
						r, err := p.b.w.TagRecv(bufs[i], uint64(i), exact, nil, nil)
						if posted && err == nil && r != nil {
							recvs = append(recvs, r)
							continue
						}
						require.NoError(t, p.finish(r, err), "message %d", i)
					}
					p.endAll(recvs)
					p.endAll(sent)
					for i := range bufs {
						requireBytes(t, pattern(tc.size, 0), bufs[i])
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
			p := newPair(t, tlsets.Real("sm", "sm"), Config{}).grown()
			const n = 100_000
			buf := make([]byte, size)
			early, err := p.b.w.TagRecv(make([]byte, size), 1, exact, nil, nil)
			require.NoError(t, err)
			var sent []*Request
			for range n {
				r, err := p.a.ep.TagSend(7, buf, nil)
				require.NoError(t, err)
				if r != nil {
					sent = append(sent, r)
				}
			}
			p.step()
			for tag := range uint64(3) {
				r, err := p.a.ep.TagSend(tag, buf, nil)
				require.NoError(t, err)
				sent = append(sent, r)
			}
			require.NoError(t, p.finish(early, nil))
			require.NoError(t, p.finish(p.b.w.TagRecv(buf, 2, exact, nil, nil)))
			require.NoError(t, p.finish(p.b.w.TagRecv(buf, 0, exact, nil, nil)))
			for range n {
				require.NoError(t, p.finish(p.b.w.TagRecv(buf, 7, exact, nil, nil)))
			}
			p.endAll(sent)
		})
	}
}
