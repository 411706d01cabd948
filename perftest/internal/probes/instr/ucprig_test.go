package instr

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/uct/sm"
)

// TestUCPRig_NoProgressOverSM: a put over sm completes in the post, so that there is no progress to count; this is
// not an error of the run.
func TestUCPRig_NoProgressOverSM(t *testing.T) {
	r, err := openUCP(fabrics[0], sm.Name)
	require.NoError(t, err)
	defer func() { assert.NoError(t, r.Close()) }()
	_, err = r.steps(Case{Op: Busy, API: UCP, Size: 8, Switch: sm.Name})
	assert.ErrorIs(t, err, errors.ErrUnsupported)
	s, err := r.steps(Case{Op: Flush, API: UCP, Size: 8, Switch: sm.Name})
	require.NoError(t, err)
	assert.NoError(t, s.once(func() {}, func(bool) {}))
}

// TestUCPRig_Windows executes each window once at full speed; counting them is for sweeps.
func TestUCPRig_Windows(t *testing.T) {
	r, err := openUCP(fabrics[0], "")
	require.NoError(t, err)
	defer func() { assert.NoError(t, r.Close()) }()
	for _, c := range cases(Plan{Ops: []Op{PutWindow, GetWindow, FAddWindow}, APIs: []Part{UCP}, Sizes: []int{minZcopy}}) {
		s, err := r.steps(c)
		require.NoError(t, err, c)
		assert.NoError(t, s.once(func() {}, func(bool) {}), c)
	}
}
