package xrcdomain

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkJoin_First measures a member that creates a domain and leaves it: it tries to connect to all
// places.
func BenchmarkJoin_First(b *testing.B) {
	path := domainFile(b)
	for b.Loop() {
		d, err := joinPath(path, 1)
		require.NoError(b, err)
		require.NoError(b, d.Close())
	}
}
