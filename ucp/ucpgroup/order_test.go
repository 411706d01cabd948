package ucpgroup

import (
	"context"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOrder_Reverse: a rank receives many messages of two others in reverse order, from any source, and finds some of
// them by Probe before. Only the first messages have credit.
func TestOrder_Reverse(t *testing.T) {
	overAll(t, func(t *testing.T, tls string) {
		const n, root = 1000, 0
		require.NoError(t, ranks(t, tls, 3, func(ctx context.Context, g *Group) error {
			c := g.World()
			if c.Rank() == root {
				if err := c.Barrier(ctx); err != nil {
					return err
				}
				return receiveReverse(ctx, c, n)
			}
			reqs := make([]*Request, n)
			for tag := range reqs {
				var err error
				if reqs[tag], err = c.Isend(root, tag, binary.LittleEndian.AppendUint64(nil, uint64(tag)), nil); err != nil {
					return err
				}
			}
			if err := c.Barrier(ctx); err != nil {
				return err
			}
			for _, r := range reqs {
				if _, err := r.Wait(ctx); err != nil {
					return err
				}
			}
			return nil
		}))
	})
}

// receiveReverse receives n messages of each of ranks 1 and 2.
func receiveReverse(ctx context.Context, c *Comm, n int) error {
	for tag := n - 1; tag >= 0; tag-- {
		from := 0
		for range 2 {
			buf := make([]byte, 8)
			if tag%100 == 0 {
				if st, err := c.Probe(ctx, AnySource, tag); err != nil || st.Tag != tag || st.Len != len(buf) {
					return fmt.Errorf("probe of tag %d: %v, %w", tag, st, err)
				}
			}
			st, err := c.Recv(ctx, AnySource, tag, buf)
			if err != nil {
				return err
			}
			if st.Tag != tag || binary.LittleEndian.Uint64(buf) != uint64(tag) {
				return fmt.Errorf("message %d with tag %d instead of %d", binary.LittleEndian.Uint64(buf), st.Tag, tag)
			}
			from += st.Source
		}
		if from != 1+2 {
			return fmt.Errorf("tag %d: both messages are from rank %d", tag, from/2)
		}
	}
	return nil
}
