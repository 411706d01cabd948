package layer

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseLayouts(t *testing.T) {
	for in, want := range map[string]Layouts{
		"contig":         {},
		"iov":            {Send: IOV},
		"generic,iov":    {Send: Generic, Recv: IOV},
		"contig,generic": {Recv: Generic},
	} {
		got, err := ParseLayouts(in)
		require.NoError(t, err, in)
		assert.Equal(t, want, got, in)
		if in == "contig" {
			assert.Empty(t, got.String())
			continue
		}
		assert.Equal(t, in, got.String())
	}
	for _, in := range []string{"", "iov,", ",iov", "iov,iov,iov", "zcopy"} {
		_, err := ParseLayouts(in)
		assert.ErrorContains(t, err, "there are contig, iov, generic", in)
	}
	assert.Equal(t, "Layout(9)", Layout(9).String())
}
